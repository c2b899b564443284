"""Estimates a share and its confidence interval from a random or a stratified sample. Pure.

Source: the score interval of E. B. Wilson, "Probable inference, the law of succession, and statistical inference",
1927; L. D. Brown, T. T. Cai and A. DasGupta, "Interval estimation for a binomial proportion", 2001, recommend it. For a
sample without replacement from a finite population, the sample size is replaced by the effective one,
n * (N - 1) / (N - n), as the finite population correction of the variance implies.

For a stratified sample, the intervals of the strata are combined by the method of variance estimates recovery: G. Y.
Zou, W. Huang and X. Zhang, "A note on confidence interval estimation for a linear function of binomial proportions",
2009. Strata with few sampled rows are collapsed into one (W. G. Cochran, "Sampling Techniques", 1977, 5A.12), with the
effective sample size of L. Kish, "Survey Sampling", 1965.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from statistics import NormalDist
from typing import Final, NamedTuple

CONFIDENCE: Final = 0.95


LEAST_SAMPLED: Final = 5
"""Strata with fewer sampled rows are merged into one."""


class StratumSample(NamedTuple):
    """Random sample of a stratum (a part of the population).

    Attributes:
        positives: Number of positives in the sample.
        sampled: Size of the sample.
        population: Size of the stratum.
    """

    positives: float
    sampled: float
    population: int


class ShareEstimate(NamedTuple):
    """An estimated share, 0 to 1, and the bounds of its confidence interval."""

    share: float
    low: float
    high: float


def estimate_share(
    positives: float, sampled: float, population: int | None = None, *, confidence: float = CONFIDENCE
) -> ShareEstimate:
    """Estimate the share of positives in a population from a random sample of it.

    Args:
        positives: Positives in the sample.
        sampled: Size of the sample. If it is 0, the estimated share is 0.5 and the interval is 0 to 1.
        population: Size of the population, if the sample was drawn from it without replacement; None means unlimited.
        confidence: Probability with which such intervals contain the true share.

    Raises:
        ValueError: the numbers contradict each other.
    """
    if not 0 <= positives <= sampled or (population is not None and sampled > population):
        raise ValueError(f"{positives} positives of {sampled} sampled of {population}")
    if not sampled:
        return ShareEstimate(0.5, 0.0, 1.0)
    share = positives / sampled
    if population == sampled:
        return ShareEstimate(share, share, share)
    size = sampled if population is None else sampled * (population - 1) / (population - sampled)
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    center = (share + z * z / (2 * size)) / (1 + z * z / size)
    margin = z / (1 + z * z / size) * sqrt(share * (1 - share) / size + z * z / (4 * size * size))
    low, high = max(0.0, center - margin), min(1.0, center + margin)
    if population is not None:  # what the sample itself contains is certain
        low = max(low, positives / population)
        high = min(high, (population - sampled + positives) / population)
    return ShareEstimate(share, min(low, share), max(high, share))


def estimate_stratified_share(strata: Sequence[StratumSample], *, confidence: float = CONFIDENCE) -> ShareEstimate:
    """Estimate the share of positives in a population from random samples of its strata.

    The share of each sampled stratum has the weight of its population. A stratum without a sample is assumed to have
    the mean share of the sampled ones; the interval is widened as if its share could be anything from 0 to 1.

    Args:
        strata: The sample of each stratum.
        confidence: Probability with which such intervals contain the true share, approximately.

    Raises:
        ValueError: the numbers of a stratum contradict each other.
    """
    known = _collapsed([stratum for stratum in strata if stratum.sampled])
    total, reached = sum(stratum.population for stratum in strata), sum(stratum.population for stratum in known)
    if not reached:
        return ShareEstimate(0.5, 0.0, 1.0)
    share = below = above = 0.0
    for stratum in known:
        weight, estimate = stratum.population / total, estimate_share(*stratum, confidence=confidence)
        share += weight * estimate.share
        below += (weight * (estimate.share - estimate.low)) ** 2
        above += (weight * (estimate.high - estimate.share)) ** 2
    positives, sampled = sum(one.positives for one in strata), sum(one.sampled for one in strata)
    low = max(share - sqrt(below), positives / total)  # what the sample itself contains is certain
    high = min(share + sqrt(above) + 1 - reached / total, (total - sampled + positives) / total)
    share = min(1.0, share * total / reached)
    return ShareEstimate(share, min(low, share), max(share, min(1.0, high)))


def _collapsed(strata: Sequence[StratumSample]) -> list[StratumSample]:
    """Return the strata, with those of small samples merged into one.

    A sample is small if it has fewer than `LEAST_SAMPLED` rows and is not the whole stratum.
    """
    small = [one for one in strata if one.sampled < min(LEAST_SAMPLED, one.population)]
    if not small:
        return list(strata)
    population = sum(one.population for one in small)
    share = sum(one.population * one.positives / one.sampled for one in small) / population
    effective = population**2 / sum(one.population**2 / one.sampled for one in small)
    others = [one for one in strata if one.sampled >= min(LEAST_SAMPLED, one.population)]
    return [*others, StratumSample(share * effective, effective, population)]
