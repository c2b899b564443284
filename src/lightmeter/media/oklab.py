"""Conversion from sRGB to Oklab, a color space in which equal distances look about equally different. No I/O.

Source: Björn Ottosson, "A perceptual color space for image processing", 2020 (bottosson.github.io/posts/oklab). The
transfer function is sRGB's (IEC 61966-2-1).
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]

ENCODED_KNEE: Final = 0.04045
"""sRGB value, 0 to 1, at which the transfer function of sRGB changes from a line to a power."""

RGB_TO_LMS: Final = (
    (0.4122214708, 0.5363325363, 0.0514459929),
    (0.2119034982, 0.6806995451, 0.1073969566),
    (0.0883024619, 0.2817188376, 0.6299787005),
)
"""Matrix that converts linear sRGB to the responses of the eye's three kinds of cones (long, medium, short waves)."""

LMS_TO_OKLAB: Final = (
    (0.2104542553, 0.7936177850, -0.0040720468),
    (1.9779984951, -2.4285922050, 0.4505937099),
    (0.0259040371, 0.7827717662, -0.8086757660),
)
"""Matrix that converts cube roots of cone responses to Oklab: lightness, a (green to red), b (blue to yellow)."""

_TO_LMS: Final = np.array(RGB_TO_LMS)
_TO_LAB: Final = np.array(LMS_TO_OKLAB)


def srgb_to_linear(srgb: Floats) -> Floats:
    """Convert sRGB values, 0 to 1, to linear light, 0 to 1; this inverts sRGB's transfer function."""
    return np.where(srgb <= ENCODED_KNEE, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)


def srgb_to_oklab(srgb: Floats) -> Floats:
    """Convert `(n, 3)` sRGB values, 0 to 1, to Oklab: lightness is 0 to 1, a and b are about -0.3 to 0.3."""
    lab: Floats = np.cbrt(srgb_to_linear(srgb) @ _TO_LMS.T) @ _TO_LAB.T
    return lab
