"""Names for requests: random, and drawn from the system many at a time.

A call of the system for each would hand the interpreter over to another thread, and wait to get it back.
"""

from __future__ import annotations

import os
from typing import Final

__all__ = ["random_hex"]

DRAWN_BYTES: Final = 4096

_drawn = bytearray()


def random_hex(size_bytes: int) -> str:
    """So many random bytes, fit for secrets, as hexadecimal digits. For the event loop's thread alone."""
    if len(_drawn) < size_bytes:
        _drawn.extend(os.urandom(DRAWN_BYTES))
    taken = _drawn[-size_bytes:].hex()
    del _drawn[-size_bytes:]
    return taken
