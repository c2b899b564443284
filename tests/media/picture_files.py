"""Picture files that tests write byte by byte: PNG of any kind, ICC profiles, HEIC."""

from __future__ import annotations

import struct
import zlib
from io import BytesIO

import numpy as np
from PIL import Image
from pillow_heif import register_heif_opener

ROWS, COLUMNS = np.mgrid[0:96, 0:128]
COLORFUL = np.stack([COLUMNS * 2, ROWS * 2, (COLUMNS + ROWS) % 256], -1).astype(np.uint8)
"""A picture of which no row or column equals another."""

P3 = ((0.5151, 0.2412, -0.0011), (0.2920, 0.6922, 0.0419), (0.1571, 0.0666, 0.7841))
ADOBE_RGB = ((0.6097, 0.3111, 0.0195), (0.2053, 0.6257, 0.0609), (0.1492, 0.0632, 0.7446))
SRGB = ((0.4361, 0.2225, 0.0139), (0.3851, 0.7169, 0.0971), (0.1431, 0.0606, 0.7139))
"""Primaries of color spaces: the columns XYZ of red, green and blue, adapted to D50 (ICC.1)."""


def saved(picture: Image.Image | np.ndarray, form: str, **options) -> bytes:
    """Return a picture as a file."""
    register_heif_opener()
    stream = BytesIO()
    (picture if isinstance(picture, Image.Image) else Image.fromarray(picture)).save(stream, form, **options)
    return stream.getvalue()


def chunk(kind: bytes, data: bytes = b"") -> bytes:
    """Return a PNG chunk."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(size: tuple[int, int], depth: int, kind: int, rows: list[bytes], *extra: bytes) -> bytes:
    """Return a PNG of packed rows, with the chunks `extra` before its pixels."""
    header = struct.pack(">IIBBBBB", *size, depth, kind, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + row for row in rows))
    parts = (chunk(b"IHDR", header), *extra, chunk(b"IDAT", pixels), chunk(b"IEND"))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def _fixed(*values: float) -> bytes:
    return b"".join(struct.pack(">i", round(value * 65536)) for value in values)


def icc_profile(gamma: float, primaries: tuple[tuple[float, float, float], ...] | None = None) -> bytes:
    """Return a color profile (ICC.1, version 2) with a pure power as its curve; for gray without `primaries`."""
    curve = b"curv\0\0\0\0" + struct.pack(">IH", 1, round(gamma * 256))
    white = (0.9642, 1.0, 0.8249)
    tags = {
        b"desc": b"desc\0\0\0\0\0\0\0\4own\0" + bytes(78),
        b"cprt": b"text\0\0\0\0none\0",
        b"wtpt": b"XYZ \0\0\0\0" + _fixed(*white),
    }
    if primaries is None:
        tags[b"kTRC"] = curve
    else:
        for letter, columns in zip(b"rgb", primaries, strict=True):
            tags[bytes([letter]) + b"XYZ"] = b"XYZ \0\0\0\0" + _fixed(*columns)
            tags[bytes([letter]) + b"TRC"] = curve
    table, data = struct.pack(">I", len(tags)), b""
    for name, body in tags.items():
        table += name + struct.pack(">II", 132 + 12 * len(tags) + len(data), len(body))
        data += body + bytes(-len(body) % 4)
    space = b"GRAY" if primaries is None else b"RGB "
    head = struct.pack(">I4sI4s4s4s", 128 + len(table + data), b"none", 0x02400000, b"mntr", space, b"XYZ ")
    head += struct.pack(">6H", 2024, 1, 1, 0, 0, 0) + b"acsp" + bytes(28) + _fixed(*white)
    return head.ljust(128, b"\0") + table + data


def srgb_of(level: np.ndarray) -> np.ndarray:
    """Return linear light (0 to 1) as levels of sRGB, 0 to 255 (IEC 61966-2-1)."""
    level = np.clip(level, 0, 1)
    return 255 * np.where(level <= 0.0031308, 12.92 * level, 1.055 * level ** (1 / 2.4) - 0.055)
