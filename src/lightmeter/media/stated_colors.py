"""Makes ICC profiles for pictures that state their color space by numbers instead.

These are PNG with the chunks cICP or gAMA and cHRM (PNG 3, section 11.3.2), and AVIF and HEIC with the box colr (ISO
23008-12, ITU-T H.273). HDR curves (PQ, HLG) are not converted, as that would need a tone mapping.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from struct import pack, unpack
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from lightmeter.media.image_repair import png_chunks

Chromaticities: TypeAlias = tuple[float, ...]
Curve: TypeAlias = tuple[float, float, float, float, float]

_SRGB: Final[Chromaticities] = (0.3127, 0.329, 0.64, 0.33, 0.3, 0.6, 0.15, 0.06)
"""Chromaticities x, y of white, red, green and blue."""
_PRIMARIES: Final[dict[int, Chromaticities]] = {
    1: _SRGB,
    9: (0.3127, 0.329, 0.708, 0.292, 0.17, 0.797, 0.131, 0.046),  # BT.2020
    12: (0.3127, 0.329, 0.68, 0.32, 0.265, 0.69, 0.15, 0.06),  # Display P3
}
"""Number of ITU-T H.273, table 2 → chromaticities."""
_SRGB_CURVE: Final[Curve] = (2.4, 1 / 1.055, 0.055 / 1.055, 1 / 12.92, 0.04045)
"""Parameters g, a, b, c, d of the curve of sRGB (ICC.1:2022, 10.18, type 3)."""
_CURVES: Final[dict[int, Curve]] = {
    **dict.fromkeys((1, 6, 13, 14, 15), _SRGB_CURVE),  # a video's curve is shown as sRGB
    4: (2.2, 1, 0, 1, 0),
    5: (2.8, 1, 0, 1, 0),
    8: (1, 1, 0, 1, 0),
}
"""Number of ITU-T H.273, table 3 → parameters of the curve."""
_NCLX: Final = re.compile(rb"colrnclx(.{4})", re.DOTALL)
_HEADER_BYTES: Final = 64 * 1024
_USUAL_GAMMA: Final = (0.43, 0.48)
"""A PNG whose gamma is in this range has the curve of sRGB, as in libpng."""
_D50: Final = np.array((0.9642, 1.0, 0.8249))
_BRADFORD: Final = np.array(((0.8951, 0.2664, -0.1614), (-0.7502, 1.7135, 0.0367), (0.0389, -0.0685, 1.0296)))


def stated_profile(picture: Image.Image, content: bytes, *, is_gray: bool) -> bytes | None:
    """Return an ICC profile of the color space that a picture states by numbers; None if none or an unusual one.

    Args:
        picture: The opened picture.
        content: Its file.
        is_gray: Whether its pixels have no color, so that the profile needs a curve only.
    """
    if picture.format == "PNG":
        space = _png_space(picture, content)
    else:
        codes = None if "icc_profile" in picture.info else _NCLX.search(content, 0, _HEADER_BYTES)
        space = _coded_space(*unpack(">HH", codes[1])) if codes else None
    return None if space is None else _profile(*space, is_gray=is_gray)


def _coded_space(primaries: int, curve: int) -> tuple[Chromaticities, Curve] | None:
    if primaries not in _PRIMARIES or curve not in _CURVES:
        return None
    return _PRIMARIES[primaries], _CURVES[curve]


def _png_space(picture: Image.Image, content: bytes) -> tuple[Chromaticities, Curve] | None:
    for name, start, _ in png_chunks(content):
        if name == b"cICP":
            return _coded_space(content[start], content[start + 1])
        if name == b"IDAT":
            break
    gamma, chromaticities = picture.info.get("gamma", 0), picture.info.get("chromaticity", _SRGB)
    if gamma <= 0 or "icc_profile" in picture.info or "srgb" in picture.info:
        return None
    return chromaticities, _SRGB_CURVE if _USUAL_GAMMA[0] < gamma < _USUAL_GAMMA[1] else (1 / gamma, 1, 0, 1, 0)


def _profile(chromaticities: Chromaticities, curve: Curve, *, is_gray: bool) -> bytes | None:
    """Return an ICC profile (ICC.1:2022) of a color space; None if the chromaticities are those of no color space."""
    tags = {b"desc": b"desc\0\0\0\0\0\0\0\1\0" + bytes(78), b"wtpt": _xyz(_D50)}
    tone = b"para\0\0\0\0\0\3\0\0" + _fixed(curve)
    if is_gray:
        tags[b"kTRC"] = tone
    else:
        try:
            columns = _adapted_primaries(chromaticities)
        except (ArithmeticError, ValueError, np.linalg.LinAlgError):
            return None
        for letter, column in zip((b"r", b"g", b"b"), columns, strict=True):
            tags |= {letter + b"XYZ": _xyz(column), letter + b"TRC": tone}
    table, data, first = pack(">I", len(tags)), b"", 132 + 12 * len(tags)
    for name, body in tags.items():
        table += name + pack(">II", first + len(data), len(body))
        data += body
    space = b"GRAY" if is_gray else b"RGB "
    header = pack(
        ">I4sI4s4s4s12s4s28s", 128 + len(table + data), b"", 0x04200000, b"mntr", space, b"XYZ ", b"", b"acsp", b""
    )
    return (header + _fixed(_D50)).ljust(128, b"\0") + table + data


def _adapted_primaries(chromaticities: Chromaticities) -> NDArray[np.float64]:
    """Return X, Y, Z of red, green and blue (a row each), adapted to the white D50 (Bradford: ICC.1:2022, annex E)."""
    x, y = np.array(chromaticities, np.float64).reshape(4, 2).T
    if not (y > 0).all():
        raise ValueError("no color has a chromaticity y of 0")
    white, *primaries = np.stack([x / y, np.ones(4), (1 - x - y) / y], axis=1)
    columns = np.array(primaries).T * np.linalg.solve(np.array(primaries).T, white)
    cones = (_BRADFORD @ _D50) / (_BRADFORD @ white)
    adapted: NDArray[np.float64] = np.linalg.solve(_BRADFORD, cones[:, None] * _BRADFORD) @ columns
    return adapted.T


def _fixed(values: Iterable[float]) -> bytes:
    """Return numbers as s15Fixed16; those out of its range are limited."""
    return b"".join(pack(">i", round(min(max(value, -32768), 32767) * 65536)) for value in values)


def _xyz(values: Iterable[float]) -> bytes:
    return b"XYZ \0\0\0\0" + _fixed(values)
