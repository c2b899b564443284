"""Compress and decompress the bytes of answers.

The journal stores each answer in full, as the proof of what was paid.
"""

from __future__ import annotations

import threading
from typing import Final

import zstandard

from lightmeter.errors import JournalError

MAX_BYTES: Final = 256 * 1024 * 1024
"""Largest decompressed size of an answer, in bytes. The client accepts answers of at most a quarter of that."""


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
    """Return the original bytes of an answer that `compress` has compressed.

    Raises:
        JournalError: the compressed bytes are damaged, or they state a size above `MAX_BYTES`.
    """
    try:
        size = zstandard.frame_content_size(compressed)
        if not 0 <= size <= MAX_BYTES:  # -1 means that the size is not stated
            raise JournalError("A stored answer is damaged: it does not state its size or states an impossible one.")
        return _CODECS.decompressor.decompress(compressed)
    except zstandard.ZstdError as error:
        raise JournalError(f"A stored answer is damaged: {error}.") from error
