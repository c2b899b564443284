"""Random request ids, from random bytes that are read from the system in large chunks.

A system call for each id would release the interpreter lock, and wait to get it back.
"""

from __future__ import annotations

import os
from typing import Final

__all__ = ["random_hex"]

CHUNK_BYTES: Final = 4096

_random_bytes = bytearray()


def random_hex(size_bytes: int) -> str:
    """Return cryptographically random bytes as hexadecimal digits. Not thread-safe: for the event loop only."""
    if len(_random_bytes) < size_bytes:
        _random_bytes.extend(os.urandom(CHUNK_BYTES))
    digits = _random_bytes[-size_bytes:].hex()
    del _random_bytes[-size_bytes:]
    return digits
