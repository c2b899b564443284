"""The rate limiters admit exactly their limit, and report correct waiting times."""

from __future__ import annotations

import math
from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from lightmeter.service.faults.rate_limits import ConcurrencyLimit, FixedWindowLimit, LeakyBucketQueue, TokenBucketLimit

gaps = st.lists(st.floats(0, 3), min_size=1, max_size=80)


def instants(gaps_s: list[float]) -> list[float]:
    """Return arrival times from the gaps between requests."""
    at, out = 100.0, []
    for gap in gaps_s:
        at += gap
        out.append(at)
    return out


@given(gaps, st.floats(0.1, 20), st.integers(1, 5))
def test_a_bucket_admits_its_rate_and_its_burst(gaps_s, per_s, burst):
    """In any period at most the burst plus the rate times the period is admitted."""
    bucket = TokenBucketLimit(per_s, burst)
    entered = [at for at in instants(gaps_s) if bucket.enter(at) == 0]
    for first, begin in enumerate(entered):
        for last in range(first, len(entered)):
            assert last - first + 1 <= burst + per_s * (entered[last] - begin) + 1e-6


@given(gaps, st.floats(0.1, 20), st.integers(1, 5))
def test_a_bucket_reports_the_waiting_time(gaps_s, per_s, burst):
    """A request after the reported wait is admitted; an early one costs nothing."""
    bucket, at = TokenBucketLimit(per_s, burst), 100.0
    for gap in gaps_s:
        at += gap
        wait = bucket.enter(at)
        if wait:
            assert wait <= 1 / per_s + 1e-9
            at += wait
            assert bucket.enter(at) == 0


@given(gaps, st.integers(1, 6), st.floats(0.5, 10))
def test_a_window_admits_its_number_of_requests(gaps_s, most, seconds):
    """Each window admits its number of requests, and the next one admits more."""
    window, at, counted = FixedWindowLimit(most, seconds), 100.0, {}
    start = 100.0 + gaps_s[0]
    for gap in gaps_s:
        at += gap
        wait = window.enter(at)
        number = math.floor((at - start) / seconds + 1e-9)
        if wait == 0:
            counted[number] = counted.get(number, 0) + 1
        else:
            assert 0 < wait <= seconds + 1e-9
            at += wait + 1e-6
            assert window.enter(at) == 0
            counted[number + 1] = counted.get(number + 1, 0) + 1
    assert max(counted.values()) <= most + 1  # one may lie on the border of two windows by rounding


@given(st.lists(st.booleans(), max_size=60), st.integers(1, 5))
def test_a_cap_counts_running_requests(comes, most):
    """No more requests than the limit run at once; when one ends, one more may start."""
    cap, inside = ConcurrencyLimit(most), 0
    for come in comes:
        if come:
            let_in = cap.enter(0) == 0
            assert let_in == (inside < most)
            inside += let_in
        elif inside:
            cap.leave()
            inside -= 1


@given(gaps, st.floats(0.2, 50))
def test_a_queue_moves_at_an_even_rate(gaps_s, per_s):
    """Requests leave the queue in order at its rate; a request to an empty queue does not wait."""
    line, served = LeakyBucketQueue(per_s), deque()
    for at in instants(gaps_s):
        turn = at + line.delay_s(at)
        assert not served or turn >= served[-1] + 1 / per_s - 1e-6
        assert turn <= max(at, served[-1] + 1 / per_s if served else at) + 1e-6
        served.append(turn)
