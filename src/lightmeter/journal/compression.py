"""Raw answers, compressed: the bytes as they came, because they are the only proof of what was paid for."""

from __future__ import annotations

import threading
from typing import Final

import zstandard

__all__ = ["compress", "decompress"]

LEVEL: Final = 3
"""zstd's default: about 6 : 1 on answers of this contract, faster than the disk."""

MAX_BYTES: Final = 256 * 1024 * 1024


class _Kept(threading.local):
    """A compressor and a decompressor for each thread: to make one takes ten times as long as an answer."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=LEVEL)
        self.decompressor = zstandard.ZstdDecompressor()


_KEPT: Final = _Kept()


def compress(answer: bytes) -> bytes:
    """Compress the bytes of an answer."""
    return _KEPT.compressor.compress(answer)


def decompress(packed: bytes) -> bytes:
    """The bytes of the answer, as they came."""
    return _KEPT.decompressor.decompress(packed, max_output_size=MAX_BYTES)
