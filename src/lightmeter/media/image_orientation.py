"""Finds out how a picture must be turned or mirrored to stand upright.

Sources: EXIF orientation (TIFF 6.0 tag 274), and the same value in XMP metadata, which counts where EXIF has none. HEIC
and AVIF files state it in their container instead, which libheif and Pillow evaluate.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Final

from PIL import ExifTags, Image

from lightmeter.media.image_repair import png_chunks

_UPRIGHT: Final = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""Orientation → transposition that makes the picture upright."""
_SIDEWAYS: Final = frozenset({5, 6, 7, 8})
"""Orientations of pictures that are stored lying on a side: upright, their width and height are swapped."""

_XMP: Final = re.compile(rb"""tiff:Orientation\s*(?:=\s*["']|>)\s*([1-8])\s*["'<]""")
_PNG_PROFILE: Final = "Raw profile type exif"
"""Keyword of the text in which ImageMagick keeps EXIF data in a PNG."""
_PNG_XMP: Final = b"XML:com.adobe.xmp\0\0\0"
"""Start of the chunk iTXt with XMP metadata that are not compressed."""


def stored_orientation(picture: Image.Image, content: bytes) -> int:
    """Return the orientation of an opened picture, 1 to 8; 1 if it states none or an invalid one."""
    if picture.format == "HEIF":  # libheif turns it
        return 1
    exif, xmp = picture.info.get("exif"), picture.info.get("xmp") or b""
    if picture.format == "PNG":
        exif, xmp = _png_metadata(content)
    tags, value = Image.Exif(), None
    with suppress(Exception):  # a broken EXIF block may raise anything; the picture is still usable
        if exif:
            tags.load(exif)
        elif picture.format == "TIFF" or _PNG_PROFILE in picture.info:
            # Not `PngImageFile.getexif`, which decodes all pixels to look behind them.
            tags = Image.Image.getexif(picture)
        value = tags.get(ExifTags.Base.Orientation)
    if isinstance(value, int) and value in {1, *_UPRIGHT}:
        return value
    named = None if picture.format == "AVIF" else _XMP.search(xmp)
    return int(named[1]) if named else 1


def upright_size(picture: Image.Image, orientation: int) -> tuple[int, int]:
    """Return width and height of an opened picture, in pixels, as it is shown."""
    width, height = picture.size
    is_swapped = getattr(picture, "tag_v2", {}).get(ExifTags.Base.Orientation) in _SIDEWAYS
    return (height, width) if (orientation in _SIDEWAYS) != is_swapped else (width, height)


def turn_upright(picture: Image.Image, orientation: int) -> Image.Transpose | None:
    """Return the transposition that makes a decoded picture upright; None if it already is."""
    return None if picture.format == "TIFF" else _UPRIGHT.get(orientation)  # Pillow turns a TIFF when it decodes it


def _png_metadata(content: bytes) -> tuple[bytes | None, bytes]:
    """Return the EXIF data (None if there are none) and the XMP data of a PNG; they may stand after the pixels."""
    exif, xmp = None, b""
    for name, start, length in png_chunks(content):
        if name == b"eXIf":
            exif = b"Exif\0\0" + content[start : start + length]
        elif name == b"iTXt" and content.startswith(_PNG_XMP, start):
            xmp = content[start : start + length]
    return exif, xmp
