"""Severity of the entries of the table `nsfw`: scores and likelihoods on one scale. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lightmeter.wire.constants import LIKELIHOOD_SEVERITY


def severities(
    labels: Sequence[str | None], scores: Sequence[float | None], likelihoods: Sequence[str | None]
) -> list[float | None]:
    """Return the severity of each NSFW rating, from 0 (harmless) to 1 (unsafe).

    The severity is the score; a score below 0 counts as 0, one above 1 as 1. If there is no score, the severity is that
    of the likelihood: from 0 for `VERY_UNLIKELY` to 1 for `VERY_LIKELY`, in steps of 0.25. If there is no known
    likelihood either, it is None. For the label `sfw` (harmless), in upper or lower case, the severity is one minus
    this number.

    Args:
        labels: Label of each rating, or None.
        scores: Score of each rating, finite or None.
        likelihoods: Likelihood of each rating, such as `VERY_LIKELY`, or None.
    """
    safe = {label for label in set(labels) if label is not None and label.strip().casefold() == "sfw"}
    steps = {word: likelihood_score(word) for word in set(likelihoods)}
    found: list[float | None] = []
    for label, score, likelihood in zip(labels, scores, likelihoods, strict=True):
        unsafe = steps[likelihood] if score is None else 0.0 if score < 0.0 else min(score, 1.0)
        found.append(1.0 - unsafe if unsafe is not None and label in safe else unsafe)
    return found


def likelihood_score(likelihood: Any) -> float | None:
    """Return a score from 0 to 1 for a likelihood such as `VERY_LIKELY`; None for `UNKNOWN` and other values."""
    return LIKELIHOOD_SEVERITY.get(likelihood.strip().upper()) if isinstance(likelihood, str) else None
