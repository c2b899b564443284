"""Measures of a picture's quality, such as brightness and sharpness, that data-set tools report.

The definitions of all measures but two are those of CleanVision 0.3.7 (https://github.com/cleanlab/cleanvision,
Apache-2.0); the code is lightmeter's own. CleanVision measures the picture as it is stored. Here it is decoded as RGB
and at most 256 pixels wide and high. `differing_share` and `color_difference` have no counterpart there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

BLANK_LEVELS: Final = 12
"""Largest distance of a channel (0 to 255) from its median that counts as equal; the noise of codecs is below."""

_WEIGHTS: Final = (0.241, 0.691, 0.068)
"""Weights of squared red, green and blue in perceived brightness (D. R. Finley, HSP color model, 2006)."""

_BRIGHT_SHARE, _DARK_SHARE = 0.99, 0.05
_BRIGHTNESS_GRID: Final = 128
"""Least points along each side in which brightness is measured, where the picture has so many."""

_BITS_OF_FULL_INFORMATION: Final = 10.0
_EDGE_SIDE: Final = 64
"""Longest side, in pixels, of the copy in which edges are measured: CleanVision's thresholds are made for this size."""
_EDGE_SCALE: Final = 100.0
_FEWEST_FLAT_LEVELS: Final = 0.18


@dataclass(frozen=True, slots=True)
class ImageQuality:
    """Measures of a decoded picture; `measure_quality` makes them.

    Attributes:
        differing_share: Share of points whose color is not the picture's median color.
        bright_level: Brightness that 99 % of the points do not exceed, 0 to 1.
        dark_level: Brightness that 5 % of the points do not exceed, 0 to 1.
        information: Entropy of the histogram of the stored channels in bits, divided by 10; at most 1.
        sharpness: Strength of edges, 0 (none) to 1; pictures of few gray levels count as sharp.
        color_difference: Largest difference between two channels of a point, 0 to 255; 0 in a picture without color.
    """

    differing_share: float
    bright_level: float
    dark_level: float
    information: float
    sharpness: float
    color_difference: int


def measure_quality(rgb: NDArray[np.uint8], levels: NDArray[np.int64] | None = None) -> ImageQuality:
    """Measure a picture.

    Args:
        rgb: The picture, height x width x 3; the measures take about a millisecond at 256 x 256 pixels.
        levels: Histogram of the stored picture, 256 numbers for each channel; None means that of `rgb`.
    """
    picture = Image.fromarray(rgb)
    channels = np.moveaxis(rgb, 2, 0).copy()
    histogram = np.array(picture.histogram()).reshape(3, 256)
    rows, columns = (max(1, side // _BRIGHTNESS_GRID) for side in rgb.shape[:2])
    dark_level, bright_level = _brightness_levels(channels[:, ::rows, ::columns])
    return ImageQuality(
        differing_share=_differing_share(channels, histogram),
        bright_level=bright_level,
        dark_level=dark_level,
        information=_information(histogram if levels is None else levels),
        sharpness=_sharpness(picture),
        color_difference=_color_difference(channels),
    )


def differing_share(rgb: NDArray[np.uint8]) -> float:
    """Return the share of points with a channel more than `BLANK_LEVELS` from the channel's median."""
    channels = np.moveaxis(rgb, 2, 0).copy()
    return _differing_share(channels, np.array([np.bincount(channel.ravel(), minlength=256) for channel in channels]))


def _differing_share(channels: NDArray[np.uint8], histogram: NDArray[np.int64]) -> float:
    below = histogram.cumsum(axis=1)
    differs = np.zeros(channels.shape[1:], dtype=np.bool_)
    for channel, median in zip(channels, (below < below[:, -1:] / 2).sum(axis=1), strict=True):
        differs |= channel > min(median + BLANK_LEVELS, 255)
        differs |= channel < max(median - BLANK_LEVELS, 0)
    return float(differs.mean())


def _brightness_levels(channels: NDArray[np.uint8]) -> tuple[float, float]:
    """Return the perceived brightness, 0 to 1, that 5 % and that 99 % of the points do not exceed."""
    brightness = np.zeros(channels[0].size, dtype=np.float32)
    for channel, weight in zip(channels, _WEIGHTS, strict=True):
        level = channel.ravel().astype(np.float32)
        level *= level
        level *= weight
        brightness += level
    places = [round(share * (brightness.size - 1)) for share in (_DARK_SHARE, _BRIGHT_SHARE)]
    brightness.partition(places)
    dark, bright = np.sqrt(brightness[places]) / 255
    return float(dark), float(bright)


def _color_difference(channels: NDArray[np.uint8]) -> int:
    red, green, blue = channels
    highest, lowest = np.maximum(np.maximum(red, green), blue), np.minimum(np.minimum(red, green), blue)
    return int((highest - lowest).max())


def _information(histogram: NDArray[np.int64]) -> float:
    """Return the entropy of all levels of all channels together, divided by 10 bits; at most 1."""
    shares = histogram[histogram > 0] / histogram.sum()
    return min(1.0, float(-(shares * np.log2(shares)).sum()) / _BITS_OF_FULL_INFORMATION)


def _sharpness(picture: Image.Image) -> float:
    """Return the strength of edges: their standard deviation on a scale of 0 to 1.

    The spread of the histogram is added where it is large, as for drawings: flat areas are no sign of blur there.
    """
    factor = max(picture.size) / _EDGE_SIDE
    gray = picture.convert("L")
    if factor > 1:
        gray = gray.resize((max(1, int(picture.width / factor)), max(1, int(picture.height / factor))))
    edges = np.asarray(gray.filter(ImageFilter.FIND_EDGES), dtype=np.float32)
    strength = 1 - np.exp(-float(edges.std()) / _EDGE_SCALE)
    flatness = 1 - np.exp(-float(np.std(gray.histogram())) / _EDGE_SCALE)
    return float(min(1.0, strength + (flatness if flatness > _FEWEST_FLAT_LEVELS else 0.0)))
