"""Generates random request ids.

Random bytes are read from the operating system in large chunks, because each system call releases Python's global
interpreter lock and waits to get it back.
"""

from __future__ import annotations

import os
from typing import Final

CHUNK_BYTES: Final = 4096

_random_bytes = bytearray()


def random_hex(size_bytes: int) -> str:
    """Return cryptographically secure random bytes as hexadecimal digits.

    Not thread-safe: call it only on the event loop.
    """
    if len(_random_bytes) < size_bytes:
        _random_bytes.extend(os.urandom(CHUNK_BYTES))
    digits = _random_bytes[-size_bytes:].hex()
    del _random_bytes[-size_bytes:]
    return digits
