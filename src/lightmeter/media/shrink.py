"""Shrinks and converts decoded pictures with OpenCV, for thumbnails and for the measures of the pre-checks."""

from __future__ import annotations

from typing import cast

import cv2
import numpy as np
from numpy.typing import NDArray

cv2.setNumThreads(1)  # the callers decode one picture in each of their threads


def shrink(rgb: NDArray[np.uint8], most_side: int) -> NDArray[np.uint8]:
    """Shrink a picture (height x width x 3) to a longer side of `most_side` pixels; return a smaller one unchanged."""
    longer = max(rgb.shape[:2])
    if longer <= most_side:
        return rgb
    height, width = (max(1, round(side * most_side / longer)) for side in rgb.shape[:2])
    # By area: with linear interpolation, three times as many different pages of text would count as near-duplicates.
    return cast("NDArray[np.uint8]", cv2.resize(rgb, (width, height), interpolation=cv2.INTER_AREA))


def to_gray(rgb: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the luma (ITU-R 601) of a picture, height x width."""
    return cast("NDArray[np.uint8]", cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY))


def to_channels(rgb: NDArray[np.uint8]) -> list[NDArray[np.uint8]]:
    """Return the three channels of a picture, red, green and blue, each copied to an array of height x width."""
    return cast("list[NDArray[np.uint8]]", cv2.split(rgb))
