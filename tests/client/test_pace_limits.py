"""The pace before hidden limits, on a virtual clock."""

from __future__ import annotations

import random
import sys
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1] / "bench" / "pace"))  # the benchmark's world serves here too

from pace_scenarios import Ours
from pace_world import Bucket, Cap, Window, recent_rate, simulate


@settings(max_examples=10, deadline=None)
@given(st.floats(5, 20), st.floats(0.2, 0.5), st.integers(0, 10**6))
def test_no_more_than_a_probe_above_the_limit(rate, burst_s, seed):
    """Once settled, no half minute brings more than 1.04 times what a bucket lets through, and most of it is used."""
    rng = random.Random(seed)  # noqa: S311 (a simulation; no secret)
    report = simulate(Ours(rng), Bucket(rng, lambda _: rate, burst_s=burst_s), rng, 300)
    tried = sorted(report.taken + report.rejected)
    settled = [found for end, found in recent_rate(tried, 30, 300) if end > 180]
    assert max(settled) <= 1.04 * rate + 1 / 30
    assert sum(settled) / len(settled) >= 0.85 * rate


@settings(max_examples=10, deadline=None)
@given(st.integers(5, 200), st.floats(2, 60), st.integers(0, 10**6))
def test_nothing_leaves_before_a_retry_after_ends(most, period_s, seed):
    """Whatever a window's quota and length, nothing is sent before a Retry-After that was heard has ended."""
    rng = random.Random(seed)  # noqa: S311 (as above)
    report = simulate(Ours(rng), Window(rng, most, period_s, header=True), rng, 200)
    assert report.too_early == 0
    assert report.taken


@settings(max_examples=10, deadline=None)
@given(st.integers(2, 12), st.integers(0, 10**6))
def test_a_number_at_once_is_found_however_small(most, seed):
    """A cap on requests in flight is told from a limit on their rate, and nearly all of it is used."""
    rng = random.Random(seed)  # noqa: S311 (as above)
    service = Cap(rng, most)
    report = simulate(Ours(rng), service, rng, 300)
    assert len(report.taken) >= 0.85 * service.capacity(0, 300)
    assert len(report.rejected) <= 0.03 * len(report.taken)
