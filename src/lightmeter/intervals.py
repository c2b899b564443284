"""Confidence intervals for a share that is estimated from a random sample. Pure.

Source: the score interval of E. B. Wilson, "Probable inference, the law of succession, and statistical inference",
1927; L. D. Brown, T. T. Cai and A. DasGupta, "Interval estimation for a binomial proportion", 2001, recommend it. For a
sample without replacement from a finite population, the sample size is replaced by the effective one,
n * (N - 1) / (N - n), as the finite population correction of the variance implies.
"""

from __future__ import annotations

from math import sqrt
from statistics import NormalDist
from typing import Final, NamedTuple

CONFIDENCE: Final = 0.95


class ShareEstimate(NamedTuple):
    """An estimated share, 0 to 1, and the bounds of its confidence interval."""

    share: float
    low: float
    high: float


def estimate_share(
    positives: int, sampled: int, population: int | None = None, *, confidence: float = CONFIDENCE
) -> ShareEstimate:
    """Estimate the share of positives in a population from a random sample of it.

    Args:
        positives: Positives in the sample.
        sampled: Size of the sample. Without one, the share is 0.5 and the interval is 0 to 1.
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
