"""Counts the frames of animations and the pages of TIFF files, in bounded time: Pillow's counts take quadratic time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

from PIL import Image

MAX_COUNTED_FRAMES: Final = 10_000
"""Counting the frames of an animation stops at this number, so that a hostile file cannot waste time."""

MAX_COUNTED_GIF_BLOCKS: Final = 1_000_000
"""Counting the frames of a GIF stops after this many blocks. A 20 MB file with blocks of full length has 80,000."""

_GIF_EXTENSION, _GIF_IMAGE = 0x21, 0x2C
_GIF_HAS_COLOR_TABLE: Final = 0x80
_BIG_TIFF: Final = 43


def count_frames(picture: Image.Image, content: bytes) -> int:
    """Return the number of frames or pages of an opened picture, 1 to `MAX_COUNTED_FRAMES`."""
    match picture.format:
        case "GIF":
            return count_gif_frames(content)
        case "TIFF":
            return count_tiff_pages(content)
        case "MPO":
            return 1
        case _:
            return min(int(getattr(picture, "n_frames", 1)), MAX_COUNTED_FRAMES)


def count_gif_frames(content: bytes) -> int:
    """Return the number of frames of a GIF, 1 to `MAX_COUNTED_FRAMES`; an incomplete frame at the end counts too.

    This follows GIF89a, sections 18 to 27.
    """
    position = 13 + _gif_color_table_bytes(content[10:11])
    frames = 0
    blocks_left = MAX_COUNTED_GIF_BLOCKS
    while frames < MAX_COUNTED_FRAMES and position < len(content) and blocks_left > 0:
        introducer = content[position]
        if introducer == _GIF_IMAGE:
            frames += 1
            flags = content[position + 9 : position + 10]
            position += 11 + _gif_color_table_bytes(flags)
        elif introducer == _GIF_EXTENSION:
            position += 2
        else:  # the trailer, or an invalid block
            break
        while position < len(content) and content[position] and blocks_left > 0:
            position += 1 + content[position]
            blocks_left -= 1
        position += 1
        blocks_left -= 1
    return max(1, frames)


def _gif_color_table_bytes(flags: bytes) -> int:
    if not flags or not flags[0] & _GIF_HAS_COLOR_TABLE:
        return 0
    return int(3 * 2 ** ((flags[0] & 7) + 1))


def count_tiff_pages(content: bytes) -> int:
    """Return the number of pages of a TIFF, 1 to `MAX_COUNTED_FRAMES`; their list may be cut or form a loop."""
    return max(1, sum(1 for _ in _tiff_pages(content)))


def has_tiff_page(content: bytes) -> bool:
    """Whether the first bytes of a TIFF hold the start of its first page's description."""
    return next(_tiff_pages(content), None) is not None


def _tiff_pages(content: bytes) -> Iterator[int]:
    """Yield the offset of each page's description (TIFF 6.0, section 2; BigTIFF: 64-bit offsets), each only once."""
    order: Literal["little", "big"] = "little" if content.startswith(b"II") else "big"
    is_big = _BIG_TIFF in content[2:4]
    offset_bytes, count_bytes, entry_bytes = (8, 8, 20) if is_big else (4, 2, 12)
    position, seen = offset_bytes, set[int]()
    while len(seen) < MAX_COUNTED_FRAMES:
        page = int.from_bytes(content[position : position + offset_bytes], order)
        if page in seen or not 0 < page < len(content):
            return
        seen.add(page)
        yield page
        position = page + count_bytes + entry_bytes * int.from_bytes(content[page : page + count_bytes], order)
