"""Tags for scenes and things that have no ImageNet class: `outdoor`, `water`, `person`.

Each tag is a logistic regression on the pooled features of EfficientNet-Lite2 (Guillaume Alain and Yoshua Bengio,
"Understanding intermediate layers using linear classifier probes", 2016). The weights are beside this file;
`scene_words.txt` names the training data and the command that fits them.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

WEIGHTS_FILE: Final = Path(__file__).with_suffix(".npz")
BLACK_AND_WHITE: Final = "black and white"

_GREY_SPREAD: Final = 4
"""A pixel counts as grey if its red, green and blue (each 0 to 255) differ by at most this. JPEG compression makes
the channels of grey pixels differ by up to this."""
_GREY_SHARE: Final = 0.99
"""A picture counts as black and white if at least this fraction of its pixels is grey."""
_GREY_SCORE: Final = 0.99
"""Score of the tag `black and white` for a black-and-white picture; other pictures score 0."""


def l2_normalize(pooled: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Return the vectors along the last axis of `pooled`, scaled to unit length; zero vectors stay zero."""
    vectors = pooled.astype(np.float64)
    scaled: NDArray[np.float64] = vectors / np.maximum(np.sqrt((vectors * vectors).sum(-1, keepdims=True)), 1e-12)
    return scaled


def is_grey(picture: NDArray[np.uint8]) -> bool:
    """Return whether red, green and blue differ by at most 4 of 255 in at least 99 % of the pixels of a picture."""
    red, green, blue = (picture[..., channel] for channel in range(3))
    spread = np.maximum(np.maximum(red, green), blue) - np.minimum(np.minimum(red, green), blue)
    return bool((spread <= _GREY_SPREAD).mean() >= _GREY_SHARE)


class SceneWords:
    """Scorer of scene words: tags such as `outdoor`, by logistic regressions, and the tag `black and white`.

    Args:
        names: The scene words, without `black and white`.
        weights: Array with one row of 1281 numbers for each scene word: the weights of the picture's 1280 features,
            then the intercept.
    """

    def __init__(self, names: tuple[str, ...], weights: NDArray[np.floating[Any]]) -> None:
        self.names = (*names, BLACK_AND_WHITE)
        self._weights = weights[:, :-1].astype(np.float64)
        self._intercepts = weights[:, -1].astype(np.float64)

    def scores(self, pooled: NDArray[np.floating[Any]], *, grey: bool) -> NDArray[np.float64]:
        """Return the scores (0 to 1) of all scene words for one picture; the last is that of `black and white`.

        Args:
            pooled: Features of the picture from the last pooling layer of EfficientNet-Lite2, shape 1280.
            grey: Whether the picture is black and white (`is_grey`).
        """
        # Not a matrix product: BLAS would start threads, which compete with the models.
        odds = (self._weights * l2_normalize(pooled)).sum(1) + self._intercepts
        return np.append(1 / (1 + np.exp(-np.clip(odds, -30, 30))), _GREY_SCORE * grey)


@cache
def load_scene_words() -> SceneWords:
    """Return the scorer of scene words (tags such as `outdoor`) with the weights that the package contains."""
    with np.load(WEIGHTS_FILE) as stored:
        return SceneWords(tuple(str(word) for word in stored["words"]), stored["weights"])
