"""Recognizes images, videos and their formats by file name or first bytes; defines types for their metadata."""

from __future__ import annotations

from dataclasses import dataclass
from posixpath import splitext
from typing import Final, Literal, TypeAlias

from lightmeter.wire.constants import IMAGE_SUFFIXES, MORE_VIDEO_SUFFIXES, VIDEO_SUFFIXES

MediaKind: TypeAlias = Literal["image", "video"]

IMAGE_FORMATS: Final = ("jpeg", "png", "gif", "webp", "bmp", "avif", "heic", "tiff")
"""Supported image formats; `sniff` recognizes more, for better error messages."""

VIDEO_FORMATS: Final = ("mp4", "webm", "mov", "mkv", "avi")
"""Video containers that the service accepts."""

SNIFF_BYTES: Final = 64
"""Number of first bytes that `sniff` needs to recognize every format."""

_IMAGE_MAGIC: Final = (
    (b"\xff\xd8\xff", "jpeg"),
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"GIF87a", "gif"),
    (b"GIF89a", "gif"),
    (b"II*\x00", "tiff"),
    (b"MM\x00*", "tiff"),
    (b"II+\x00", "tiff"),  # BigTIFF
    (b"MM\x00+", "tiff"),
)
_RIFF_FORMS: Final[dict[bytes, tuple[MediaKind, str]]] = {
    b"WEBP": ("image", "webp"),
    b"AVI ": ("video", "avi"),
}
_ISO_IMAGES: Final = {
    **dict.fromkeys((b"avif", b"avis", b"avio", b"MA1A", b"MA1B"), "avif"),
    **dict.fromkeys((b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs"), "heic"),
    **dict.fromkeys((b"mif1", b"mif2", b"msf1", b"miaf"), "heic"),  # of any codec
}
"""Brand of an ISO 14496-12 file that holds a picture or a sequence of pictures → the format."""
_QUICKTIME_ATOMS: Final = frozenset({b"moov", b"mdat", b"wide", b"free", b"skip"})
_BMP_HEADER_SIZES: Final = frozenset({12, 16, 40, 52, 56, 64, 108, 124})
_EBML: Final = b"\x1a\x45\xdf\xa3"


@dataclass(frozen=True, slots=True)
class ImageInfo:
    """Metadata of an image.

    Attributes:
        format: Format of the file, one of `IMAGE_FORMATS`, such as `jpeg`.
        width, height: In pixels, after the EXIF orientation is applied.
        frames: Number of frames of an animation, 1 for a still image; counting stops at 10,000.
        size_bytes: Length of the encoded content.
        orientation: EXIF orientation, 1 to 8; 1 for a picture that is stored upright.
    """

    format: str
    width: int
    height: int
    frames: int
    size_bytes: int
    orientation: int = 1


@dataclass(frozen=True, slots=True)
class VideoInfo:
    """Metadata of a video.

    Attributes:
        width, height: Size of decoded frames, in pixels.
        duration_s: Seconds from the start of the first frame to the end of the final frame, above 0; None if unknown.
        fps: Average number of frames in a second.
        frame_count: Number of frames in the container's index, without those that an edit list hides before the start.
        size_bytes: Length of the file.
    """

    width: int
    height: int
    duration_s: float | None
    fps: float
    frame_count: int
    size_bytes: int


def sniff(head: bytes) -> tuple[MediaKind, str] | None:
    """Return the kind (image or video) and the format of a file, by its first `SNIFF_BYTES` bytes; None if unknown.

    The format need not be a supported one.
    """
    for magic, name in _IMAGE_MAGIC:
        if head.startswith(magic):
            return "image", name
    if head.startswith(b"BM") and int.from_bytes(head[14:18], "little") in _BMP_HEADER_SIZES:
        return "image", "bmp"
    if head.startswith(b"RIFF"):
        return _RIFF_FORMS.get(head[8:12])
    if head.startswith(_EBML):
        return "video", "webm" if b"webm" in head[:SNIFF_BYTES] else "mkv"
    if head[4:8] == b"ftyp":
        return _sniff_iso(head)
    return ("video", "mov") if head[4:8] in _QUICKTIME_ATOMS else None


def _sniff_iso(head: bytes) -> tuple[MediaKind, str]:
    """Recognize a file that starts with the box `ftyp` (ISO 14496-12, 4.3) by its major and its compatible brands."""
    major = head[8:12]
    if major == b"qt  ":
        return "video", "mov"
    end = min(int.from_bytes(head[:4], "big"), SNIFF_BYTES)
    names = [_ISO_IMAGES.get(head[at : at + 4]) for at in (8, *range(16, end, 4))]
    # Brands such as mif1 leave the codec open, so another brand may say avif.
    for name in ("avif", "heic"):
        if name in names:
            return "image", name
    return "video", "mp4"


def is_video(head: bytes) -> bool:
    """Whether the first `SNIFF_BYTES` bytes of a file show that it is a video."""
    found = sniff(head)
    return found is not None and found[0] == "video"


def kind_from_name(name: str) -> MediaKind | None:
    """Return the kind (image or video) by the suffix of a file name or of a URL's path; None if it is unknown."""
    path = name
    if "://" in name:  # not parsed by `urlsplit`, which would take a fifth of the time of a plan
        path = name.partition("#")[0].partition("?")[0]
        path = path.partition("://")[2].partition("/")[2] if "://" in path else path
    suffix = splitext(path.rstrip("/"))[1].lower()
    if suffix in IMAGE_SUFFIXES:
        return "image"
    return "video" if suffix in (*VIDEO_SUFFIXES, *MORE_VIDEO_SUFFIXES) else None
