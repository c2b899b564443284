"""Severity of moderation entries: scores and likelihoods on one scale. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from lightmeter.facts.lenient_decode import to_float
from lightmeter.wire.constants import LIKELIHOOD_SEVERITY

SAFE_LABEL: Final = "sfw"
"""The one known label whose high score means harmless."""


def severity(label: Any, score: Any, likelihood: Any) -> float | None:
    """Return the severity of an entry, from 0 (harmless) to 1 (unsafe).

    It is the score, cut to 0..1, or else the likelihood on five even steps (`LIKELIHOOD_SEVERITY`). For the label
    `sfw`, in upper or lower case, it is one minus that.

    Args:
        label: Label of the entry.
        score: Its score, if it has one.
        likelihood: Its likelihood, if it has one.

    Returns:
        The severity; None where there is neither a score nor a known likelihood.
    """
    figure = to_float(score)
    unsafe = likelihood_score(likelihood) if figure is None else min(max(figure, 0.0), 1.0)
    return 1.0 - unsafe if unsafe is not None and _is_safe(label) else unsafe


def severities(
    labels: Sequence[str | None], scores: Sequence[float | None], likelihoods: Sequence[str | None]
) -> list[float | None]:
    """Return `severity` of many entries with finite scores; labels and likelihoods are looked up once each.

    Args:
        labels: Label of each entry.
        scores: Score of each entry, or None.
        likelihoods: Likelihood of each entry, or None.
    """
    safe = {label for label in set(labels) if _is_safe(label)}
    steps = {word: likelihood_score(word) for word in set(likelihoods)}
    found: list[float | None] = []
    for label, score, likelihood in zip(labels, scores, likelihoods, strict=True):
        unsafe = steps[likelihood] if score is None else 0.0 if score < 0.0 else min(score, 1.0)
        found.append(1.0 - unsafe if unsafe is not None and label in safe else unsafe)
    return found


def _is_safe(label: Any) -> bool:
    return isinstance(label, str) and label.strip().casefold() == SAFE_LABEL


def likelihood_score(likelihood: Any) -> float | None:
    """Return a score from 0 to 1 for a likelihood such as `VERY_LIKELY`; None for `UNKNOWN` and other values."""
    return LIKELIHOOD_SEVERITY.get(likelihood.strip().upper()) if isinstance(likelihood, str) else None
