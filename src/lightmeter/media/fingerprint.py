"""Two fingerprints: of the bytes (the same file) and of the look (the same picture, encoded anew)."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray
from PIL import Image

__all__ = ["hamming", "perceptual_hash", "sha256_hex"]

_SIDE = 8


def sha256_hex(content: bytes) -> str:
    """SHA-256 of the bytes, 64 hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def perceptual_hash(rgb: NDArray[np.uint8]) -> int:
    """Difference hash (dHash) of a picture, height x width x 3: 64 bits.

    The picture is shrunk to 9 x 8 greys; each bit says whether a grey is brighter than its left neighbour
    (N. Krawetz, "Kind of Like That", 2013). Scaling, re-encoding and brightness hardly change it.
    """
    grey = Image.fromarray(rgb).convert("L").resize((_SIDE + 1, _SIDE), Image.Resampling.BOX)
    levels = np.asarray(grey, dtype=np.int16)
    bits = np.packbits(levels[:, 1:] > levels[:, :-1])
    return int.from_bytes(bits.tobytes(), "big")


def hamming(a: int, b: int) -> int:
    """In how many bits two hashes differ: up to about 8 of 64 is the same picture, about 32 unrelated."""
    return (a ^ b).bit_count()
