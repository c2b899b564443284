"""Decodes untrusted images with Pillow.

Format and size are checked in the header before any pixel is decoded. Every exception of Pillow becomes a `MediaError`.
The pixel limit is below the one at which Pillow warns of decompression bombs, so larger images are refused first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from io import BytesIO
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image, _imaging

from lightmeter.errors import BrokenMedia, MediaError, MediaTooLarge
from lightmeter.media.image_colors import GRAY_MODES, to_srgb, with_8_bits
from lightmeter.media.image_file import decode_or_repair, format_name, open_picture
from lightmeter.media.image_frames import count_frames
from lightmeter.media.image_orientation import stored_orientation, turn_upright, upright_size
from lightmeter.media.image_quality import differing_share
from lightmeter.media.image_transforms import InputTransform, apply_transform
from lightmeter.media.media_info import ImageInfo
from lightmeter.media.shrink import shrink

MAX_PIXELS: Final = 50_000_000
"""Most pixels of an image that is decoded (150 MB as RGB); a larger image is refused."""

T = TypeVar("T")

_REDUCIBLE_MODES: Final = frozenset({"L", "LA", "RGB", "RGBA", "CMYK", "YCbCr"})
"""Pillow modes in which a picture can be shrunk before it becomes RGB, which saves two copies of a large picture."""

_SHARP: Final = Image.Resampling.LANCZOS

_SOURCE_SIDE: Final = 1024
"""`load_transformed` first shrinks an image, but keeps this many pixels on its shorter side: 4 times a model input."""

_WEBP_HEADER_BYTES: Final = 30
_WEBP_HAS_EXIF: Final = 0x08

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
    return replace(decode_or_repair(content, _read_info, header_only=True), size_bytes=len(content))


def _read_info(content: bytes) -> ImageInfo:
    with open_picture(content) as picture:
        orientation = stored_orientation(picture, content)
        width, height = upright_size(picture, orientation)
        frames = count_frames(picture, content)
        return ImageInfo(format_name(picture), width, height, frames, len(content), orientation)


def read_size(head: bytes) -> tuple[int, int] | None:
    """Return an image's width and height in pixels, after EXIF orientation; None if its first bytes do not tell."""
    try:
        info = decode_or_repair(head, _read_info, header_only=True)
    except MediaError:
        return _webp_size(head)
    return info.width, info.height


def is_header_broken(head: bytes) -> bool:
    """Whether an image's first bytes prove its header invalid; False if the bytes that follow could make it valid."""
    stream = _HeadStream(head)
    try:
        with open_picture(head, stream):
            return False
    except BrokenMedia:
        return not stream.ran_out and read_size(head) is None
    except MediaError:
        return False


class _HeadStream(BytesIO):
    """Stream of the first bytes of a file; `ran_out` becomes true if a reader asks for more bytes than these."""

    ran_out = False

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self.ran_out |= size is None or size < 0 or len(data) < size
        return data


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

    Only the first frame of an animation, or the first page, is decoded. Greys of 16 bits and more are scaled to 8 bits.
    Colors are converted to sRGB by the embedded color profile. If `max_side` is given, a larger image is shrunk to a
    longest side of `max_side` pixels, which makes JPEG decode much quicker.

    Raises:
        UnsupportedMedia: the format is not supported.
        BrokenMedia: the image does not decode, or is truncated.
        MediaTooLarge: it has more than `MAX_PIXELS`.
    """

    def to_array(picture: Image.Image, rotation: Image.Transpose | None) -> NDArray[np.uint8]:
        if max_side is not None and _can_shrink(picture):
            picture.thumbnail((max_side, max_side), _SHARP)
        flat = to_srgb(picture)
        if max_side is not None:
            flat.thumbnail((max_side, max_side), _SHARP)
        return np.array(flat if rotation is None else flat.transpose(rotation))

    return _decode(content, max_side, to_array)


def load_rgb_and_levels(content: bytes, max_side: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Decode an image to an upright RGB array of at most `max_side` pixels a side, and count its values.

    This is quicker than `load_rgb`, but less sharp. The second result is a histogram of the values in sRGB: for each
    channel (one for a gray picture, else three), a row of 256 numbers. It counts pixels of the original picture, as
    shrinking mixes values. Of a large picture it counts an even sample of at most `max_side` x `max_side` pixels.

    Raises:
        UnsupportedMedia, BrokenMedia, MediaTooLarge: as `load_rgb`.
    """

    def measure(picture: Image.Image, rotation: Image.Transpose | None) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        factor = max(1.0, max(picture.size) / max_side)
        size = max(1, int(picture.width / factor)), max(1, int(picture.height / factor))
        points = to_srgb(picture.resize(size, Image.Resampling.NEAREST))
        levels = np.array(points.histogram()).reshape(3, 256)[: 1 if picture.mode in GRAY_MODES else 3]
        flat = to_srgb(_reduce(picture, max_side) if _can_shrink(picture) else picture)
        upright = flat if rotation is None else flat.transpose(rotation)
        return shrink(np.asarray(_reduce(upright, max_side)), max_side), levels

    return _decode(content, max_side, measure, fits_longer_side=True)


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

    def transform_all(
        picture: Image.Image, rotation: Image.Transpose | None
    ) -> dict[InputTransform, NDArray[np.uint8]]:
        factor = min(picture.size) // _SOURCE_SIDE
        flat = to_srgb(picture.reduce(factor) if factor > 1 and _can_shrink(picture) else picture)
        return {transform: apply_transform(flat, transform, rotation) for transform in transforms}

    return _decode(content, _SOURCE_SIDE, transform_all)


def _decode(
    content: bytes,
    draft_side: int | None,
    use: Callable[[Image.Image, Image.Transpose | None], T],
    *,
    fits_longer_side: bool = False,
) -> T:
    """Decode an image; return `use(picture, rotation)`. The rotation turns it upright; None if it already is upright.

    A large JPEG is decoded at a reduced size, which is faster. Then its shorter side, or with `fits_longer_side` its
    longer side, still has at least `draft_side` pixels. If `draft_side` is None, the image is decoded at full size.
    """

    def decode(file: bytes) -> T:
        with open_picture(file) as picture:
            width, height = picture.size
            if width * height > MAX_PIXELS:
                raise MediaTooLarge(f"The picture has {width} x {height} pixels; the limit is {MAX_PIXELS:,}.")
            rotation = turn_upright(picture, stored_orientation(picture, file))
            if draft_side is not None:
                sides = (width, height) if fits_longer_side else (draft_side, draft_side)
                factor = max(1, max(sides) // draft_side)
                picture.draft(None, (max(1, sides[0] // factor), max(1, sides[1] // factor)))
            picture.load()
            return use(with_8_bits(picture, file), rotation)

    return decode_or_repair(content, decode)


def _can_shrink(picture: Image.Image) -> bool:
    return picture.mode in _REDUCIBLE_MODES and "transparency" not in picture.info


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
