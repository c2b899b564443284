"""What is known of media without decoding: its kind from its name or first bytes, and its measures."""

from __future__ import annotations

from dataclasses import dataclass
from posixpath import splitext
from typing import Final, Literal, TypeAlias

from lightmeter.models.vocabulary import IMAGE_SUFFIXES, MORE_VIDEO_SUFFIXES, VIDEO_SUFFIXES

__all__ = [
    "IMAGE_FORMATS",
    "SNIFF_BYTES",
    "VIDEO_FORMATS",
    "ImageInfo",
    "MediaKind",
    "VideoInfo",
    "kind_from_name",
    "sniff",
]

MediaKind: TypeAlias = Literal["image", "video"]

IMAGE_FORMATS: Final = ("jpeg", "png", "gif", "webp", "bmp", "avif")
"""Picture formats that are read here; `sniff` names some more, so that a refusal can say what it met."""

VIDEO_FORMATS: Final = ("mp4", "webm", "mov", "mkv", "avi")
"""Video containers the service takes."""

SNIFF_BYTES: Final = 64
"""How many first bytes `sniff` wants; fewer may leave a container unrecognised."""

_IMAGE_MAGIC: Final = (
    (b"\xff\xd8\xff", "jpeg"),
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"GIF87a", "gif"),
    (b"GIF89a", "gif"),
    (b"II*\x00", "tiff"),
    (b"MM\x00*", "tiff"),
)
_RIFF_FORMS: Final[dict[bytes, tuple[MediaKind, str]]] = {
    b"WEBP": ("image", "webp"),
    b"AVI ": ("video", "avi"),
}
_QUICKTIME_ATOMS: Final = frozenset({b"moov", b"mdat", b"wide", b"free", b"skip"})
_BMP_HEADER_SIZES: Final = frozenset({12, 16, 40, 52, 56, 64, 108, 124})
_EBML: Final = b"\x1a\x45\xdf\xa3"


@dataclass(frozen=True, slots=True)
class ImageInfo:
    """Measures of a picture.

    Attributes:
        format: One of `IMAGE_FORMATS`.
        width: Pixels across, after the EXIF orientation is applied.
        height: Pixels down, likewise.
        frames: Frames of an animation, 1 for a still picture; counting stops at 10,000.
        size_bytes: Of the encoded content.
    """

    format: str
    width: int
    height: int
    frames: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class VideoInfo:
    """Measures of a video.

    Attributes:
        width: Pixels across, of the frames as they are decoded.
        height: Pixels down, likewise.
        duration_s: Seconds from the first frame's start to the last frame's end, above 0; by the number of frames and
            their rate where the time stamps are absurd; None where neither is credible (`sampling.duration_of`).
        fps: Frames a second, on average.
        frame_count: How many frames the container indexes.
        size_bytes: Of the file.
    """

    width: int
    height: int
    duration_s: float | None
    fps: float
    frame_count: int
    size_bytes: int


def sniff(head: bytes) -> tuple[MediaKind, str] | None:
    """The kind and format that the first `SNIFF_BYTES` bytes of a content announce, or None.

    It says what the content is, not that it can be read: `("image", "tiff")` is an honest answer and
    not one of `IMAGE_FORMATS`.
    """
    for magic, name in _IMAGE_MAGIC:
        if head.startswith(magic):
            return "image", name
    if head.startswith(b"BM") and int.from_bytes(head[14:18], "little") in _BMP_HEADER_SIZES:
        return "image", "bmp"
    return _container(head)


def _container(head: bytes) -> tuple[MediaKind, str] | None:
    """Formats whose first bytes name a container, and a little further on what is inside."""
    if head.startswith(b"RIFF"):
        return _RIFF_FORMS.get(head[8:12])
    if head.startswith(_EBML):
        return "video", "webm" if b"webm" in head[:SNIFF_BYTES] else "mkv"
    if head[4:8] == b"ftyp":
        return _iso_brand(head[8:12])
    return ("video", "mov") if head[4:8] in _QUICKTIME_ATOMS else None


def _iso_brand(brand: bytes) -> tuple[MediaKind, str]:
    """ISO 14496-12: pictures and videos share one container, the major brand tells them apart."""
    if brand in {b"avif", b"avis"}:
        return "image", "avif"
    if brand in {b"heic", b"heix", b"heim", b"heis", b"hevc", b"mif1", b"msf1"}:
        return "image", "heic"
    return "video", "mov" if brand == b"qt  " else "mp4"


def kind_from_name(name: str) -> MediaKind | None:
    """The kind that the suffix of a URL's path or of a file name announces; None when it announces none.

    Query string and fragment of a URL do not count.
    """
    path = name
    if "://" in name:  # by hand: `urlsplit` and `PurePosixPath` would take a fifth of the time of a plan
        path = name.partition("#")[0].partition("?")[0]
        path = path.partition("://")[2].partition("/")[2] if "://" in path else path
    suffix = splitext(path.rstrip("/"))[1].lower()
    if suffix in IMAGE_SUFFIXES:
        return "image"
    return "video" if suffix in (*VIDEO_SUFFIXES, *MORE_VIDEO_SUFFIXES) else None
