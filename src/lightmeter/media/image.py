"""Decodes untrusted images with Pillow.

Format and size are checked in the header before any pixel is decoded. Every exception of Pillow becomes a `MediaError`.
The pixel limit is below the one at which Pillow warns of decompression bombs, so larger images are refused first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from io import BytesIO
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageCms, UnidentifiedImageError, _imaging, features

from lightmeter.errors import BrokenMedia, MediaError, MediaTooLarge, UnsupportedMedia
from lightmeter.media.image_quality import differing_share
from lightmeter.media.image_transforms import InputTransform, apply_transform
from lightmeter.media.media_info import IMAGE_FORMATS, ImageInfo, sniff
from lightmeter.media.shrink import shrink

MAX_PIXELS: Final = 50_000_000
"""Most pixels of an image that is decoded (150 MB as RGB); a larger image is refused."""

MAX_COUNTED_FRAMES: Final = 10_000
"""Counting the frames of an animation stops at this number, so that a hostile file cannot waste time."""

MAX_READS: Final = 100_000
"""Decoding fails after this many reads of an image file. Pillow reads each PNG chunk and JPEG marker by itself:
millions of empty ones would take many seconds. A 20 MB PNG in chunks of 4 KB needs a quarter of the reads."""

MAX_GIF_READS: Final = 10_000
"""`MAX_READS` for GIF files: lower, because Pillow takes quadratic time for the blocks of a comment."""

MAX_COUNTED_GIF_BLOCKS: Final = 1_000_000
"""Counting the frames of a GIF stops after this many blocks. A 20 MB file with blocks of full length has 80,000."""

_DECODABLE_FORMATS: Final = [name.upper() for name in IMAGE_FORMATS if name != "avif" or features.check("avif")]
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
"""EXIF orientation (TIFF 6.0 tag 274) → transposition that makes the picture upright."""
_SIDEWAYS: Final = frozenset({5, 6, 7, 8})
"""EXIF orientations of pictures that are stored lying on a side: upright, their width and height are swapped."""

_REDUCIBLE_MODES: Final = frozenset({"L", "LA", "RGB", "RGBA", "CMYK", "YCbCr"})
"""Pillow modes in which a picture can be shrunk before it becomes RGB, which saves two copies of a large picture."""

_GRAY_MODES: Final = frozenset({"1", "L", "LA", "I", "I;16", "I;16B", "I;16L", "I;16N"})
"""Pillow modes of pictures that are stored without color."""

_BAND_ROWS: Final = 256
"""Number of rows of a 16-bit picture that are converted to 8 bits at a time, which bounds the memory."""

_SHARP: Final = Image.Resampling.LANCZOS

_SOURCE_SIDE: Final = 1024
"""`load_transformed` first shrinks an image, but keeps this many pixels on its shorter side: 4 times a model input."""

_WEBP_HEADER_BYTES: Final = 30
_WEBP_HAS_EXIF: Final = 0x08
_GIF_EXTENSION, _GIF_IMAGE = 0x21, 0x2C
_GIF_HAS_COLOR_TABLE: Final = 0x80

_MAX_DIFFERING_SHARE: Final = 0.001
"""An image is blank if at most this fraction of its points differ from the median color. Small print exceeds it."""
_BLANK_GRID: Final = 256
"""`is_blank` compares at least this many points along each side, or all points of a shorter side."""


def read_image_info(content: bytes) -> ImageInfo:
    """Return the metadata of an image from its header, without decoding its pixels.

    Raises:
        UnsupportedMedia: the format is not supported.
        BrokenMedia: the header is invalid.
        MediaTooLarge: the image has more than about 180 million pixels, for which Pillow refuses even the header.
    """
    with _open_picture(content) as picture:
        # Pillow opens a phone's JPEG with a second picture inside (preview, depth map) as MPO.
        name = "jpeg" if picture.format == "MPO" else (picture.format or "").lower()
        size = _upright_size(picture)
        return ImageInfo(name, *size, _frames(picture, content), len(content), _orientation(picture))


def read_size(head: bytes) -> tuple[int, int] | None:
    """Return an image's width and height in pixels, after EXIF orientation; None if its first bytes do not tell."""
    try:
        with _open_picture(head) as picture:
            return _upright_size(picture)
    except MediaError:
        return _webp_size(head)


def is_header_broken(head: bytes) -> bool:
    """Whether an image's first bytes prove its header invalid; False if the bytes that follow could make it valid."""
    stream = _HeadStream(head)
    try:
        with _open_stream(stream, head):
            return False
    except BrokenMedia:
        return not stream.ran_out
    except MediaError:
        return False


class _HeadStream(BytesIO):
    """Stream of the first bytes of a file; `ran_out` becomes true if a reader asks for more bytes than these."""

    ran_out = False

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self.ran_out |= size is None or size < 0 or len(data) < size
        return data


def _upright_size(picture: Image.Image) -> tuple[int, int]:
    width, height = picture.size
    return (height, width) if _orientation(picture) in _SIDEWAYS else (width, height)


def _webp_size(head: bytes) -> tuple[int, int] | None:
    """Return width and height from the header of a WebP file (RFC 9649, sections 2.5 to 2.7); None if it has no size.

    Also return None if the file has EXIF data: they are at its end, and may swap width and height.
    """
    if len(head) < _WEBP_HEADER_BYTES or head[:4] != b"RIFF" or head[8:12] != b"WEBP":
        return None
    chunk, body = head[12:16], head[20:]
    if chunk == b"VP8X" and not body[0] & _WEBP_HAS_EXIF:
        return 1 + int.from_bytes(body[4:7], "little"), 1 + int.from_bytes(body[7:10], "little")
    if chunk == b"VP8 " and body[3:6] == b"\x9d\x01\x2a":
        sides = int.from_bytes(body[6:8], "little") & 0x3FFF, int.from_bytes(body[8:10], "little") & 0x3FFF
        return sides if all(sides) else None
    if chunk == b"VP8L" and body[0] == 0x2F:  # noqa: PLR2004 (signature byte)
        bits = int.from_bytes(body[1:5], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    return None


def load_rgb(content: bytes, *, max_side: int | None = None) -> NDArray[np.uint8]:
    """Decode an image to an array, height x width x 3: RGB, 0 to 255, upright, transparent parts white.

    Only the first frame of an animation is decoded. 16-bit greys are scaled to 8 bits. CMYK is converted by its
    embedded color profile, if it has one. If `max_side` is given, a larger image is shrunk to a longest side of
    `max_side` pixels, which makes JPEG decode much quicker.

    Raises:
        UnsupportedMedia: the format is not supported.
        BrokenMedia: the image does not decode, or is truncated.
        MediaTooLarge: it has more than `MAX_PIXELS`.
    """
    with _load_picture(content, max_side) as (picture, rotation):
        if max_side is not None and _can_shrink(picture):
            picture.thumbnail((max_side, max_side), _SHARP)
        flat = _flatten(picture)
        if max_side is not None:
            flat.thumbnail((max_side, max_side), _SHARP)
        return np.array(flat if rotation is None else flat.transpose(rotation))


def load_rgb_and_levels(content: bytes, max_side: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Decode an image to an upright RGB array of at most `max_side` pixels a side, and count its stored values.

    This is quicker than `load_rgb`, but less sharp. The second result is a histogram of the stored values: for each
    channel (one for a gray picture, else three), a row of 256 numbers. It counts pixels of the original picture, as
    shrinking mixes values. Of a large picture it counts an even sample of at most `max_side` x `max_side` pixels.

    Raises:
        UnsupportedMedia, BrokenMedia, MediaTooLarge: as `load_rgb`.
    """
    with _load_picture(content, max_side, fits_longer_side=True) as (picture, rotation):
        factor = max(1.0, max(picture.size) / max_side)
        size = max(1, int(picture.width / factor)), max(1, int(picture.height / factor))
        points = _flatten(picture.resize(size, Image.Resampling.NEAREST))
        levels = np.array(points.histogram()).reshape(3, 256)[: 1 if picture.mode in _GRAY_MODES else 3]
        flat = _flatten(_reduce(picture, max_side) if _can_shrink(picture) else picture)
        upright = flat if rotation is None else flat.transpose(rotation)
        return shrink(np.asarray(_reduce(upright, max_side)), max_side), levels


def _reduce(picture: Image.Image, least_side: int) -> Image.Image:
    """Return a picture shrunk by the largest integer factor that leaves its longer side `least_side` or more pixels."""
    factor = max(picture.size) // least_side
    return picture.reduce(factor) if factor > 1 else picture


def load_transformed(content: bytes, transforms: Iterable[InputTransform]) -> dict[InputTransform, NDArray[np.uint8]]:
    """Decode an image once, as `load_rgb` does, and apply all `transforms`; return transform → read-only array.

    A large image is first shrunk by an integer factor. The factor depends only on the image, so the result of one
    transform does not depend on the other `transforms`.

    Raises:
        UnsupportedMedia, BrokenMedia, MediaTooLarge: as `load_rgb`.
    """
    with _load_picture(content, _SOURCE_SIDE) as (picture, rotation):
        factor = min(picture.size) // _SOURCE_SIDE
        flat = _flatten(picture.reduce(factor) if factor > 1 and _can_shrink(picture) else picture)
        return {transform: apply_transform(flat, transform, rotation) for transform in transforms}


@contextmanager
def _load_picture(
    content: bytes, draft_side: int | None, *, fits_longer_side: bool = False
) -> Iterator[tuple[Image.Image, Image.Transpose | None]]:
    """Decode an image; yield it and the rotation that turns it upright (None if it already is upright).

    A large JPEG is decoded at a reduced size, which is faster. Then its shorter side, or with `fits_longer_side` its
    longer side, still has at least `draft_side` pixels. If `draft_side` is None, the image is decoded at full size.
    """
    with _open_picture(content) as picture:
        width, height = picture.size
        if width * height > MAX_PIXELS:
            raise MediaTooLarge(f"The picture has {width} x {height} pixels; the limit is {MAX_PIXELS:,}.")
        rotation = _UPRIGHT.get(_orientation(picture))
        if draft_side is not None:
            sides = (width, height) if fits_longer_side else (draft_side, draft_side)
            factor = max(1, max(sides) // draft_side)
            picture.draft(None, (max(1, sides[0] // factor), max(1, sides[1] // factor)))
        picture.load()
        yield picture, rotation


def _can_shrink(picture: Image.Image) -> bool:
    return picture.mode in _REDUCIBLE_MODES and "transparency" not in picture.info


class _LimitedReads(BytesIO):
    """File in memory that raises MediaTooLarge after `MAX_READS` reads (for GIF, `MAX_GIF_READS`)."""

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self._reads_left = MAX_GIF_READS if content.startswith(b"GIF") else MAX_READS

    def read(self, size: int | None = -1, /) -> bytes:
        self._reads_left -= 1
        if self._reads_left < 0:
            raise MediaTooLarge("The picture's file consists of too many parts, such as chunks, markers or comments.")
        return super().read(size)


def _open_picture(content: bytes) -> AbstractContextManager[Image.Image]:
    """Open an image for a `with` block; every exception that the block raises becomes a `MediaError`."""
    return _open_stream(_LimitedReads(content), content)


@contextmanager
def _open_stream(stream: BytesIO, content: bytes) -> Iterator[Image.Image]:
    try:
        with Image.open(stream, formats=_DECODABLE_FORMATS) as picture:
            yield picture
    except MediaError:
        raise
    except UnidentifiedImageError as error:
        raise _unidentified_error(content) from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise MediaTooLarge("The picture has far more pixels than the limit.") from error
    except Exception as error:
        # Pillow's plugins raise many types: OSError, SyntaxError, struct.error, KeyError.
        reason = str(error).rstrip(". ") or type(error).__name__
        raise BrokenMedia(f"The picture does not decode: {reason}.") from error


def _unidentified_error(content: bytes) -> MediaError:
    found = sniff(content)
    if not content:
        return BrokenMedia("The picture is empty.")
    if found is None:
        return UnsupportedMedia("Not a picture of a known format.")
    kind, name = found
    if kind == "video":
        return UnsupportedMedia(f"Not a picture but a video ({name}).")
    if name.upper() in _DECODABLE_FORMATS:
        return BrokenMedia(f"The picture starts like {name} but its header does not parse.")
    return UnsupportedMedia(f"Pictures in {name} format are not supported.")


def _frames(picture: Image.Image, content: bytes) -> int:
    match picture.format:
        case "GIF":
            return count_gif_frames(content)
        case "MPO":
            return 1
        case _:
            return min(int(getattr(picture, "n_frames", 1)), MAX_COUNTED_FRAMES)


def count_gif_frames(content: bytes) -> int:
    """Return the number of frames of a GIF, 1 to `MAX_COUNTED_FRAMES`; an incomplete frame at the end counts too.

    This follows GIF89a, sections 18 to 27. It replaces Pillow's count, which takes seconds for a hostile file.
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


def _orientation(picture: Image.Image) -> int:
    """Return the EXIF orientation, 1 to 8; 1 if the picture states none.

    In PNG files, EXIF data after the pixels are ignored, because Pillow would decode all pixels to reach them.
    """
    if picture.format == "PNG" and "exif" not in picture.info:
        return 1
    try:
        value = picture.getexif().get(ExifTags.Base.Orientation, 1)
    except Exception:  # noqa: BLE001 (a broken EXIF block may raise anything; the picture is still usable)
        return 1
    return value if isinstance(value, int) else 1


def _flatten(picture: Image.Image) -> Image.Image:
    """Convert an image of any mode to RGB: transparent parts white, 16-bit greys scaled, CMYK by its color profile."""
    if picture.mode.startswith("I"):
        return _scale_to_8_bits(picture).convert("RGB")
    if picture.has_transparency_data:
        clear = picture.convert("RGBA")
        flat = Image.new("RGB", clear.size, _WHITE)
        flat.paste(clear, mask=clear.getchannel("A"))
        return flat
    if picture.mode == "CMYK":
        return _cmyk_to_rgb(picture)
    return picture if picture.mode == "RGB" else picture.convert("RGB")  # convert would copy


def _scale_to_8_bits(picture: Image.Image) -> Image.Image:
    """Scale 16-bit greys to 8 bits, some rows at a time; Pillow's conversion would clip nearly all of them to white."""
    deep = np.asarray(picture)
    grey = np.empty(deep.shape, np.uint8)
    for row in range(0, len(deep), _BAND_ROWS):
        band = deep[row : row + _BAND_ROWS].astype(np.float32) / 257
        grey[row : row + _BAND_ROWS] = np.clip(np.rint(band), 0, 255)
    return Image.fromarray(grey)


def _cmyk_to_rgb(picture: Image.Image) -> Image.Image:
    profile = picture.info.get("icc_profile")
    if profile:
        with suppress(ImageCms.PyCMSError, OSError):  # an invalid profile: use the plain formula
            srgb = ImageCms.createProfile("sRGB")
            if converted := ImageCms.profileToProfile(picture, BytesIO(profile), srgb, outputMode="RGB"):
                return converted
    return picture.convert("RGB")


def configure_block_allocator(count: int, size_bytes: int) -> None:
    """Let Pillow's memory allocator keep up to `count` free blocks of `size_bytes` for reuse."""
    _imaging.set_block_size(size_bytes)
    _imaging.set_blocks_max(count)


def encode_jpeg(rgb: NDArray[np.uint8], quality: int = 90) -> bytes:
    """Return an image, an array of height x width x 3, as JPEG; `quality` is 1 to 95."""
    stream = BytesIO()
    Image.fromarray(rgb).save(stream, "JPEG", quality=quality)
    return stream.getvalue()


def thumbnail(rgb: NDArray[np.uint8], side: int = 160) -> bytes:
    """Return an image as a JPEG whose longest side is at most `side` pixels; a smaller image is not enlarged."""
    return encode_jpeg(shrink(rgb, side), quality=80)


def is_blank(rgb: NDArray[np.uint8]) -> bool:
    """Whether an image is blank: 99.9 % of its points differ from the median color by at most 12 of 255 levels."""
    rows, columns = (max(1, side // _BLANK_GRID) for side in rgb.shape[:2])
    return differing_share(rgb[::rows, ::columns]) <= _MAX_DIFFERING_SHARE
