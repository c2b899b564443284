"""Confidence intervals for shares."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.confidence_intervals import StratumSample, estimate_share, estimate_stratified_share


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


STRATA = {
    "few large": ([600, 300, 100], [0.1, 0.5, 0.9], [60, 30, 10]),
    "rare": ([600, 300, 100], [0.02, 0.02, 0.02], [60, 30, 10]),
    "tiny strata": ([900, *[5] * 20], [0.3, *[0.4] * 20], [100, *[1] * 20]),
}


@pytest.mark.parametrize("case", STRATA)
def test_stratified_intervals_contain_the_true_share_about_as_often_as_they_say(case):
    """Of 1,000 stratified samples, about 95 % have an interval with the true share; their mean is the true share."""
    sizes, shares, sampled = STRATA[case]
    rng = random.Random(2)  # noqa: S311 (a simulation)
    strata = [[i < round(size * share) for i in range(size)] for size, share in zip(sizes, shares, strict=True)]
    truth, hits, total = sum(map(sum, strata)) / sum(sizes), 0, 0.0
    for _ in range(1000):
        found = [
            StratumSample(sum(rng.sample(rows, number)), number, len(rows))
            for rows, number in zip(strata, sampled, strict=True)
        ]
        estimate = estimate_stratified_share(found)
        hits += estimate.low <= truth <= estimate.high
        total += estimate.share
    assert 0.92 <= hits / 1000 <= 0.99
    assert total / 1000 == pytest.approx(truth, abs=0.005)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 30)), max_size=6))
def test_a_stratified_interval_contains_the_share(counts):
    """Bounds lie around the share, between what is certain; with all rows sampled, both are the share."""
    strata = [StratumSample(yes, yes + no, yes + no + unseen) for yes, no, unseen in counts]
    estimate = estimate_stratified_share(strata)
    assert 0 <= estimate.low <= estimate.share <= estimate.high <= 1
    if total := sum(one.population for one in strata):
        assert estimate.low >= min(estimate.share, sum(yes for yes, _, _ in counts) / total)
        assert estimate.high <= max(estimate.share, 1 - sum(no for _, no, _ in counts) / total) + 1e-12
    complete = [StratumSample(yes, yes + no, yes + no) for yes, no, _ in counts]
    if sum(one.population for one in complete):
        share = sum(one.positives for one in complete) / sum(one.population for one in complete)
        assert estimate_stratified_share(complete) == pytest.approx((share, share, share))


def test_a_stratum_without_a_sample_widens_the_interval_by_its_weight():
    """Half of the population unseen: the true share can be anything that this half allows."""
    estimate = estimate_stratified_share([StratumSample(10, 10, 10), StratumSample(0, 0, 10)])
    assert estimate == (1.0, 0.5, 1.0)


def test_impossible_counts_are_refused():
    """More positives than samples, or more samples than the population, raise ValueError."""
    for numbers in ((2, 1, None), (0, 5, 4), (-1, 3, None)):
        with pytest.raises(ValueError, match="positives of"):
            estimate_share(*numbers)
