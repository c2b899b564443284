"""Small copies of pictures ("fingerprints") and a comparison of two of them: do the pictures look the same?

A perceptual hash finds candidates among millions of pictures, but some candidates merely have a similar layout; the
comparison of fingerprints rejects those. A fingerprint holds the luma in 24 x 24 cells, and each of the two chroma
channels in 6 x 6 cells. Two pictures look the same if both their lumas and their colors agree. The lumas agree if they
correlate, or if one of them correlates with a crop of the other. Differences of brightness and saturation are ignored.

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
"""Least standard deviation of the luma (0 to 255) of a picture that gets a fingerprint.

Blank and nearly blank pictures have less, and get none.
"""

_MIN_CORRELATION: Final = 0.94
"""Least correlation of the lumas of two photographs that look the same."""
_MIN_CORRELATION_TO_TRY_CROPS: Final = 0.6
"""Least correlation of two lumas at which crops are tried. A picture and a crop of it correlate by more."""

_FLAT_LEVELS: Final = 4
"""A cell of the luma is flat if it differs by less than this (of 255) from its right and its lower neighbor."""
_MAX_FLAT_SHARE: Final = 0.5
"""A picture counts as a graphic, not as a photograph, if more than this fraction of its cells are flat."""
_MIN_CORRELATION_OF_GRAPHICS: Final = 0.9985
"""Least correlation of the lumas of two graphics that look the same.

Two logos with different words correlate by 0.998, so the limit for photographs is too low for graphics.
"""

_MAX_CHROMA_DIFFERENCE: Final = 3.5
"""Two pictures have the same colors if their chroma values (0 to 255) differ by at most this on average.

Differences of saturation and a color cast are removed before.
"""
_MAX_COLOR_CAST: Final = 8.0
"""A constant difference between the chroma values of two pictures is ignored up to this many levels (of 255)."""
_SATURATION: Final = (0.6, 1.6)
"""Two pictures with the same colors may differ in saturation by a factor in this range."""

_CROP_SIDES: Final = (0.975, 0.95, 0.92)
"""Widths and heights of the crops that are tried, as fractions of the picture's width and height."""

_REDUCING_GAP: Final = 3.0
"""Pillow's `reducing_gap`: a large picture is first averaged down to three times the grid's size or more, for speed."""

_CROP_STEPS: Final = 4
"""Number of positions along each side of the picture at which a crop is tried."""


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

    If one picture is a crop of the other, the result is True for most crops by 2 % or 5 %, False for most by 10 %.
    """
    lumas, chromas = zip(_channels(first), _channels(second), strict=True)
    if not _has_same_colors(*chromas):
        return False
    correlation = float(np.vdot(_normalize(lumas[0]), _normalize(lumas[1])))
    if any(map(_is_graphic, lumas)):
        return correlation >= _MIN_CORRELATION_OF_GRAPHICS
    if correlation >= _MIN_CORRELATION or correlation < _MIN_CORRELATION_TO_TRY_CROPS:
        return correlation >= _MIN_CORRELATION
    return any(_best_crop_correlation(*pair) >= _MIN_CORRELATION for pair in (lumas, lumas[::-1]))


def _channels(content: bytes) -> tuple[Floats, Floats]:
    values = np.frombuffer(content, dtype=np.uint8).astype(np.float32)
    return values[: _LUMA**2].reshape(_LUMA, _LUMA), values[_LUMA**2 :].reshape(-1, 2) - 128


def _normalize(lumas: Floats) -> Floats:
    """Scale each grid in `lumas` (... x 24 x 24) to mean 0 and norm 1; a uniform grid becomes zeros.

    Then the sum of the products of two grids' cells is the correlation of the grids.
    """
    centered: Floats = lumas - lumas.mean(axis=(-2, -1), keepdims=True)
    centered /= np.maximum(np.sqrt((centered**2).sum(axis=(-2, -1), keepdims=True)), 1e-6)
    return centered


def _is_graphic(luma: Floats) -> bool:
    down, right = (np.abs(np.diff(luma, axis=axis)) for axis in (0, 1))
    return bool((np.maximum(down[:, :-1], right[:-1]) < _FLAT_LEVELS).mean() > _MAX_FLAT_SHARE)


def _has_same_colors(first: Floats, second: Floats) -> bool:
    """Whether two pictures' chroma values (cells x 2) agree; saturation, a small color cast and noise are ignored."""
    centered = first - first.mean(axis=0)
    factor = np.vdot(centered, second - second.mean(axis=0)) / max(float(np.vdot(centered, centered)), 1e-6)
    difference = second - np.clip(factor, *_SATURATION) * first
    cast = np.clip(difference.mean(axis=0), -_MAX_COLOR_CAST, _MAX_COLOR_CAST)
    return float(np.abs(difference - cast).mean()) <= _MAX_CHROMA_DIFFERENCE


def _crop_matrices() -> Floats:
    """Return matrices, each of which cuts a part out of a row or column of 24 brightness cells and stretches it to 24.

    The axes of the array are: length of the part (index in `_CROP_SIDES`), position of the part (0 to
    `_CROP_STEPS` - 1), cell of the stretched part, and cell of the whole row or column.
    """
    matrices = []
    for side in _CROP_SIDES:
        for start in np.linspace(0, _LUMA * (1 - side), _CROP_STEPS):
            places = np.clip(start + (np.arange(_LUMA) + 0.5) * side - 0.5, 0, _LUMA - 1)
            matrices.append(np.maximum(0, 1 - np.abs(places[:, None] - np.arange(_LUMA)[None, :])))
    return np.array(matrices, dtype=np.float32).reshape(len(_CROP_SIDES), _CROP_STEPS, _LUMA, _LUMA)


_CROPS: Final = _crop_matrices()


def _best_crop_correlation(crop: Floats, whole: Floats) -> float:
    """Return the greatest correlation, -1 to 1, of the lumas `crop` with a crop of the lumas `whole`.

    Both are 24 x 24. Each crop that is tried (`_CROP_SIDES`, `_CROP_STEPS`) is stretched to 24 x 24.
    """
    rows = _CROPS @ whole
    crops: Floats = rows[:, :, None] @ _CROPS.swapaxes(-1, -2)[:, None]
    return float((_normalize(crops) * _normalize(crop)).sum(axis=(-2, -1)).max())
