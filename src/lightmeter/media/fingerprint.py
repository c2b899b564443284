"""Small copies of pictures ("fingerprints") and a comparison of two, which says whether the pictures look the same.

A perceptual hash finds candidates among millions of pictures; some of them merely have a similar layout. The
fingerprint holds the luma in 24 x 24 cells and the two chroma channels in 6 x 6 cells each. Two pictures look the same
if their lumas correlate, also where one is a crop of the other, and their colors agree up to brightness and saturation.
The limits are tuned on 660 photographs and changed copies of them. `tests/bench/precheck/test_near_duplicates.py`
measures the result.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Floats: TypeAlias = NDArray[np.floating[Any]]

_LUMA: Final = 24
_CHROMA: Final = 6

FINGERPRINT_BYTES: Final = _LUMA**2 + 2 * _CHROMA**2

_MIN_DEVIATION: Final = 8.0
"""Least standard deviation of the luma, in levels of 256. Blank and nearly blank pictures have less."""

_MIN_CORRELATION: Final = 0.94
_MIN_CORRELATION_TO_ALIGN: Final = 0.6
"""Least correlation of two lumas for which crops are tried; a picture and its crops have more."""

_FLAT_LEVELS: Final = 4
_MAX_FLAT_SHARE: Final = 0.5
_MIN_CORRELATION_OF_GRAPHICS: Final = 0.9985
"""Least correlation of the lumas of two graphics that look the same: logos with different words correlate by 0.998.

A picture counts as a graphic if more than half of its cells equal their neighbors.
"""

_MAX_CHROMA_DIFFERENCE: Final = 3.5
_MAX_COLOR_CAST: Final = 8.0
_SATURATION: Final = (0.6, 1.6)
"""Least and greatest factor between the colors of two pictures that look the same."""

_CROP_SIDES: Final = (0.975, 0.95, 0.92)
"""Sides of the tried crops, as shares of the picture's sides."""

_REDUCING_GAP: Final = 3.0
"""A much larger picture is first averaged down to three times the size of a grid or more, which is quicker."""

_CROP_STEPS: Final = 4
"""Places along each side that are tried for a crop."""


def fingerprint(rgb: NDArray[np.uint8]) -> bytes | None:
    """Return a tiny copy of a picture (height x width x 3, RGB) for `looks_same`; None if it is nearly blank."""
    picture = Image.fromarray(rgb)
    luma, chroma = (
        np.asarray(picture.resize((side, side), Image.Resampling.BILINEAR, reducing_gap=_REDUCING_GAP).convert("YCbCr"))
        for side in (_LUMA, _CHROMA)
    )
    if luma[..., 0].std() < _MIN_DEVIATION:
        return None
    return luma[..., 0].tobytes() + chroma[..., 1:].tobytes()


def looks_same(first: bytes, second: bytes) -> bool:
    """Whether two pictures with these fingerprints look the same; one may be the other with its edges slightly cropped.

    The result is True for most crops by 2 % or 5 %, and False for most crops by 10 %.
    """
    lumas, chromas = zip(_channels(first), _channels(second), strict=True)
    if not _has_same_colors(*chromas):
        return False
    correlation = float(np.vdot(_normalize(lumas[0]), _normalize(lumas[1])))
    if any(map(_is_graphic, lumas)):
        return correlation >= _MIN_CORRELATION_OF_GRAPHICS
    if correlation >= _MIN_CORRELATION or correlation < _MIN_CORRELATION_TO_ALIGN:
        return correlation >= _MIN_CORRELATION
    return any(_best_crop_correlation(*pair) >= _MIN_CORRELATION for pair in (lumas, lumas[::-1]))


def _channels(content: bytes) -> tuple[Floats, Floats]:
    values = np.frombuffer(content, dtype=np.uint8).astype(np.float32)
    return values[: _LUMA**2].reshape(_LUMA, _LUMA), values[_LUMA**2 :].reshape(-1, 2) - 128


def _normalize(lumas: Floats) -> Floats:
    """Return each 24 x 24 grid of brightness with mean 0 and norm 1, so that a dot product of two is a correlation."""
    centered: Floats = lumas - lumas.mean(axis=(-2, -1), keepdims=True)
    centered /= np.maximum(np.sqrt((centered**2).sum(axis=(-2, -1), keepdims=True)), 1e-6)
    return centered


def _is_graphic(luma: Floats) -> bool:
    down, right = (np.abs(np.diff(luma, axis=axis)) for axis in (0, 1))
    return bool((np.maximum(down[:, :-1], right[:-1]) < _FLAT_LEVELS).mean() > _MAX_FLAT_SHARE)


def _has_same_colors(first: Floats, second: Floats) -> bool:
    """Whether two pictures' chroma values (cells x 2) agree, apart from saturation, a small color cast and noise."""
    centered = first - first.mean(axis=0)
    factor = np.vdot(centered, second - second.mean(axis=0)) / max(float(np.vdot(centered, centered)), 1e-6)
    difference = second - np.clip(factor, *_SATURATION) * first
    cast = np.clip(difference.mean(axis=0), -_MAX_COLOR_CAST, _MAX_COLOR_CAST)
    return float(np.abs(difference - cast).mean()) <= _MAX_CHROMA_DIFFERENCE


def _crop_matrices() -> Floats:
    """Return matrices that cut a part out of a row or column of 24 brightness cells and stretch it to 24 cells.

    The axes of the array: length of the part (index in `_CROP_SIDES`), number of its position (0 to
    `_CROP_STEPS` - 1), cell of the stretched part, cell of the whole row or column.
    """
    matrices = []
    for side in _CROP_SIDES:
        for start in np.linspace(0, _LUMA * (1 - side), _CROP_STEPS):
            places = np.clip(start + (np.arange(_LUMA) + 0.5) * side - 0.5, 0, _LUMA - 1)
            matrices.append(np.maximum(0, 1 - np.abs(places[:, None] - np.arange(_LUMA)[None, :])))
    return np.array(matrices, dtype=np.float32).reshape(len(_CROP_SIDES), _CROP_STEPS, _LUMA, _LUMA)


_CROPS: Final = _crop_matrices()


def _best_crop_correlation(crop: Floats, whole: Floats) -> float:
    """Return the greatest correlation of the brightness grid `crop` with slightly smaller parts of the grid `whole`."""
    rows = _CROPS @ whole
    crops: Floats = rows[:, :, None] @ _CROPS.swapaxes(-1, -2)[:, None]
    return float((_normalize(crops) * _normalize(crop)).sum(axis=(-2, -1)).max())
