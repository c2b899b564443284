"""Perceptual hash of pictures: the 64-bit hashes of similar pictures differ in few bits.

Source: the DCT-based hash of C. Zauner, "Implementation and Benchmarking of Perceptual Image Hash Functions", 2010,
section 3.2.1. The gray picture is reduced to 32 x 32 pixels. Each bit belongs to one of the 8 x 8 lowest frequencies.
It is 1 if the coefficient of that frequency is above the median of all 64.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from lightmeter.media.shrink import to_gray

_SIDE: Final = 32
_LOW: Final = 8

_PLACES: Final = (np.arange(_SIDE) + 0.5) * np.pi / _SIDE
_DCT: Final = np.cos(np.arange(_LOW)[:, None] * _PLACES[None, :]).astype(np.float32)
"""Lowest 8 rows of the discrete cosine transform (DCT-II) of 32 values, not normalized."""


def perceptual_hash(rgb: NDArray[np.uint8]) -> int:
    """Return the hash of a picture (height x width x 3, RGB): a number of 64 bits."""
    gray = Image.fromarray(to_gray(rgb)).resize((_SIDE, _SIDE), Image.Resampling.LANCZOS, reducing_gap=2.0)
    low = (_DCT @ np.asarray(gray, dtype=np.float32) @ _DCT.T).ravel()
    return int.from_bytes(np.packbits(low > np.median(low)).tobytes(), "big")
