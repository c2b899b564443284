"""Raw answers, compressed: the bytes as they came, because they are the only proof of what was paid for."""

from __future__ import annotations

from typing import Final

import zstandard

__all__ = ["pack", "unpack"]

LEVEL: Final = 3
"""zstd's default: about 6 : 1 on answers of this contract, faster than the disk."""

MAX_BYTES: Final = 256 * 1024 * 1024


def pack(answer: bytes) -> bytes:
    """Compress the bytes of an answer."""
    return zstandard.ZstdCompressor(level=LEVEL).compress(answer)


def unpack(packed: bytes) -> bytes:
    """The bytes of the answer, as they came."""
    return zstandard.ZstdDecompressor().decompress(packed, max_output_size=MAX_BYTES)
