"""Opens untrusted image files with Pillow, and turns every exception of Pillow into a `MediaError`.

Opening reads the header only; the callers check the number of pixels before they decode any.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from io import BytesIO
from typing import Final, TypeVar

from PIL import Image, UnidentifiedImageError, features

from lightmeter.errors import BrokenMedia, MediaError, MediaTooLarge, UnsupportedMedia
from lightmeter.media.image_frames import has_tiff_page
from lightmeter.media.image_repair import repairs
from lightmeter.media.media_info import IMAGE_FORMATS, MediaKind, sniff

MAX_READS: Final = 100_000
"""Decoding fails after this many reads of an image file. Pillow reads each PNG chunk and JPEG marker by itself:
millions of empty ones would take many seconds. A 20 MB PNG in chunks of 4 KB needs a quarter of the reads."""

MAX_GIF_READS: Final = 10_000
"""`MAX_READS` for GIF files: lower, because Pillow takes quadratic time for the blocks of a comment."""

_FORMAT_NAMES: Final = {"HEIF": "heic", "MPO": "jpeg"}
"""Pillow's name of a format → our name. MPO is a phone's JPEG with a second picture inside (preview, depth map)."""
_PILLOW_FORMATS: Final = {name: "HEIF" if name == "heic" else name.upper() for name in IMAGE_FORMATS}
"""Our name of a format → the one format of Pillow that may open it."""
_UNSUPPORTED: Final = re.compile(
    r"[Uu]nsupported|not (?:been )?(?:built|available|configured|supported)|unknown pixel mode"
)
"""Matches messages of Pillow's, libheif's and libtiff's errors about undamaged files that they do not decode."""
T = TypeVar("T")


def format_name(picture: Image.Image) -> str:
    """Return the format of an opened picture, one of `IMAGE_FORMATS`."""
    return _name(picture.format or "")


def _name(pillow_name: str) -> str:
    return _FORMAT_NAMES.get(pillow_name, pillow_name.lower())


def decode_or_repair(content: bytes, decode: Callable[[bytes], T], *, header_only: bool = False) -> T:
    """Return `decode(content)`. If the file does not decode, do so without its damaged metadata.

    Args:
        content: The image file. With `header_only`, its first bytes are enough.
        decode: Decodes an image file.
        header_only: Whether `decode` reads the header only, so that pixels may be missing.

    Raises:
        UnsupportedMedia, BrokenMedia, MediaTooLarge: what `decode` raised for `content`.
    """
    try:
        return decode(content)
    except (BrokenMedia, UnsupportedMedia):
        for repaired in repairs(content, header_only=header_only):
            with suppress(MediaError):
                return decode(repaired)
        raise


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


@contextmanager
def open_picture(content: bytes, stream: BytesIO | None = None) -> Iterator[Image.Image]:
    """Open an image for a `with` block; every exception that the block raises becomes a `MediaError`.

    Args:
        content: The image file, or its first bytes.
        stream: Reads `content`; None means a stream that limits the number of reads.

    Raises:
        UnsupportedMedia: the format is not supported.
        BrokenMedia: the header is invalid, or the block raised an exception.
        MediaTooLarge: the image has more than about 180 million pixels, or its file too many parts.
    """
    found = sniff(content)
    formats = _formats(content, found)
    try:
        with Image.open(stream or _LimitedReads(content), formats=formats) as picture:
            yield picture
    except MediaError:
        raise
    except UnidentifiedImageError as error:
        raise _header_error(content, formats[0]) from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise MediaTooLarge("The picture has far more pixels than the limit.") from error
    except Exception as error:
        # Pillow's plugins raise many types: OSError, SyntaxError, struct.error, KeyError.
        if _UNSUPPORTED.search(str(error)):
            raise UnsupportedMedia(f"Pictures of this kind are not supported: {error}") from error
        reason = str(error).rstrip(". \n") or type(error).__name__
        raise BrokenMedia(f"The picture does not decode: {reason}.") from error


def _formats(content: bytes, found: tuple[MediaKind, str] | None) -> list[str]:
    """Return the Pillow formats that may open a picture, whose kind and format `sniff` found; register its plugin.

    Raises:
        UnsupportedMedia, BrokenMedia: it is no picture of a supported format.
    """
    if not content:
        raise BrokenMedia("The picture is empty.")
    if found is None:
        raise UnsupportedMedia("Not a picture of a known format.")
    kind, name = found
    if kind == "video":
        raise UnsupportedMedia(f"Not a picture but a video ({name}).")
    if name == "avif" and not features.check("avif"):
        raise UnsupportedMedia("Pictures in avif format are not supported.")
    if name == "heic":
        _register_heic()
    return [_PILLOW_FORMATS[name]]


@cache
def _register_heic() -> None:
    """Let Pillow open HEIC files. Registered at the first of them, because the import takes 20 ms."""
    from pillow_heif import register_heif_opener  # noqa: PLC0415 (see above)

    # Embedded thumbnails, which `draft` would decode instead, need not show the same as the picture.
    register_heif_opener(thumbnails=False, depth_images=False, aux_images=False, decode_threads=1)


def _header_error(content: bytes, name: str) -> MediaError:
    """Return the error for a picture whose header Pillow refuses; it does not say why."""
    if (name == "TIFF" and has_tiff_page(content)) or (name == "HEIF" and _is_heic_track(content)):
        return UnsupportedMedia(f"The picture is damaged, or of a kind of {_name(name)} that is not supported.")
    return BrokenMedia(f"The picture starts like {_name(name)} but its header does not parse.")


def _is_heic_track(content: bytes) -> bool:
    """Whether a HEIC file has a track of pictures, as a video has (box `moov`), but no single picture (box `pitm`)."""
    return b"moov" in content and b"pitm" not in content
