"""How unsafe a moderation entry is, on one scale for both of its forms. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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
    if isinstance(score, (int, float)) and not isinstance(score, bool) and math.isfinite(score):
        unsafe = min(max(float(score), 0.0), 1.0)
    else:
        known = likelihood_score(likelihood)
        if known is None:
            return None
        unsafe = known
    return 1.0 - unsafe if _is_safe(label) else unsafe


def severities(labels: Any, scores: Any, likelihoods: Any) -> Any:
    """As `severity`, over three Arrow arrays of texts, finite doubles and texts; an array of doubles."""
    unsafe = np.clip(_doubles(scores), 0.0, 1.0)
    unsafe = np.where(np.isnan(unsafe), _of_words(likelihoods, likelihood_score), unsafe)
    safe = _of_words(labels, lambda label: float(_is_safe(label))) == 1.0
    found = np.where(safe, 1.0 - unsafe, unsafe)
    return pa.array(found, mask=np.isnan(found))


def _doubles(scores: Any) -> Any:
    return pc.fill_null(scores, math.nan).to_numpy(zero_copy_only=False)


def _of_words(words: Any, value_of: Callable[[Any], float | None]) -> Any:
    """The value of each word, asked once for each different one; NaN where there is none."""
    encoded = words.dictionary_encode()
    values = [value_of(word) for word in encoded.dictionary.to_pylist()]
    known = np.array([math.nan if value is None else value for value in values] + [math.nan])
    return known[pc.fill_null(encoded.indices, len(values)).to_numpy()]


def _is_safe(label: Any) -> bool:
    return isinstance(label, str) and label.strip().casefold() == SAFE_LABEL


def likelihood_score(likelihood: Any) -> float | None:
    """A likelihood on the scale of scores; None for UNKNOWN and for what is no likelihood."""
    return LIKELIHOOD_SEVERITY.get(likelihood.strip().upper()) if isinstance(likelihood, str) else None
