"""Rebuilds image files that are damaged outside of their pixels, so that a strict decoder reads them.

Decoders refuse a whole picture because of a damaged comment or a missing end marker. The functions here leave out the
damaged parts. They return None if pixels are missing: a truncated picture must not pass for a whole one.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from contextlib import suppress
from io import BytesIO
from typing import Final

from PIL import Image

from lightmeter.media.media_info import sniff

PNG_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
_MAX_PARTS: Final = 100_000
"""Most chunks or segments of a file that are read. Decoders refuse files of more parts anyway."""
_ZLIB_STEP_BYTES: Final = 1 << 20
_MAX_PNG_BYTES: Final = 1 << 30
"""Most bytes of unpacked PNG pixels that are counted; no picture within the pixel limit has more."""

_NECESSARY_CHUNKS: Final = frozenset({b"IHDR", b"PLTE"})
_PIXEL_CHUNKS: Final = _NECESSARY_CHUNKS | {b"tRNS", b"iCCP", b"gAMA", b"cHRM", b"sRGB", b"cICP", b"eXIf"}
"""PNG chunks that affect how pixels are shown, beside the chunks IDAT with the pixels."""

WEBP_PIXELS: Final = frozenset({b"VP8 ", b"VP8L", b"ALPH", b"ANMF"})
_WEBP_KNOWN: Final = WEBP_PIXELS | {b"VP8X", b"ANIM", b"ICCP", b"EXIF", b"XMP "}
_WEBP_FLAGS: Final = {b"ICCP": 0x20, b"EXIF": 0x08, b"XMP ": 0x04}
"""WebP chunk with metadata → the flag in the chunk VP8X that says that the file has this chunk (RFC 9649)."""

_ISO_METADATA: Final = re.compile(rb"(infe\x02.{7}|infe\x03.{9})(?:Exif|mime)", re.DOTALL)
"""Matches the entry (ISO 14496-12, 8.11.6) of EXIF or XMP data in an AVIF or HEIC file."""
_MAX_BRANDS_BYTES: Final = 256
_ISO_AV1_ITEM: Final = re.compile(rb"(?:infe\x02.{7}|infe\x03.{9})av01", re.DOTALL)

_JPEG_MARKER: Final = re.compile(rb"\xff+([\x01-\xcf\xd8-\xfe])")
"""Matches the next marker of a segment in a JPEG; in compressed pixels, FF is followed by 00 or a restart marker."""
_SOF: Final = frozenset({0xC0, 0xC1, 0xC2})
_PROGRESSIVE, _SOS = 0xC2, 0xDA
_COEFFICIENTS: Final = 64
_JPEG_END: Final = b"\xff\xd9"
_NOISE: Final = bytes(37 * at % 251 for at in range(1, 250))
_FAKE_PIXELS: Final = tuple(
    start + _NOISE + b"".join(bytes((0xFF, 0xD0 + (first + at) % 8)) + start + _NOISE for at in range(8))
    for start, first in ((b"\x55", 0), (b"\xaa", 4))
)
"""Bytes that decode to different pixels wherever a JPEG was cut, also at any of the eight restart markers."""


def repairs(content: bytes, *, header_only: bool) -> Iterator[bytes]:
    """Yield the image file without its damaged metadata, in one or more ways; nothing if pixels are missing.

    With `header_only`, `content` may be the first bytes of a file, and a yielded PNG has no pixels.
    """
    match sniff(content):
        case "image", "png":
            if (pixels := b"" if header_only else _png_pixels(content)) is not None:
                yield _png_file(content, pixels, keeps_sound_metadata=True)
                yield _png_file(content, pixels, keeps_sound_metadata=False)
        case "image", "webp":
            if (whole := _webp_file(content)) is not None:
                yield whole
        case "image", "jpeg" if not header_only:
            if (ended := _jpeg_file(content)) is not None:
                yield ended
        case "image", "avif" | "heic":
            yield _iso_file(content)


def png_chunks(content: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yield (name, start, length) of each chunk's data in a PNG file; the final one may end beyond `content`."""
    position = len(PNG_SIGNATURE)
    for _ in range(_MAX_PARTS):
        name = content[position + 4 : position + 8]
        if len(name) < 4:  # noqa: PLR2004 (the length of a name)
            return
        length = int.from_bytes(content[position : position + 4], "big")
        yield name, position + 8, length
        position += 12 + length


def _png_pixels(content: bytes) -> bytes | None:
    """Return the packed pixels of a PNG file; None unless their own check sum shows that they are whole."""
    packed = b"".join(content[start : start + length] for name, start, length in png_chunks(content) if name == b"IDAT")
    unpacker, rest = zlib.decompressobj(), packed
    try:
        for _ in range(_MAX_PNG_BYTES // _ZLIB_STEP_BYTES):
            unpacker.decompress(rest, _ZLIB_STEP_BYTES)
            rest = unpacker.unconsumed_tail
            if unpacker.eof or not rest:
                break
    except zlib.error:
        return None
    return packed if unpacker.eof else None


def _png_file(content: bytes, pixels: bytes, *, keeps_sound_metadata: bool) -> bytes:
    """Return a PNG file of the given packed pixels and of the undamaged, or only the important, chunks of `content`."""
    chunks = []
    for name, start, length in png_chunks(content):
        if name in {b"IDAT", b"IEND"}:
            break
        chunk = content[start - 8 : start + length + 4]
        is_sound = chunk == _png_chunk(name, content[start : start + length])
        # The decoder refuses a picture whose necessary chunks are damaged.
        if name in _NECESSARY_CHUNKS or (is_sound and (keeps_sound_metadata or name in _PIXEL_CHUNKS)):
            chunks.append(chunk)
    return PNG_SIGNATURE + b"".join((*chunks, _png_chunk(b"IDAT", pixels), _png_chunk(b"IEND", b"")))


def _png_chunk(name: bytes, data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + name + data + zlib.crc32(name + data).to_bytes(4, "big")


def webp_chunks(content: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yield (name, start, length) of each chunk's data in a WebP file; the final one may end beyond `content`."""
    position = 12
    for _ in range(_MAX_PARTS):
        if position + 8 > len(content):
            return
        length = int.from_bytes(content[position + 4 : position + 8], "little")
        yield content[position : position + 4], position + 8, length
        position += 8 + length + length % 2


def _webp_file(content: bytes) -> bytes | None:
    """Return a WebP file with the whole chunks of `content`; None if a chunk with pixels is cut or missing."""
    chunks: list[tuple[bytes, bytes]] = []
    for name, start, length in webp_chunks(content):
        if start + length <= len(content):
            chunks.append((name, content[start - 8 : start + length] + bytes(length % 2)))
        elif name in WEBP_PIXELS:
            return None
    names = {name for name, _ in chunks}
    if not names & WEBP_PIXELS:
        return None
    if chunks[0][0] == b"VP8X":
        header = bytearray(chunks[0][1])
        header[8] &= ~sum(flag for name, flag in _WEBP_FLAGS.items() if name not in names)
        chunks[0] = (b"VP8X", bytes(header))
    body = b"WEBP" + b"".join(chunk for name, chunk in chunks if name in _WEBP_KNOWN)
    return b"RIFF" + len(body).to_bytes(4, "little") + body


def _iso_file(content: bytes) -> bytes:
    """Return an AVIF or HEIC file with the usual brands, and without its EXIF and XMP data; offsets stay the same."""
    size = min(int.from_bytes(content[:4], "big"), _MAX_BRANDS_BYTES)
    brand = b"avif" if _ISO_AV1_ITEM.search(content) else b"heic"
    brands = (brand, b"mif1", b"miaf") * (size // 4)
    head = content[:8] + brand + content[12:16] + b"".join(brands)[: max(0, size - 16)]
    return head + _ISO_METADATA.sub(rb"\1skip", content[len(head) :])


def _jpeg_file(content: bytes) -> bytes | None:
    """Return a JPEG file with the missing end marker; None if pixels are missing.

    A decoder fills missing pixels without saying so. But where pixels are missing, it takes other bytes that follow for
    pixels: so the picture is whole if it is the same whatever follows.
    """
    body = content.rstrip(b"\xff")  # may be half of the end marker
    ended = body + _JPEG_END
    if not _has_all_scans(body):
        return None
    pixels = _decoded(ended)
    is_whole = all(_decoded(body + fake + _JPEG_END) == pixels for fake in _FAKE_PIXELS)
    return ended if is_whole else None


def _decoded(content: bytes) -> int | None:
    """Return a check sum of the pixels of a JPEG file; None if it does not decode."""
    with suppress(Exception), Image.open(BytesIO(content), formats=["JPEG"]) as picture:
        return zlib.crc32(picture.tobytes())
    return None


def _has_all_scans(content: bytes) -> bool:
    """Whether the scans of a JPEG file give all coefficients of all its components (ITU-T T.81, B.2 and G.1)."""
    precision: dict[int, list[int]] = {}  # component → the coefficients' bits that are missing
    is_progressive, position = False, 2
    for _ in range(_MAX_PARTS):
        marker = _JPEG_MARKER.search(content, position)
        if marker is None:
            break
        code, start = marker[1][0], marker.end()
        position = start + int.from_bytes(content[start : start + 2], "big")
        segment = content[start + 2 : position]
        if code in _SOF and len(segment) > 5:  # noqa: PLR2004 (precision, size, number of components)
            is_progressive = code == _PROGRESSIVE
            precision = {component: [1] * _COEFFICIENTS for component in segment[6::3]}
        elif code == _SOS and len(segment) > 3:  # noqa: PLR2004 (the coefficients and their bits)
            first, last, bits = segment[-3:] if is_progressive else (0, _COEFFICIENTS - 1, 0)
            for component in segment[1 : 1 + 2 * segment[0] : 2]:
                if component in precision:
                    precision[component][first : last + 1] = [bits & 15] * (last + 1 - first)
    return bool(precision) and not any(map(any, precision.values()))
