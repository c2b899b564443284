"""From what a model gives to scores that a request can filter by."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lightmeter.models.vocabulary import DEFAULT_TAG_SCORE
from lightmeter.service.backends.onnx_models.boxes import Floats

__all__ = ["Activation", "apply_activation", "are_scores", "rescale_score"]

Activation: TypeAlias = Literal["softmax", "sigmoid", "none"]

ROUNDING: Final = 1e-3
"""By how much a probability may pass 1: half precision has three digits."""


def are_scores(outputs: NDArray[np.floating]) -> bool:
    """Whether all outputs are within 0 and 1."""
    return bool(np.all((outputs >= -ROUNDING) & (outputs <= 1 + ROUNDING)))


def apply_activation(outputs: Floats, activation: Activation) -> Floats:
    """Turn outputs into scores, 0 to 1; softmax over the last axis. Without an activation they are cut off."""
    match activation:
        case "softmax":
            likely = np.exp(outputs - outputs.max(axis=-1, keepdims=True))
            scores: Floats = likely / likely.sum(axis=-1, keepdims=True)
        case "sigmoid":
            # tanh does not overflow where exp would
            scores = np.float32(0.5) * (1 + np.tanh(outputs / 2))
        case "none":
            scores = np.clip(outputs, 0, 1)
    return scores


def rescale_score(score: float, decision_threshold: float) -> float:
    """Move a score, 0 to 1, so that `decision_threshold` becomes the API's default `tag_score` of 0.9.

    The odds score / (1 - score) are multiplied by a constant, which keeps 0, 1 and the order.
    """
    if decision_threshold == DEFAULT_TAG_SCORE:
        return score
    odds = (DEFAULT_TAG_SCORE / (1 - DEFAULT_TAG_SCORE)) / (decision_threshold / (1 - decision_threshold))
    return odds * score / (1 + (odds - 1) * score)
