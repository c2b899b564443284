"""Tunes the memory allocators of Pillow and glibc, so that memory is reused and returned to the system.

glibc allocates a large block directly from the system (mmap). It raises the size at which it does so with each large
block that is freed, and keeps smaller freed blocks in an arena for each thread. Measured with damaged pictures and
videos: about 490 MB in use after a thousand of them; with a fixed size, about 90 MB after two thousand.

The system must provide the pages of each new large block: 6 of the 26 ms that a photo of half a megapixel took in the
service. So Pillow allocates pictures in blocks and reuses some of them; most photos then need hardly any new page. The
blocks are larger than the mmap size, so that those of a large picture return to the system: smaller blocks stayed
scattered over the arenas and kept 300 MB there.
"""

from __future__ import annotations

import ctypes
from typing import Final

from lightmeter.media.image import configure_block_allocator

__all__ = ["configure_allocators"]

MMAP_THRESHOLD_BYTES: Final = 272 * 1024
"""Blocks of this size are allocated with mmap. It is above the 256 KB buffer of each socket read of the event loop, so
that this buffer is reused."""

TRIM_THRESHOLD_BYTES: Final = 4 * 1024 * 1024
"""Unused memory at the end of an arena that is kept, because request bodies come and go."""

PICTURE_BLOCK_BYTES: Final = 320 * 1024
"""Size of Pillow's blocks. The last block of a picture is cut to size and not reused, so blocks should be small; they
are above `MMAP_THRESHOLD_BYTES` by enough that rows of any usual length still leave them above it."""

REUSED_BLOCKS: Final = 48
"""Blocks that Pillow keeps: 15 MB, enough for a photo of twelve megapixels decoded at half its size."""

M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
"""Parameters in glibc's malloc.h; mallopt(3): setting either also stops their automatic adjustment."""


def configure_allocators() -> bool:
    """Configure the allocators of this process; return whether its C library supports it."""
    configure_block_allocator(REUSED_BLOCKS, PICTURE_BLOCK_BYTES)
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # macOS, musl and Windows have no mallopt
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES)) and bool(
        mallopt(M_TRIM_THRESHOLD, TRIM_THRESHOLD_BYTES)
    )
