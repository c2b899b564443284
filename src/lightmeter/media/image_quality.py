"""Computes measures of a picture's quality, such as brightness and sharpness, that data-set tools report.

The measures are defined as in CleanVision 0.3.7 (https://github.com/cleanlab/cleanvision, Apache-2.0), but the code is
lightmeter's own. Only `differing_share` and `color_difference` have no counterpart in CleanVision. CleanVision measures
the picture as it is stored; here it is first decoded as RGB and shrunk to at most 256 pixels a side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from lightmeter.media.shrink import to_channels, to_gray

BLANK_LEVELS: Final = 12
"""A channel value (0 to 255) counts as equal to the median if it differs by at most this. Codec noise is smaller."""

_WEIGHTS: Final = (0.241, 0.691, 0.068)
"""Weights of squared red, green and blue in perceived brightness (D. R. Finley, HSP color model, 2006)."""

_BRIGHT_SHARE, _DARK_SHARE = 0.99, 0.05
"""`bright_level` and `dark_level` are the brightness that these fractions of the pixels do not exceed."""
_BRIGHTNESS_GRID: Final = 128
"""Brightness is measured at this many points or more along each side, or at all points of a shorter side."""

_BITS_OF_FULL_INFORMATION: Final = 10.0
"""Entropy in bits at which `information` reaches 1."""
_EDGE_SIDE: Final = 64
"""Longest side, in pixels, of the copy in which edges are measured. CleanVision's thresholds are made for this size."""
_EDGE_SCALE: Final = 100.0
_FEWEST_FLAT_LEVELS: Final = 0.18


@dataclass(frozen=True, slots=True)
class ImageQuality:
    """Measures of a decoded picture, made by `measure_quality`.

    Attributes:
        differing_share: Fraction of pixels, 0 to 1, whose color is not close to the picture's median color.
        bright_level: Brightness that 99 % of the pixels do not exceed, 0 to 1.
        dark_level: Brightness that 5 % of the pixels do not exceed, 0 to 1.
        information: Entropy of the histogram of the stored channels in bits, divided by 10; at most 1.
        sharpness: Strength of edges, 0 (none) to 1; pictures of few gray levels count as sharp.
        color_difference: Largest difference between two color channels of the same pixel, over all pixels, 0 to 255; 0
            in a picture without color.
    """

    differing_share: float
    bright_level: float
    dark_level: float
    information: float
    sharpness: float
    color_difference: int


def measure_quality(rgb: NDArray[np.uint8], levels: NDArray[np.int64] | None = None) -> ImageQuality:
    """Return measures of the quality of a picture.

    Args:
        rgb: The picture, decoded as RGB and usually shrunk: height x width x 3. Measuring takes about a millisecond at
            256 x 256 pixels.
        levels: Histogram of the picture before that, as `load_rgb_and_levels` returns it: a row of 256 counts for each
            channel that is stored, 1 or 3. The measure `information` is computed from it. None means the histogram of
            `rgb`.
    """
    channels = to_channels(rgb)
    histogram = _histogram(channels)
    rows, columns = (max(1, side // _BRIGHTNESS_GRID) for side in rgb.shape[:2])
    dark_level, bright_level = _brightness_levels(rgb[::rows, ::columns])
    return ImageQuality(
        differing_share=_differing_share(rgb, histogram),
        bright_level=bright_level,
        dark_level=dark_level,
        information=_information(histogram if levels is None else levels),
        sharpness=_sharpness(to_gray(rgb)),
        color_difference=_color_difference(channels),
    )


def differing_share(rgb: NDArray[np.uint8]) -> float:
    """Return the share of pixels, 0 to 1, whose color differs from the picture's median color.

    A color differs if one of its channels is more than `BLANK_LEVELS` (of 255) from the median of that channel.
    """
    return _differing_share(rgb, _histogram(to_channels(rgb)))


def _histogram(channels: Sequence[NDArray[np.uint8]]) -> NDArray[np.int64]:
    counts = [cv2.calcHist([channel], [0], None, [256], [0, 256]).ravel() for channel in channels]
    return np.array(counts).astype(np.int64)


def _differing_share(rgb: NDArray[np.uint8], histogram: NDArray[np.int64]) -> float:
    below = histogram.cumsum(axis=1)
    medians = (below < below[:, -1:] / 2).sum(axis=1)
    lowest, highest = (np.clip(medians + change, 0, 255) for change in (-BLANK_LEVELS, BLANK_LEVELS))
    return float(1 - cv2.countNonZero(cv2.inRange(rgb, lowest, highest)) / (rgb.shape[0] * rgb.shape[1]))


def _brightness_levels(rgb: NDArray[np.uint8]) -> tuple[float, float]:
    """Return the perceived brightness, 0 to 1, that 5 % of the pixels do not exceed, and the one that 99 % do not."""
    levels = rgb.astype(np.float32)
    brightness = cv2.transform(levels * levels, np.array([_WEIGHTS], dtype=np.float32)).ravel()
    places = [round(share * (brightness.size - 1)) for share in (_DARK_SHARE, _BRIGHT_SHARE)]
    brightness.partition(places)
    dark, bright = np.sqrt(brightness[places]) / 255
    return float(dark), float(bright)


def _color_difference(channels: Sequence[NDArray[np.uint8]]) -> int:
    red, green, blue = channels
    highest, lowest = np.maximum(np.maximum(red, green), blue), np.minimum(np.minimum(red, green), blue)
    return int((highest - lowest).max())


def _information(histogram: NDArray[np.int64]) -> float:
    """Return the entropy, in bits, of the distribution over all pairs of channel and level, divided by 10; at most 1.

    `histogram` has a row for each channel: the number of pixels of each of the 256 levels.
    """
    shares = histogram[histogram > 0] / histogram.sum()
    return min(1.0, float(-(shares * np.log2(shares)).sum()) / _BITS_OF_FULL_INFORMATION)


def _sharpness(gray: NDArray[np.uint8]) -> float:
    """Return how strong the edges in a gray picture are, 0 to 1, by the standard deviation of an edge filter's result.

    Pictures of few gray levels, such as drawings, get a higher value, because their flat areas are no sign of blur.
    """
    picture = Image.fromarray(gray)
    factor = max(picture.size) / _EDGE_SIDE
    if factor > 1:
        picture = picture.resize((max(1, int(picture.width / factor)), max(1, int(picture.height / factor))))
    _, deviation = cv2.meanStdDev(np.asarray(picture.filter(ImageFilter.FIND_EDGES)))
    strength = 1 - np.exp(-float(deviation[0, 0]) / _EDGE_SCALE)
    flatness = 1 - np.exp(-float(np.std(picture.histogram())) / _EDGE_SCALE)
    return float(min(1.0, strength + (flatness if flatness > _FEWEST_FLAT_LEVELS else 0.0)))
