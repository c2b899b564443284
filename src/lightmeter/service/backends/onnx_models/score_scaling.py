"""Conversion of model outputs to scores that fit the default `tag_score`, the lowest score that a request accepts."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lightmeter.service.backends.onnx_models.boxes import Floats
from lightmeter.wire.constants import DEFAULT_TAG_SCORE

Activation: TypeAlias = Literal["softmax", "sigmoid", "none"]

TOLERANCE: Final = 1e-3
"""Tolerance for probabilities outside 0 to 1, because half-precision numbers have three digits."""


def are_scores(outputs: NDArray[np.floating]) -> bool:
    """Return whether all outputs are from 0 to 1 and so need no activation."""
    return bool(np.all((outputs >= -TOLERANCE) & (outputs <= 1 + TOLERANCE)))


def apply_activation(outputs: Floats, activation: Activation) -> Floats:
    """Convert outputs to scores, 0 to 1: by softmax over the last axis, by sigmoid, or by clipping."""
    match activation:
        case "softmax":
            exponentials = np.exp(outputs - outputs.max(axis=-1, keepdims=True))
            scores: Floats = exponentials / exponentials.sum(axis=-1, keepdims=True)
        case "sigmoid":
            # tanh does not overflow, as exp would
            scores = np.float32(0.5) * (1 + np.tanh(outputs / 2))
        case "none":
            scores = np.clip(outputs, 0, 1)
    return scores


def rescale_score(score: float, decision_threshold: float) -> float:
    """Rescale a score, 0 to 1, so that `decision_threshold` becomes the API's default `tag_score` of 0.9.

    The odds score / (1 - score) are multiplied by a constant. Scores of 0 and 1 and the order of scores do not change.
    """
    if decision_threshold == DEFAULT_TAG_SCORE:
        return score
    odds = (DEFAULT_TAG_SCORE / (1 - DEFAULT_TAG_SCORE)) / (decision_threshold / (1 - decision_threshold))
    return odds * score / (1 + (odds - 1) * score)
