"""How unsafe a moderation entry is, on one scale for both of its forms. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from lightmeter.facts.lenient_decode import to_float
from lightmeter.models.vocabulary import LIKELIHOOD_SEVERITY

__all__ = ["SAFE_LABEL", "likelihood_score", "severities", "severity"]

SAFE_LABEL: Final = "sfw"
"""The one label seen whose high score is good news."""


def severity(label: Any, score: Any, likelihood: Any) -> float | None:
    """0 (harmless) to 1 (unsafe).

    The score where there is one, cut to 0..1, else the likelihood's place on five even steps
    (`LIKELIHOOD_SEVERITY`; UNKNOWN has none). For the label `sfw`, in any case, one minus that.

    Returns:
        None where neither form says anything.
    """
    figure = to_float(score)
    unsafe = likelihood_score(likelihood) if figure is None else min(max(figure, 0.0), 1.0)
    return 1.0 - unsafe if unsafe is not None and _is_safe(label) else unsafe


def severities(
    labels: Sequence[str | None], scores: Sequence[float | None], likelihoods: Sequence[str | None]
) -> list[float | None]:
    """As `severity`, over many entries whose scores are finite: each different word is looked at once."""
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
    """A likelihood on the scale of scores; None for UNKNOWN and for what is no likelihood."""
    return LIKELIHOOD_SEVERITY.get(likelihood.strip().upper()) if isinstance(likelihood, str) else None
