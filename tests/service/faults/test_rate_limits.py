"""Hidden limits let in what they say, no more and no less, and tell the truth about when to come again."""

from __future__ import annotations

import math
from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from lightmeter.service.faults.rate_limits import ConcurrencyLimit, FixedWindowLimit, LeakyBucketQueue, TokenBucketLimit

gaps = st.lists(st.floats(0, 3), min_size=1, max_size=80)


def instants(gaps_s: list[float]) -> list[float]:
    """When requests come, from so long between each two."""
    at, out = 100.0, []
    for gap in gaps_s:
        at += gap
        out.append(at)
    return out


@given(gaps, st.floats(0.1, 20), st.integers(1, 5))
def test_a_bucket_lets_in_its_rate_and_its_burst(gaps_s, per_s, burst):
    """Over any stretch of time: at most the burst, and the rate times the stretch."""
    bucket = TokenBucketLimit(per_s, burst)
    entered = [at for at in instants(gaps_s) if bucket.enter(at) == 0]
    for first, begin in enumerate(entered):
        for last in range(first, len(entered)):
            assert last - first + 1 <= burst + per_s * (entered[last] - begin) + 1e-6


@given(gaps, st.floats(0.1, 20), st.integers(1, 5))
def test_a_bucket_says_when_to_come_again(gaps_s, per_s, burst):
    """Who comes after exactly so long, with nobody in between, is let in; who asks too early loses nothing by it."""
    bucket, at = TokenBucketLimit(per_s, burst), 100.0
    for gap in gaps_s:
        at += gap
        wait = bucket.enter(at)
        if wait:
            assert wait <= 1 / per_s + 1e-9
            at += wait
            assert bucket.enter(at) == 0


@given(gaps, st.integers(1, 6), st.floats(0.5, 10))
def test_a_window_lets_in_so_many(gaps_s, most, seconds):
    """In each window from the first request on; and at its end there is room again."""
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
def test_a_cap_counts_who_is_inside(comes, most):
    """Never more inside than it says; whoever leaves makes room for one."""
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
def test_a_line_moves_evenly(gaps_s, per_s):
    """First come, first served, at its pace: nobody is let through sooner, and an idle line keeps nobody."""
    line, served = LeakyBucketQueue(per_s), deque()
    for at in instants(gaps_s):
        turn = at + line.delay_s(at)
        assert not served or turn >= served[-1] + 1 / per_s - 1e-6
        assert turn <= max(at, served[-1] + 1 / per_s if served else at) + 1e-6
        served.append(turn)
