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

_WEIGHTS: Final = np.array([0.241, 0.691, 0.068], dtype=np.float32)
"""Weights of squared red, green and blue in perceived brightness (D. R. Finley, HSP color model, 2006)."""

_BRIGHT_SHARE, _DARK_SHARE = 0.99, 0.05
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
        information: Entropy of the histogram in bits, divided by 10; at most 1.
        sharpness: Strength of edges, 0 (none) to 1; pictures of few gray levels count as sharp.
        color_difference: Largest difference between two channels of a point, 0 to 255; 0 in a picture without color.
    """

    differing_share: float
    bright_level: float
    dark_level: float
    information: float
    sharpness: float
    color_difference: int


def measure_quality(rgb: NDArray[np.uint8]) -> ImageQuality:
    """Measure a picture, height x width x 3, RGB; about a millisecond at 256 x 256 pixels."""
    picture = Image.fromarray(rgb)
    histogram = np.array(picture.histogram()).reshape(3, 256)
    dark_level, bright_level = _brightness_levels(rgb)
    color_difference = _color_difference(rgb)
    return ImageQuality(
        differing_share=_differing_share(rgb, histogram),
        bright_level=bright_level,
        dark_level=dark_level,
        information=_information(histogram[:1] if color_difference == 0 else histogram),
        sharpness=_sharpness(picture),
        color_difference=color_difference,
    )


def differing_share(rgb: NDArray[np.uint8]) -> float:
    """Return the share of points with a channel more than `BLANK_LEVELS` from the channel's median."""
    return _differing_share(rgb, np.array([np.bincount(rgb[..., k].ravel(), minlength=256) for k in range(3)]))


def _differing_share(rgb: NDArray[np.uint8], histogram: NDArray[np.int64]) -> float:
    below = histogram.cumsum(axis=1)
    medians = (below < below[:, -1:] / 2).sum(axis=1)
    differs = np.abs(np.arange(256) - medians[:, None]) > BLANK_LEVELS
    return float((differs[0][rgb[..., 0]] | differs[1][rgb[..., 1]] | differs[2][rgb[..., 2]]).mean())


def _brightness_levels(rgb: NDArray[np.uint8]) -> tuple[float, float]:
    """Return the perceived brightness, 0 to 1, that 5 % and that 99 % of the points do not exceed."""
    squares = rgb.reshape(-1, 3).astype(np.float32)
    squares *= squares
    brightness = squares @ _WEIGHTS
    places = [round(share * (brightness.size - 1)) for share in (_DARK_SHARE, _BRIGHT_SHARE)]
    brightness.partition(places)
    dark, bright = np.sqrt(brightness[places]) / 255
    return float(dark), float(bright)


def _color_difference(rgb: NDArray[np.uint8]) -> int:
    red, green, blue = rgb[..., 0], rgb[..., 1], rgb[..., 2]
    highest, lowest = np.maximum(np.maximum(red, green), blue), np.minimum(np.minimum(red, green), blue)
    return int((highest - lowest).max())


def _information(histogram: NDArray[np.int64]) -> float:
    """Return the entropy of all levels of all channels together; a picture without color has one channel."""
    shares = histogram[histogram > 0] / histogram.sum()
    return min(1.0, float(-(shares * np.log2(shares)).sum()) / _BITS_OF_FULL_INFORMATION)


def _sharpness(picture: Image.Image) -> float:
    """Return the strength of edges: their standard deviation on a scale of 0 to 1.

    The spread of the histogram is added where it is large, as for drawings: flat areas are no sign of blur there.
    """
    factor = max(picture.size) / _EDGE_SIDE
    if factor > 1:
        picture = picture.resize((max(1, int(picture.width / factor)), max(1, int(picture.height / factor))))
    gray = picture.convert("L")
    edges = np.asarray(gray.filter(ImageFilter.FIND_EDGES), dtype=np.float32)
    strength = 1 - np.exp(-float(edges.std()) / _EDGE_SCALE)
    flatness = 1 - np.exp(-float(np.std(gray.histogram())) / _EDGE_SCALE)
    return float(min(1.0, strength + (flatness if flatness > _FEWEST_FLAT_LEVELS else 0.0)))
