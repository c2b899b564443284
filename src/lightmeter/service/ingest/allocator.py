"""Memory for pictures: what is used all the time is kept and used again, what is large goes back to the system.

The C library of most Linux systems raises, with each large block that is freed, the size from which it asks the system
for a block of its own; below that it keeps what is freed, in an arena for each thread. Measured with damaged pictures
and videos: about 490 MB in use after a thousand of them; with a fixed size, about 90 MB after two thousand.

A block of its own is paid for page by page, each time anew: of the 26 ms that a photo of half a megapixel took in the
service, 6 went there. So Pillow takes its pictures apart into blocks and keeps some for the next picture: most photos
are then decoded with hardly a fresh page. The blocks themselves are large enough to be the system's, so that those of
a large picture go back to it: smaller ones stayed scattered over the arenas, and kept 300 MB there.
"""

from __future__ import annotations

import ctypes
from typing import Final

from lightmeter.media.image import configure_block_allocator

__all__ = ["keep_small_blocks"]

LARGE_BYTES: Final = 272 * 1024
"""From here on a block is the system's. Above the 256 KB that the event loop asks of a socket, and makes room for, at
each read: that room is used again then."""

SPARE_BYTES: Final = 4 * 1024 * 1024
"""What may lie unused at the end of an arena before it is given back: bodies of requests come and go."""

PICTURE_BLOCK_BYTES: Final = 320 * 1024
"""The last block of a picture is cut to what it needs, and half of it, on average, is paid for again by the next one:
above `LARGE_BYTES` by so much that rows of any usual length leave it there, and no larger."""

KEPT_BLOCKS: Final = 48
"""15 MB: a photo of twelve megapixels, decoded at half its size."""

M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
"""glibc, malloc.h; mallopt(3): setting either also ends their being raised."""


def keep_small_blocks() -> bool:
    """Set this for the process; returns whether its C library knows how."""
    configure_block_allocator(KEPT_BLOCKS, PICTURE_BLOCK_BYTES)
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # macOS, musl, Windows: they do without
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)) and bool(mallopt(M_TRIM_THRESHOLD, SPARE_BYTES))
