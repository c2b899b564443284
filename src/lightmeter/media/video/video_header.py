"""Reads a video file's codec, stated length and mirroring from the header of its container. The file is not decoded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from struct import unpack
from typing import BinaryIO, Final

from lightmeter.media.media_info import SNIFF_BYTES, sniff

_MAX_HEADER_BYTES: Final = 8 * 1024 * 1024
"""Most bytes of a container's header that are read."""
_MAX_BOXES: Final = 1000
"""Most outer boxes of an MP4 or MOV file that are read."""

_ISO_CODEC: Final = re.compile(rb"vmhd.*?stsd.{12}(.{4})", re.DOTALL)
"""Finds the codec of an MP4 or MOV file: the first sample description (`stsd`) after a video media header (`vmhd`)."""
_AVI_CODEC: Final = re.compile(rb"vids.*?strf.{20}(.{4})", re.DOTALL)
"""Finds the codec of an AVI file: `biCompression` in the stream format (`strf`) of the first video stream."""
_MATROSKA_CODEC: Final = re.compile(rb"\x86[\x80-\xff](V_[A-Z0-9/_]+)")
"""Finds the codec of a Matroska or WebM file: the element CodecID of the first video track."""

_MOVIE_MATRIX: Final = re.compile(rb"mvhd(?:\x00.{35}|\x01.{47})(.{36})", re.DOTALL)
_TRACK_MATRIX: Final = re.compile(rb"tkhd(?:\x00.{39}|\x01.{51})(.{36})", re.DOTALL)
"""Find the display matrices of an MP4 or MOV file (ISO 14496-12, 8.2.2 and 8.3.2), of the movie and of each track."""

_NAMES: Final = {
    **dict.fromkeys(("avc1", "avc3", "h264", "x264", "v_mpeg4/iso/avc"), "h264"),
    **dict.fromkeys(("hvc1", "hev1", "hevc", "v_mpegh/iso/hevc"), "hevc"),
    **dict.fromkeys(("av01", "v_av1"), "av1"),
    **dict.fromkeys(("vp08", "vp80", "v_vp8"), "vp8"),
    **dict.fromkeys(("vp09", "vp90", "v_vp9"), "vp9"),
    **dict.fromkeys(("mp4v", "fmp4", "xvid", "divx", "dx50", "v_mpeg4/iso/asp", "v_mpeg4/iso/sp"), "mpeg4"),
    **dict.fromkeys(("jpeg", "mjpg", "mjpa", "v_mjpeg"), "mjpeg"),
    **dict.fromkeys(("mpg2", "v_mpeg2"), "mpeg2"),
    **dict.fromkeys(("apch", "apcn", "apcs", "apco", "ap4h", "ap4x", "v_prores"), "prores"),
}


def read_codec(path: Path) -> str | None:
    """Return the codec of a video file, such as `h264`; None if its header does not state one.

    If this module does not know the container's code for the codec, return that code in lower case.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        found = sniff(file.read(SNIFF_BYTES))
        if found is None:
            return None
        match found[1]:
            case "mp4" | "mov":
                named = _ISO_CODEC.search(_iso_header(file))
            case "avi":
                named = _AVI_CODEC.search(_first_bytes(file))
            case _:
                named = _MATROSKA_CODEC.search(_first_bytes(file))
    name = named[1].decode("latin-1").strip().lower() if named else ""
    return _NAMES.get(name, name) if name.isascii() and name.isprintable() and name else None


def _first_bytes(file: BinaryIO) -> bytes:
    file.seek(0)
    return file.read(_MAX_HEADER_BYTES)


def stated_bytes(path: Path) -> int | None:
    """Return the length in bytes that an MP4 or MOV file must have, by the lengths of its boxes; None if unknown.

    A truncated file is shorter than this, although its index, if at its start, still lists the missing frames.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        found = sniff(file.read(SNIFF_BYTES))
        if found is None or found[1] not in {"mp4", "mov"}:
            return None
        # Other boxes may be garbage at the end of the file.
        ends = (start + length for name, start, length in _iso_boxes(file) if name in {b"mdat", b"moov"})
        return max(ends, default=None)


def _iso_boxes(file: BinaryIO) -> Iterator[tuple[bytes, int, int]]:
    """Yield (name, offset, length) of each outer box of an MP4 or MOV file (ISO 14496-12), at most `_MAX_BOXES`.

    The offset is the start of the box in the file, and the length includes its header; both are in bytes.
    """
    position = 0
    for _ in range(_MAX_BOXES):
        file.seek(position)
        head = file.read(16)
        length = int.from_bytes(head[:4], "big")
        if length == 1:  # the length follows as 64 bits
            length = int.from_bytes(head[8:16], "big")
        if length < 8 or position + length >= 1 << 63:  # noqa: PLR2004 (a box is no shorter than its header)
            return
        yield head[4:8], position, length
        position += length


def _iso_header(file: BinaryIO) -> bytes:
    """Return the content of the box `moov` of an MP4 or MOV file, at most `_MAX_HEADER_BYTES`; empty if it has none."""
    for name, position, length in _iso_boxes(file):
        if name == b"moov":
            file.seek(position + 8)
            return file.read(min(length, _MAX_HEADER_BYTES))
    return b""


def flip_axis(path: Path) -> int | None:
    """Return the axis (0: vertical, 1: horizontal) along which decoded frames of a video are to be mirrored, or None.

    The display matrix of an MP4 or MOV file may mirror its frames. The decoder only turns them, by the angle of the
    matrix: what is still to be done is a vertical flip, or a horizontal one if the matrix swaps width and height.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        header = _iso_header(file)
    a, b, c, d = 1, 0, 0, 1
    for found in (_video_track_matrix(header), _MOVIE_MATRIX.search(header)):
        if found is not None:
            e, f, _, g, h = unpack(">5i16x", found[1])
            a, b, c, d = a * e + b * g, a * f + b * h, c * e + d * g, c * f + d * h
    if a * d - b * c >= 0:
        return None
    return int(abs(b) > abs(a))


def _video_track_matrix(header: bytes) -> re.Match[bytes] | None:
    for found in _TRACK_MATRIX.finditer(header):
        handler = header.find(b"hdlr", found.end()) + 12
        if header[handler : handler + 4] == b"vide":
            return found
    return None
