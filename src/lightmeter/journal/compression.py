"""Compress and decompress the bytes of answers.

The journal stores each answer in full, as the proof of what was paid.
"""

from __future__ import annotations

import threading
from typing import Final

import zstandard

MAX_BYTES: Final = 256 * 1024 * 1024
"""Largest decompressed size, in bytes, of an answer whose compressed bytes do not state this size.

`compress` always states the size; then there is no limit.
"""


class _ThreadCodecs(threading.local):
    """A zstd compressor and a decompressor for each thread.

    They are kept, because creating one takes ten times as long as a use.
    """

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor()
        self.decompressor = zstandard.ZstdDecompressor()


_CODECS: Final = _ThreadCodecs()


def compress(answer: bytes) -> bytes:
    """Return the bytes of an answer, compressed with zstd."""
    return _CODECS.compressor.compress(answer)


def decompress(compressed: bytes) -> bytes:
    """Return the original bytes of a compressed answer.

    Raises:
        zstandard.ZstdError: the compressed bytes are damaged.
    """
    return _CODECS.decompressor.decompress(compressed, max_output_size=MAX_BYTES)
