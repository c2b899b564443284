"""How unsafe a moderation entry is, on one scale for both of its forms. Pure."""

from __future__ import annotations

import math
from typing import Any, Final

from lightmeter.models.vocabulary import LIKELIHOOD_SEVERITY

__all__ = ["SAFE_LABEL", "likelihood_score", "severity"]

SAFE_LABEL: Final = "sfw"
"""The one label seen whose high score is good news."""


def severity(label: Any, score: Any, likelihood: Any) -> float | None:
    """0 (harmless) to 1 (unsafe).

    The score where there is one, cut to 0..1, else the likelihood's place on five even steps
    (`LIKELIHOOD_SEVERITY`; UNKNOWN has none). For the label `sfw`, in any case, one minus that.

    Returns:
        None where neither form says anything.
    """
    if isinstance(score, (int, float)) and not isinstance(score, bool) and math.isfinite(score):
        unsafe = min(max(float(score), 0.0), 1.0)
    else:
        known = likelihood_score(likelihood)
        if known is None:
            return None
        unsafe = known
    return 1.0 - unsafe if isinstance(label, str) and label.strip().casefold() == SAFE_LABEL else unsafe


def likelihood_score(likelihood: Any) -> float | None:
    """A likelihood on the scale of scores; None for UNKNOWN and for what is no likelihood."""
    return LIKELIHOOD_SEVERITY.get(likelihood.strip().upper()) if isinstance(likelihood, str) else None
