"""Computes how frames of a video differ: which are near-identical, and where scenes begin. No I/O.

`scene_difference` is the measure of PySceneDetect's content-aware detector (`ContentDetector`, version 0.6,
scenedetect.com/docs): the mean difference of two frames in hue, saturation and value, each from 0 to 255. A scene
begins where this difference is 27 or more. Three things differ from PySceneDetect: the frames are shrunk, hue is a
circle, and hue counts only where both pixels have a color.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from lightmeter.media.perceptual_hash import perceptual_hash

CUT_DIFFERENCE: Final = 27.0
"""A scene begins between two consecutive frames whose `scene_difference` is at least this: PySceneDetect's default."""

NEAR_IDENTICAL_LEVELS: Final = 6.0
"""Two frames are near-identical if their `largest_change` is at most this. Encoders change a still picture by less."""

_SIDE: Final = 64
_CELLS: Final = 16
_LEAST_SATURATION: Final = 25


@dataclass(frozen=True, slots=True, eq=False)
class FrameFeatures:
    """What is kept of a frame in order to compute how it differs from other frames: about 28 KB.

    Attributes:
        hsv: The frame shrunk to 64 x 64 pixels: hue, saturation and value, 0 to 255.
        cells: Mean RGB color of each of 16 x 16 cells, 0 to 255.
        perceptual_hash: Number of 64 bits, of which few differ between similar frames.
    """

    hsv: NDArray[np.int16]
    cells: NDArray[np.float32]
    perceptual_hash: int


def frame_features(rgb: NDArray[np.uint8]) -> FrameFeatures:
    """Compute the features by which a frame (height x width x 3, RGB) is compared with others."""
    small = Image.fromarray(np.ascontiguousarray(rgb)).resize((_SIDE, _SIDE), Image.Resampling.BOX)
    step = _SIDE // _CELLS
    blocks = np.asarray(small, np.float32).reshape(_CELLS, step, _CELLS, step, 3)
    hsv = np.asarray(small.convert("HSV")).astype(np.int16)
    return FrameFeatures(hsv, blocks.mean(axis=(1, 3)), perceptual_hash(rgb))


def perceptual_distance(first: FrameFeatures, second: FrameFeatures) -> int:
    """Return in how many of 64 bits the perceptual hashes of two frames differ: in few if the frames look similar."""
    return (first.perceptual_hash ^ second.perceptual_hash).bit_count()


def largest_change(first: FrameFeatures, second: FrameFeatures) -> float:
    """Return the largest difference between the mean colors of two frames in any of 16 x 16 cells, 0 to 255.

    Noise cancels out in the means, but a small object that moves shows.
    """
    return float(np.abs(first.cells - second.cells).max())


def scene_difference(first: FrameFeatures, second: FrameFeatures) -> float:
    """Return the difference of two frames in hue, saturation and value, averaged over the pixels, 0 to 255."""
    change = np.abs(first.hsv - second.hsv)
    hue = np.minimum(change[..., 0], 256 - change[..., 0])
    has_color = np.minimum(first.hsv[..., 1], second.hsv[..., 1]) >= _LEAST_SATURATION
    return float((hue * has_color + change[..., 1] + change[..., 2]).mean() / 3)


def is_near_identical(first: FrameFeatures, second: FrameFeatures) -> bool:
    """Whether two frames of a video differ so little (`largest_change`) that a person would not notice."""
    return largest_change(first, second) <= NEAR_IDENTICAL_LEVELS


def scene_start_indices(frames: Sequence[FrameFeatures], threshold: float = CUT_DIFFERENCE) -> list[int]:
    """Return the indices of frames that begin a scene, except the first frame.

    A frame begins a scene if its `scene_difference` from the frame before is `threshold` or more.
    """
    differences = (scene_difference(first, second) for first, second in pairwise(frames))
    return [index for index, difference in enumerate(differences, start=1) if difference >= threshold]
