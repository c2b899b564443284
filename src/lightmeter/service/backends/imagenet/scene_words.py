"""Words for scenes and contents that no class of ImageNet stands for: `outdoor`, `sky`, `person`.

A linear probe: a logistic regression for each word on the averaged features that the network computes anyway (Guillaume
Alain and Yoshua Bengio, "Understanding intermediate layers using linear classifier probes", 2016). The weights lie
beside this file; `scene_words.txt` says what they were made from and how to make them again.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["BLACK_AND_WHITE", "WEIGHTS_FILE", "SceneWords", "is_grey", "l2_normalize", "load_scene_words"]

WEIGHTS_FILE: Final = Path(__file__).with_suffix(".npz")
BLACK_AND_WHITE: Final = "black and white"

_GREY_SPREAD: Final = 4
"""Most difference between red, green and blue, of 255, in a picture without colour: what JPEG may add to none."""
_GREY_SHARE: Final = 0.99
_GREY_SCORE: Final = 0.99
"""Of a picture without colour; one with colour scores nothing. Measured in pixels, not guessed."""


def l2_normalize(pooled: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Scale features (the last axis) to unit length; features of zero stay zero."""
    vectors = pooled.astype(np.float64)
    scaled: NDArray[np.float64] = vectors / np.maximum(np.sqrt((vectors * vectors).sum(-1, keepdims=True)), 1e-12)
    return scaled


def is_grey(view: NDArray[np.uint8]) -> bool:
    """Whether a picture (height x width x 3) has no colour."""
    red, green, blue = (view[..., channel] for channel in range(3))
    spread = np.maximum(np.maximum(red, green), blue) - np.minimum(np.minimum(red, green), blue)
    return bool((spread <= _GREY_SPREAD).mean() >= _GREY_SHARE)


class SceneWords:
    """The words and their regressions, and `BLACK_AND_WHITE`, which needs none.

    Args:
        names: The words with regressions.
        weights: Words by features, and behind them the intercept: words by 1281.
    """

    def __init__(self, names: tuple[str, ...], weights: NDArray[np.floating[Any]]) -> None:
        self.names = (*names, BLACK_AND_WHITE)
        self._weights = weights[:, :-1].astype(np.float64)
        self._intercepts = weights[:, -1].astype(np.float64)

    def scores(self, pooled: NDArray[np.floating[Any]], *, grey: bool) -> NDArray[np.float64]:
        """Score each word, 0 to 1.

        Args:
            pooled: Averaged features of one picture, shape 1280.
            grey: Whether it has no colour.
        """
        # Not a matrix product: BLAS would wake its own threads for it and take them from the models.
        odds = (self._weights * l2_normalize(pooled)).sum(1) + self._intercepts
        return np.append(1 / (1 + np.exp(-np.clip(odds, -30, 30))), _GREY_SCORE * grey)


@cache
def load_scene_words() -> SceneWords:
    """Read the weights that are shipped."""
    with np.load(WEIGHTS_FILE) as stored:
        return SceneWords(tuple(str(word) for word in stored["words"]), stored["weights"])
