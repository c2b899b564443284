"""Configures the memory allocators of Pillow and glibc, so that memory is reused or returned to the system.

glibc allocates a large block directly from the system (mmap), and returns the block when it is freed. It keeps smaller
freed blocks in arenas, one pool of memory per thread. By default, each freed large block raises the size from which
blocks count as large, so more and more memory stays in the arenas. Measured with damaged images and videos: about
490 MB in use after a thousand of them; with a fixed size, about 90 MB after two thousand.

The system must provide the memory pages of each new large block, which took 6 of the 26 ms for a photo of half a
megapixel. So Pillow allocates images in blocks and reuses some of them. The blocks are large enough for mmap, so that
those that are not kept for reuse return to the system. Smaller blocks kept 300 MB in the arenas.
"""

from __future__ import annotations

import ctypes
from typing import Final

from lightmeter.media.image import configure_block_allocator

MMAP_THRESHOLD_BYTES: Final = 272 * 1024
"""Minimum size of blocks that glibc allocates with mmap; above the 256 KB buffer of a socket read, which is reused."""

TRIM_THRESHOLD_BYTES: Final = 4 * 1024 * 1024
"""Unused memory at the end of an arena that glibc does not return to the system, for the next request bodies."""

PICTURE_BLOCK_BYTES: Final = 320 * 1024
"""Size of Pillow's blocks: `MMAP_THRESHOLD_BYTES` and more than a usual row, because a block contains whole rows."""

REUSED_BLOCKS: Final = 48
"""Free blocks that Pillow stores for reuse: 15 MB, enough for a photo of 12 megapixels decoded at half its size."""

M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
"""Parameters of mallopt(3), from glibc's malloc.h. Setting either also stops their automatic adjustment."""


def configure_allocators() -> bool:
    """Set how Pillow and the C library reuse freed memory; return False if the C library has no such settings."""
    configure_block_allocator(REUSED_BLOCKS, PICTURE_BLOCK_BYTES)
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # macOS, musl and Windows have no mallopt
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES)) and bool(
        mallopt(M_TRIM_THRESHOLD, TRIM_THRESHOLD_BYTES)
    )
