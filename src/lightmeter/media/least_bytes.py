"""Computes from the first bytes of an image how long the whole file must be at least, to detect truncated files."""

from __future__ import annotations

from lightmeter.media.media_info import sniff

_PNG_SIGNATURE_BYTES = 8
_BMP_INFO_HEADER_BYTES = 40


def least_bytes(head: bytes) -> int | None:
    """Return the least length in bytes that an undamaged image file has if it starts with `head`; None if unknown."""
    match sniff(head):
        case "image", "webp":  # RFC 9649, section 2.4; the last byte may be padding
            return 7 + int.from_bytes(head[4:8], "little")
        case "image", "png":
            return _png_bytes(head)
        case "image", "bmp":
            return _bmp_bytes(head)
    return None


def _png_bytes(head: bytes) -> int:
    """Return the least length in bytes of a PNG file that starts with `head`, by the chunk lengths in `head`."""
    position = _PNG_SIGNATURE_BYTES
    while position + 8 <= len(head):
        name = head[position + 4 : position + 8]
        position += 12 + int.from_bytes(head[position : position + 4], "big")
        if name == b"IEND":
            return position
    return position


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
