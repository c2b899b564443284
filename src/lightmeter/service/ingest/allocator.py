"""Configures the memory allocators of Pillow and glibc, so that memory is reused or returned to the system.

glibc allocates a large block directly from the system (mmap), and returns the block to the system when it is freed.
When a small block is freed, glibc keeps its memory in an arena, a pool of memory for a thread. By default, the limit
between small and large blocks is not fixed: it rises when a large block is freed. So more and more memory stays in the
arenas. Measured with damaged images and videos: about 490 MB were in use after a thousand of them. With a fixed limit,
about 90 MB were in use after two thousand.

A new large block costs time, because the system must provide its memory pages: 6 of the 26 ms for a photo of half a
megapixel. So Pillow allocates images in blocks, and keeps some free blocks for reuse. Its blocks are large enough for
mmap, so that all other free blocks return to the system. Smaller blocks kept 300 MB in the arenas.
"""

from __future__ import annotations

import ctypes
from typing import Final

from lightmeter.media.image import configure_block_allocator

MMAP_THRESHOLD_BYTES: Final = 272 * 1024
"""Minimum size of a block that glibc allocates with mmap.

It is larger than the 256 KB buffer of a socket read. So the memory of this buffer stays in an arena, and is reused.
"""

TRIM_THRESHOLD_BYTES: Final = 4 * 1024 * 1024
"""If more than this is unused at the end of an arena, glibc returns this memory to the system.

Up to this size, glibc keeps unused memory, for the next request bodies.
"""

PICTURE_BLOCK_BYTES: Final = 320 * 1024
"""Maximum size of the memory blocks in which Pillow stores an image.

Pillow puts only whole rows of pixels into a block, so a block may be smaller by almost a row. With a usual row, it is
still larger than `MMAP_THRESHOLD_BYTES`.
"""

REUSED_BLOCKS: Final = 48
"""Maximum number of free blocks that Pillow keeps for reuse.

48 blocks are 15 MB, which is enough for a photo of 12 megapixels decoded at half its size.
"""

M_TRIM_THRESHOLD: Final = -1
"""Number of mallopt(3)'s parameter that sets `TRIM_THRESHOLD_BYTES`, from glibc's malloc.h.

Setting this parameter or `M_MMAP_THRESHOLD` also stops the automatic adjustment of both.
"""

M_MMAP_THRESHOLD: Final = -3
"""Number of mallopt(3)'s parameter that sets `MMAP_THRESHOLD_BYTES`, from glibc's malloc.h."""


def configure_allocators() -> bool:
    """Set how Pillow and the C library reuse freed memory.

    Return whether the settings of the C library were made. macOS, musl and Windows have no such settings.
    """
    configure_block_allocator(REUSED_BLOCKS, PICTURE_BLOCK_BYTES)
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # macOS, musl and Windows have no mallopt
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES)) and bool(
        mallopt(M_TRIM_THRESHOLD, TRIM_THRESHOLD_BYTES)
    )
