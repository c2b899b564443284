"""Counts the frames of a GIF from its blocks: Pillow takes seconds for a hostile file of many frames."""

from __future__ import annotations

from typing import Final

MAX_COUNTED_FRAMES: Final = 10_000
"""Number of frames at which counting stops, so that a hostile file cannot waste time."""

_EXTENSION, _IMAGE = 0x21, 0x2C
_HAS_COLOR_TABLE = 0x80


def count_gif_frames(content: bytes) -> int:
    """Return the number of frames, 1 to `MAX_COUNTED_FRAMES`; in a truncated file, a cut frame counts.

    The blocks are those of the GIF89a specification, sections 18 to 27.
    """
    position = 13 + _color_table_bytes(content[10:11])
    frames = 0
    while frames < MAX_COUNTED_FRAMES and position < len(content):
        introducer = content[position]
        if introducer == _IMAGE:
            frames += 1
            flags = content[position + 9 : position + 10]
            position = _after_blocks(content, position + 11 + _color_table_bytes(flags))
        elif introducer == _EXTENSION:
            position = _after_blocks(content, position + 2)
        else:  # the trailer, or an invalid block
            break
    return max(1, frames)


def _color_table_bytes(flags: bytes) -> int:
    if not flags or not flags[0] & _HAS_COLOR_TABLE:
        return 0
    return int(3 * 2 ** ((flags[0] & 7) + 1))


def _after_blocks(content: bytes, position: int) -> int:
    """Return the position after a sequence of data sub-blocks and its terminator."""
    while position < len(content) and content[position]:
        position += 1 + content[position]
    return position + 1
