"""Requests in flight to models on this machine."""

from __future__ import annotations

import pytest

from lightmeter.client.rate_limit import LocalLimiter


def most_in_flight(limiter: LocalLimiter, core_s: float, cores: int, answers: int = 400) -> tuple[int, float]:
    """Answer requests one after the other, `cores` of them each `core_s` seconds; return most and last in flight."""
    now, sent, most = 0.0, [], 0
    for _ in range(answers):
        while limiter.wait_s(now, len(sent)) <= 0:
            limiter.on_admitted(now)
            sent.append(limiter.on_sent(now))
        most = max(most, len(sent))
        now += core_s / cores
        record = sent.pop(0)
        limiter.on_answer(now, now - record.sent_at, record)
    return most, len(sent)


@pytest.mark.parametrize(("core_s", "cores", "queue_s"), [(1.7, 2, 6), (17, 2, 26), (3, 8, 6)])
def test_a_stop_waits_a_few_seconds_for_slow_models(core_s, cores, queue_s):
    """The work in flight is that of a few seconds, or of one request a core and one more."""
    most, _ = most_in_flight(LocalLimiter(64, cores), core_s, cores)
    assert most > cores
    assert most * core_s / cores <= queue_s


def test_fast_models_get_as_many_requests_as_the_user_allows():
    """If answers are quick, the limit does not slow the run."""
    assert most_in_flight(LocalLimiter(64, 2), 0.05, 2) == (64, 63)


def test_the_users_limit_holds():
    """No more requests are in flight than the user allows, even if that is less than the number of cores."""
    assert most_in_flight(LocalLimiter(2, 8), 0.05, 8)[0] == 2
