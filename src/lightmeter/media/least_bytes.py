"""Computes from the first bytes of an image how long the whole file must be at least, to detect truncated files.

Only the pixels count: metadata that follow them may be cut.
"""

from __future__ import annotations

from lightmeter.media.image_repair import WEBP_PIXELS, png_chunks, webp_chunks
from lightmeter.media.media_info import sniff

_BMP_INFO_HEADER_BYTES = 40


def least_bytes(head: bytes) -> int | None:
    """Return the least length in bytes of an image file with all pixels that starts with `head`; None if unknown."""
    match sniff(head):
        case "image", "webp":
            pixels = (start + length for name, start, length in webp_chunks(head) if name in WEBP_PIXELS)
            return max(pixels, default=None)
        case "image", "png":
            return _png_bytes(head)
        case "image", "bmp":
            return _bmp_bytes(head)
    return None


def _png_bytes(head: bytes) -> int:
    """Return the least length in bytes of a PNG file that starts with `head`, by the chunk lengths in `head`."""
    least, has_pixels = 0, False
    for name, start, length in png_chunks(head):
        if name == b"IDAT" or not has_pixels:
            least = start + length
        has_pixels |= name == b"IDAT"
    return least


def _bmp_bytes(head: bytes) -> int | None:
    """Return the least length in bytes of a BMP file that starts with `head`; None if the length cannot be computed.

    That is so if the image is compressed, if its header is of an old, short kind, or if `head` ends within the header.
    """
    if len(head) < 14 + _BMP_INFO_HEADER_BYTES or int.from_bytes(head[14:18], "little") < _BMP_INFO_HEADER_BYTES:
        return None
    if int.from_bytes(head[30:34], "little"):
        return None
    width, height = (int.from_bytes(head[at : at + 4], "little", signed=True) for at in (18, 22))
    row_bytes = (width * int.from_bytes(head[28:30], "little") + 31) // 32 * 4
    return int.from_bytes(head[10:14], "little") + row_bytes * abs(height)
