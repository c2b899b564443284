"""Pictures from bytes nobody vouches for: the only door to Pillow's decoders.

The limits come before the work: format and size are known from the header, and only then are pixels decoded.
No exception of Pillow's leaves here. Our pixel limit lies below the one from which Pillow warns of decompression
bombs, so whatever it would warn of is refused; `warnings.catch_warnings` is avoided, as it is not safe in threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageCms, UnidentifiedImageError, _imaging, features

from lightmeter.errors import BrokenMedia, MediaError, MediaTooLarge, UnsupportedMedia
from lightmeter.media.gif import MAX_COUNTED_FRAMES, count_gif_frames
from lightmeter.media.media_info import IMAGE_FORMATS, ImageInfo, sniff
from lightmeter.media.model_views import InputTransform, cut

__all__ = [
    "MAX_PIXELS",
    "configure_block_allocator",
    "encode_jpeg",
    "is_blank",
    "load_rgb",
    "load_views",
    "read_image_info",
    "read_size",
    "thumbnail",
]

MAX_PIXELS: Final = 50_000_000
"""Largest picture that is decoded: 150 MB as RGB."""

_READABLE: Final = [name.upper() for name in IMAGE_FORMATS if name != "avif" or features.check("avif")]
_WHITE: Final = (255, 255, 255)
_UPRIGHT: Final = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""EXIF orientation (TIFF 6.0 tag 274) → what makes the picture upright."""
_SIDEWAYS: Final = frozenset({5, 6, 7, 8})

_SHRUNK_FIRST: Final = frozenset({"L", "LA", "RGB", "RGBA", "CMYK", "YCbCr"})
"""Modes that can be shrunk as they are: a large picture then lies in memory once, not three times."""
_BAND_ROWS: Final = 256

_AMPLE_SIDE: Final = 1024
"""Pixels that views are cut from, along the shorter side, of pictures that have more: four times what a model sees."""

_WEBP_HEADER_BYTES: Final = 30
_WEBP_HAS_EXIF: Final = 0x08

_BLANK_LEVELS: Final = 12
_BLANK_SHARE: Final = 0.001
_BLANK_GRID: Final = 256


def read_image_info(content: bytes) -> ImageInfo:
    """Measure a picture from its header, whatever its size, without decoding its pixels.

    Raises:
        UnsupportedMedia: not a format that is read here.
        BrokenMedia: the header does not parse.
        MediaTooLarge: so many pixels that even the header is refused (from about 180 million).
    """
    with _opened(content) as picture:
        width, height = picture.size
        if _orientation(picture) in _SIDEWAYS:
            width, height = height, width
        return ImageInfo(_format(picture), width, height, _frames(picture, content), len(content))


def read_size(beginning: bytes) -> tuple[int, int] | None:
    """Width and height of a picture as it is shown, from the first bytes of its file; None where they do not tell.

    All of the file need not be there: formats say their size at the beginning. Of WebP, whose decoder wants the whole
    file, the header is read here (RFC 9649, sections 2.5 to 2.7); with EXIF data, which stand at its end, its
    orientation is not known, and so neither is its size.
    """
    try:
        with _opened(beginning) as picture:
            width, height = picture.size
            return (height, width) if _orientation(picture) in _SIDEWAYS else (width, height)
    except MediaError:
        return _webp_size(beginning)


def _webp_size(beginning: bytes) -> tuple[int, int] | None:
    if len(beginning) < _WEBP_HEADER_BYTES or beginning[:4] != b"RIFF" or beginning[8:12] != b"WEBP":
        return None
    chunk, body = beginning[12:16], beginning[20:]
    if chunk == b"VP8X" and not body[0] & _WEBP_HAS_EXIF:
        return 1 + int.from_bytes(body[4:7], "little"), 1 + int.from_bytes(body[7:10], "little")
    if chunk == b"VP8 " and body[3:6] == b"\x9d\x01\x2a":
        sides = int.from_bytes(body[6:8], "little") & 0x3FFF, int.from_bytes(body[8:10], "little") & 0x3FFF
        return sides if all(sides) else None
    if chunk == b"VP8L" and body[0] == 0x2F:  # noqa: PLR2004 (its signature)
        bits = int.from_bytes(body[1:5], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    return None


def load_rgb(content: bytes, *, max_pixels: int = MAX_PIXELS, max_side: int | None = None) -> NDArray[np.uint8]:
    """Decode a picture: height x width x 3, red green blue, 0 to 255, upright, transparency on white.

    Of an animation, the first frame. 16-bit greys are scaled to 8 bits; CMYK goes through its colour profile
    where it carries one.

    Args:
        content: The encoded picture.
        max_pixels: Refuse pictures of more; checked before decoding.
        max_side: Shrink so that neither side is longer; much quicker for JPEG than decoding at full size.

    Raises:
        UnsupportedMedia: not a format that is read here.
        BrokenMedia: does not decode, or ends too early.
        MediaTooLarge: more than `max_pixels`.
    """
    with _opened(content) as picture:
        _refuse_more(picture, max_pixels)
        turn = _UPRIGHT.get(_orientation(picture))
        if max_side is not None:
            picture.draft(None, (max_side, max_side))
        picture.load()
        if max_side is not None and picture.mode in _SHRUNK_FIRST and "transparency" not in picture.info:
            picture.thumbnail((max_side, max_side), Image.Resampling.LANCZOS)
        flat = _flatten(picture)
        if max_side is not None:
            flat.thumbnail((max_side, max_side), Image.Resampling.LANCZOS)
        return np.array(flat if turn is None else flat.transpose(turn))


def load_views(
    content: bytes, views: Iterable[InputTransform], *, max_pixels: int = MAX_PIXELS
) -> dict[InputTransform, NDArray[np.uint8]]:
    """Decode a picture once, as `load_rgb` does, and cut views out of it: height x width x 3, not to be written to.

    A large picture is decoded at a fraction of its size, by whole numbers, so that its shorter side keeps at least 1024
    pixels. By how much depends on the picture alone: a view is the same whatever else is cut from it.

    Raises:
        UnsupportedMedia, BrokenMedia, MediaTooLarge: as `load_rgb`.
    """
    with _opened(content) as picture:
        _refuse_more(picture, max_pixels)
        turn = _UPRIGHT.get(_orientation(picture))
        picture.draft(None, (_AMPLE_SIDE, _AMPLE_SIDE))
        picture.load()
        ample: Image.Image = picture
        spare = min(picture.size) // _AMPLE_SIDE
        if spare > 1 and picture.mode in _SHRUNK_FIRST and "transparency" not in picture.info:
            ample = picture.reduce(spare)
        flat = _flatten(ample)
        return {view: cut(flat, view, turn) for view in views}


def _refuse_more(picture: Image.Image, max_pixels: int) -> None:
    width, height = picture.size
    if width * height > max_pixels:
        raise MediaTooLarge(f"The picture has {width} x {height} pixels; the limit is {max_pixels:,}.")


@contextmanager
def _opened(content: bytes) -> Iterator[Image.Image]:
    """Open a picture and translate whatever its decoder raises."""
    try:
        with Image.open(BytesIO(content), formats=_READABLE) as picture:
            yield picture
    except MediaError:
        raise
    except UnidentifiedImageError as error:
        raise _unidentified(content) from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise MediaTooLarge("The picture has far more pixels than any that is read here.") from error
    except Exception as error:
        # Pillow's plugins raise whatever their parsing ran into: OSError, SyntaxError, struct.error, KeyError.
        reason = str(error).rstrip(". ") or type(error).__name__
        raise BrokenMedia(f"The picture does not decode: {reason}.") from error


def _unidentified(content: bytes) -> MediaError:
    found = sniff(content)
    if not content:
        return BrokenMedia("The picture is empty.")
    if found is None:
        return UnsupportedMedia("Not a picture of a known format.")
    kind, name = found
    if kind == "video":
        return UnsupportedMedia(f"Not a picture but a video ({name}).")
    if name.upper() in _READABLE:
        return BrokenMedia(f"The picture starts like {name} but its header does not parse.")
    return UnsupportedMedia(f"Pictures in {name} format are not read here.")


def _format(picture: Image.Image) -> str:
    # A phone's JPEG with a second picture inside (preview, depth map) is opened as MPO: it still is a JPEG.
    name = (picture.format or "").lower()
    return "jpeg" if name == "mpo" else name


def _frames(picture: Image.Image, content: bytes) -> int:
    match picture.format:
        case "GIF":
            return count_gif_frames(content)
        case "MPO":
            return 1
        case _:
            return min(int(getattr(picture, "n_frames", 1)), MAX_COUNTED_FRAMES)


def _orientation(picture: Image.Image) -> int:
    """The EXIF orientation, 1 to 8; 1 when there is none that can be read.

    For PNG only EXIF before the pixels counts: Pillow would decode all of them to look for later ones.
    """
    if picture.format == "PNG" and "exif" not in picture.info:
        return 1
    try:
        value = picture.getexif().get(ExifTags.Base.Orientation, 1)
    except Exception:  # noqa: BLE001 (a broken EXIF block raises anything, and is no reason to refuse the picture)
        return 1
    return value if isinstance(value, int) else 1


def _flatten(picture: Image.Image) -> Image.Image:
    """Any mode → RGB: transparency on white, deep greys scaled, CMYK by its profile."""
    if picture.mode.startswith("I"):
        return _shallow(picture).convert("RGB")
    if picture.has_transparency_data:
        clear = picture.convert("RGBA")
        flat = Image.new("RGB", clear.size, _WHITE)
        flat.paste(clear, mask=clear.getchannel("A"))
        return flat
    if picture.mode == "CMYK":
        return _cmyk(picture)
    return picture if picture.mode == "RGB" else picture.convert("RGB")  # which would copy it


def _shallow(picture: Image.Image) -> Image.Image:
    """16-bit greys as 8 bits, some rows at a time; Pillow's own conversion would clip them, nearly all to white."""
    deep = np.asarray(picture)
    grey = np.empty(deep.shape, np.uint8)
    for row in range(0, len(deep), _BAND_ROWS):
        band = deep[row : row + _BAND_ROWS].astype(np.float32) / 257
        grey[row : row + _BAND_ROWS] = np.clip(np.rint(band), 0, 255)
    return Image.fromarray(grey)


def _cmyk(picture: Image.Image) -> Image.Image:
    profile = picture.info.get("icc_profile")
    if profile:
        try:
            converted = ImageCms.profileToProfile(
                picture, BytesIO(profile), ImageCms.createProfile("sRGB"), outputMode="RGB"
            )
        except (ImageCms.PyCMSError, OSError):
            converted = None  # a profile that does not parse: the plain formula is the next best
        if converted is not None:
            return converted
    return picture.convert("RGB")


def configure_block_allocator(count: int, size_bytes: int) -> None:
    """Have Pillow put pictures into blocks of that size, and keep so many of them for the next picture."""
    _imaging.set_block_size(size_bytes)
    _imaging.set_blocks_max(count)


def encode_jpeg(rgb: NDArray[np.uint8], quality: int = 90) -> bytes:
    """A picture, height x width x 3, as JPEG; `quality` 1 to 95."""
    stream = BytesIO()
    Image.fromarray(rgb).save(stream, "JPEG", quality=quality)
    return stream.getvalue()


def thumbnail(rgb: NDArray[np.uint8], side: int = 160) -> bytes:
    """A small JPEG of a picture, neither side longer than `side` pixels; never enlarged."""
    small = Image.fromarray(rgb)
    small.thumbnail((side, side), Image.Resampling.LANCZOS)
    return encode_jpeg(np.asarray(small), quality=80)


def is_blank(rgb: NDArray[np.uint8]) -> bool:
    """Whether a picture shows nothing: all but one pixel in a thousand within 12 levels of the median colour.

    Wide enough for the noise a codec leaves on black, narrow enough that a line of small print is not blank. Looked at
    on a grid of about 256 x 256 points.
    """
    rows, columns = (max(1, side // _BLANK_GRID) for side in rgb.shape[:2])
    points = rgb[::rows, ::columns].reshape(-1, 3).astype(np.int16)
    away = np.abs(points - np.median(points, axis=0)).max(axis=1) > _BLANK_LEVELS
    return bool(away.mean() <= _BLANK_SHARE)
