"""The limiter settles within seconds, whatever the hidden limit is."""

from __future__ import annotations

import itertools
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.client.rate_limit import AdaptiveLimiter, SendRecord
from lightmeter.client.rate_limit.quota_window import QuotaWindow
from lightmeter.client.rate_limit.rate_search import RateSearch
from tests.bench.rate_limit.random_limits import Draw, draw, judge, opening_of, service_of
from tests.bench.rate_limit.scenarios import LightmeterController
from tests.bench.rate_limit.simulation import simulate


def simulated_run(drawn, seed):
    """Return the result of a simulated run against a random limit."""
    rng, service = random.Random(seed), service_of(drawn, seed)  # noqa: S311 (a simulation; no secret)
    return judge(drawn, simulate(LightmeterController(rng), service, rng, drawn.seconds), opening_of(service))


def settled_goodput(kind, seeds):
    """Return the accepted rate of each run from 15 s on, in percent of the limit; buckets hold more than one token."""
    draws = [(draw(kind, seed), seed) for seed in seeds]
    return [
        min(100.0, simulated_run(drawn, seed).goodput) for drawn, seed in draws if kind != "bucket" or drawn.size > 1
    ]


@pytest.mark.parametrize(
    ("kind", "mean", "worst"),
    [("bucket", 96, 75), ("window, Retry-After", 97, 90), ("window", 95, 65), ("cap", 97, 75)],
)
def test_from_15_seconds_on_the_limit_is_used(kind, mean, worst):
    """From 15 s on nearly all of a random limit is used, at latencies of 0.05 to 3 s."""
    goodputs = settled_goodput(kind, range(300, 340))
    assert statistics.fmean(goodputs) >= mean
    assert min(goodputs) >= worst


def test_twenty_three_per_second_are_reached_in_fifteen():
    """95 % of a bucket of 23/s are used from 15 s on, with 1 % rejected."""
    drawn = Draw("bucket", 23.0, 6.0, 0.4, 60.0)
    results = [simulated_run(drawn, seed) for seed in range(20)]
    assert statistics.fmean(one.goodput for one in results) >= 95
    assert statistics.fmean(one.share for one in results) <= 1


def send_one(limiter, now):
    limiter.on_admitted(now)
    return limiter.on_sent(now)


def test_a_rejection_does_not_hold_back_until_slow_answers_come():
    """After a trial request the limiter waits as long as a rejection takes, not as long as an answer."""
    limiter, now, records = AdaptiveLimiter(64), 0.0, []
    for _ in range(30):
        now += limiter.wait_s(now, len(records)) + 1e-6
        records.append(send_one(limiter, now))
    for record in records:
        limiter.on_answer(record.sent_at + 3.0, 3.0, record)
    now += 3.0
    for _ in range(2):
        now += limiter.wait_s(now, 5) + 1e-6
        limiter.on_throttled(now + 0.01, None, send_one(limiter, now))
        now += 0.01
    assert limiter.rate_estimator is not None
    now += limiter.wait_s(now, 5) + 1e-6
    send_one(limiter, now)
    assert 0 < limiter.wait_s(now, 6) < 2.5


def test_a_service_that_asks_for_long_counts_by_time():
    """A Retry-After of many latencies means a rate limit, not a concurrency limit."""
    limiter, now = AdaptiveLimiter(64), 0.0
    records = []
    for _ in range(20):
        now += limiter.wait_s(now, len(records)) + 1e-6
        records.append(send_one(limiter, now))
    for record in records[:10]:
        limiter.on_answer(now, 0.1, record)
    now += limiter.wait_s(now, 10) + 1e-6
    limiter.on_throttled(now + 0.01, 30.0, send_one(limiter, now))
    assert limiter.concurrency_limit is None
    assert limiter.rate_estimator is not None


def sent_until(end_s, latency_s):
    """Return when a new limiter lets requests be sent, whose answers say that they took `latency_s`."""
    limiter, now, sent_at = AdaptiveLimiter(64), 0.0, []
    while now < end_s:
        wait_s = limiter.wait_s(now, 0)
        if wait_s:
            now += wait_s
            continue
        sent_at.append(now)
        limiter.on_answer(now, latency_s, send_one(limiter, now))
    return sent_at


def test_a_start_is_evenly_spaced_and_doubles_each_second():
    """With a latency of 200 ms or more, the start rate doubles each second, evenly spaced."""
    left = sent_until(3.5, 0.2)
    assert 18 <= sum(at < 1 for at in left) <= 30
    assert 70 <= sum(2 <= at < 3 for at in left) <= 120
    assert min(later - earlier for earlier, later in itertools.pairwise(left)) > 0.003


def test_a_start_doubles_faster_with_fast_answers():
    """The start rate doubles in the time of five answers, and ten times a second at most."""
    sent_at = sent_until(2.5, 0.05)
    assert 1.8 < len(sent_at) / sum(at < 2.25 for at in sent_at) < 2.2
    at_once = sent_until(1.5, 0.0)
    assert 1.8 < len(at_once) / sum(at < 1.4 for at in at_once) < 2.2


def test_a_late_rejection_does_not_stop_a_start():
    """A 429 that comes minutes after its request, while answers are fast, does not lower the rate to a trickle."""
    limiter = AdaptiveLimiter(64)
    for number in range(40):
        record = send_one(limiter, number * 0.05)
        if number < 39:
            limiter.on_answer(number * 0.05 + 0.02, 0.02, record)
    limiter.on_throttled(200.0, 5.0, record)
    assert limiter.requests_per_s is not None
    assert limiter.requests_per_s > 5


@given(st.floats(3, 60), st.floats(1.05, 3), st.integers(2, 20))
def test_a_search_ends_at_what_a_bucket_takes(rate, excess, burst):
    """A search ends within 10 % of a bucket's rate, after 15 rejections at most."""
    now, tokens, number, rejections = 0.0, 0.0, 0, 0
    search = RateSearch(rate * excess, now, SendRecord(0, now, 0, -1, 0, 16.0))
    while not search.done:
        pause_s = 1 / search.rate
        now, tokens = now + pause_s, min(float(burst), tokens + pause_s * rate)
        search.on_sent(now)
        number += 1
        if tokens >= 1:
            tokens -= 1
            continue
        search.on_not_accepted()
        search.on_rejected(now, SendRecord(number - 1, now, 0, -1, 0, 16.0))
        rejections += 1
        assert rejections <= 15
    assert search.rate == pytest.approx(rate, rel=0.1)


@given(st.sampled_from([10.0, 15.0, 20.0, 30.0, 60.0]), st.integers(20, 600), st.floats(0, 0.9), st.floats(0, 0.05))
def test_the_length_of_a_window_is_found_by_its_openings(length_s, quota, begun, late):
    """Quota and length of a window are known after two whole windows."""
    opening_s = length_s * (1 - begun)
    window, number = QuotaWindow(SendRecord(0, 0.0, 0, -1, 0, 16.0), 0), quota
    for _ in range(4):
        blocked_since = opening_s - length_s * (1 - begun)
        window.on_reset(
            SendRecord(number, opening_s + late * length_s, 0, -1, 0, 16.0), blocked_since, opening_s - late * length_s
        )
        opening_s, number = opening_s + length_s, number + quota
    assert window.quota == quota
    assert window.length_s == pytest.approx(length_s, rel=0.11)


def test_a_search_is_not_ended_by_what_others_have_learned():
    """A search goes on although another process shares the rate that it tries."""
    limiter, now = AdaptiveLimiter(64), 0.0
    for _ in range(3):
        now += limiter.wait_s(now, 5) + 1e-6
        limiter.on_answer(now + 0.1, 0.1, send_one(limiter, now))
    limiter.adopt_share([{}], now)
    for _ in range(2):
        now += limiter.wait_s(now, 5) + 1e-6
        limiter.on_throttled(now + 0.01, None, send_one(limiter, now))
    assert limiter.rate_estimator is not None
    tried = limiter.rate_estimator.rate
    limiter.adopt_share([{"rate": 4 * tried, "sharers": 2.0}], now)
    assert limiter.rate_estimator.rate == tried
