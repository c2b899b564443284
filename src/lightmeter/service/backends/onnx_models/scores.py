"""Conversion of model outputs to scores on the scale of `tag_score`."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lightmeter.models.vocabulary import DEFAULT_TAG_SCORE
from lightmeter.service.backends.onnx_models.boxes import Floats

__all__ = ["Activation", "apply_activation", "are_scores", "rescale_score"]

Activation: TypeAlias = Literal["softmax", "sigmoid", "none"]

ROUNDING: Final = 1e-3
"""How far a probability may lie outside 0 to 1: half precision has three digits."""


def are_scores(outputs: NDArray[np.floating]) -> bool:
    """Return whether all outputs are within 0 and 1."""
    return bool(np.all((outputs >= -ROUNDING) & (outputs <= 1 + ROUNDING)))


def apply_activation(outputs: Floats, activation: Activation) -> Floats:
    """Convert outputs to scores, 0 to 1: by softmax over the last axis, by sigmoid, or by clipping."""
    match activation:
        case "softmax":
            likely = np.exp(outputs - outputs.max(axis=-1, keepdims=True))
            scores: Floats = likely / likely.sum(axis=-1, keepdims=True)
        case "sigmoid":
            # tanh does not overflow, as exp would
            scores = np.float32(0.5) * (1 + np.tanh(outputs / 2))
        case "none":
            scores = np.clip(outputs, 0, 1)
    return scores


def rescale_score(score: float, decision_threshold: float) -> float:
    """Rescale a score, 0 to 1, so that `decision_threshold` becomes the API's default `tag_score` of 0.9.

    The odds score / (1 - score) are multiplied by a constant: 0, 1 and the order stay.
    """
    if decision_threshold == DEFAULT_TAG_SCORE:
        return score
    odds = (DEFAULT_TAG_SCORE / (1 - DEFAULT_TAG_SCORE)) / (decision_threshold / (1 - decision_threshold))
    return odds * score / (1 + (odds - 1) * score)
