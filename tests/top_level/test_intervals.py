"""Confidence intervals for shares."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.intervals import estimate_share


def test_the_interval_is_that_of_the_literature():
    """10 of 100 gives the Wilson interval 0.0552 to 0.1744."""
    estimate = estimate_share(10, 100)
    assert (estimate.share, round(estimate.low, 4), round(estimate.high, 4)) == (0.1, 0.0552, 0.1744)


@given(st.integers(0, 400), st.integers(0, 400), st.integers(0, 10_000))
def test_an_interval_contains_the_share_and_shrinks_with_the_population(positives, others, unseen):
    """Bounds lie around the share, within 0 and 1; a finite population never makes the interval wider."""
    sampled = positives + others
    unlimited = estimate_share(positives, sampled)
    finite = estimate_share(positives, sampled, sampled + unseen)
    for each in (unlimited, finite):
        assert 0 <= each.low <= each.share <= each.high <= 1
    assert finite.high - finite.low <= unlimited.high - unlimited.low + 1e-12


@pytest.mark.parametrize("share", [0.02, 0.3])
def test_intervals_contain_the_true_share_about_as_often_as_they_say(share):
    """Of 2,000 samples of 200 out of 1,000, about 95 % have an interval with the true share."""
    rng = random.Random(1)  # noqa: S311 (a simulation)
    population = [True] * int(1000 * share) + [False] * int(1000 * (1 - share))
    hits = 0
    for _ in range(2000):
        estimate = estimate_share(sum(rng.sample(population, 200)), 200, 1000)
        hits += estimate.low <= share <= estimate.high
    assert 0.92 <= hits / 2000 <= 0.99


def test_impossible_counts_are_refused():
    """More positives than samples, or more samples than the population, raise ValueError."""
    for numbers in ((2, 1, None), (0, 5, 4), (-1, 3, None)):
        with pytest.raises(ValueError, match="positives of"):
            estimate_share(*numbers)
