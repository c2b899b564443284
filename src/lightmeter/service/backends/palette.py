"""The dominant colours of a picture, from its pixels alone: no model, no randomness, a few milliseconds.

A picture is sampled on a jittered grid (colours stay exact, regular patterns do not alias), binned, and
clustered in Oklab, where a distance means about the same difference to the eye everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lightmeter.media.oklab import oklab_to_srgb, srgb_to_oklab
from lightmeter.models.response import Color, Entries
from lightmeter.service.backends.base import RGB, AnalysisOptions

__all__ = ["MAX_COLORS", "Palette", "dominant_colors"]

Floats: TypeAlias = NDArray[np.float64]

MAX_COLORS: Final = 8
"""Most entries for one picture."""

_GRID: Final = 128
"""Samples along each side; 16,384 in all put the error of a share near 0.4 % (one standard deviation)."""
_CLUSTERS: Final = 16
"""Clusters before near ones are merged: twice the entries that may be left."""
_ROUNDS: Final = 12
"""Lloyd rounds at most; shares move by less than a percent after about eight."""
_NEAR: Final = 0.1
"""Oklab distance below which two colours go by one name (a just noticeable difference is about 0.02)."""
_LEAST_SHARE: Final = 0.005
"""Smaller clusters are edges and noise, unless the picture has nothing else."""
_CHROMA_WEIGHT: Final = 2.0
_CONTRAST_WEIGHT: Final = 1.0
_FULL_CHROMA: Final = 0.3225
"""Largest Oklab chroma in sRGB (that of its magenta)."""
_SAME: Final = 1e-9
"""Pull of a bin, squared distance times root of share, at which it needs no centre of its own."""
_GOLDEN: Final = (5**0.5 - 1) / 2


def _jittered(length: int, offset: float) -> NDArray[np.intp]:
    """At most `_GRID` positions in `range(length)`, one in each stratum, golden-ratio jitter inside it."""
    if length <= _GRID:
        return np.arange(length)
    strata = np.arange(_GRID)
    jitter = (strata * _GOLDEN + offset) % 1
    return np.minimum(((strata + jitter) * length / _GRID).astype(np.intp), length - 1)


def _histogram(picture: RGB) -> tuple[Floats, Floats]:
    """Bin the samples by the upper five bits of each channel.

    Returns:
        The mean Oklab colour `(n, 3)` and the share `(n,)` of each bin that is not empty.
    """
    height, width = picture.shape[:2]
    sample = picture[np.ix_(_jittered(height, 0.0), _jittered(width, 0.5))].reshape(-1, 3)
    keys = (sample >> 3).astype(np.int64) @ np.array([1024, 32, 1])
    _, inverse, counts = np.unique(keys, return_inverse=True, return_counts=True)
    sums = [np.bincount(inverse, weights=sample[:, channel], minlength=len(counts)) for channel in range(3)]
    # Averaged as sRGB: inside a bin, eight levels wide, the curve is straight enough.
    return srgb_to_oklab(np.stack(sums, axis=1) / (counts[:, None] * 255.0)), counts / len(sample)


def _squared_distances(points: Floats, centers: Floats) -> Floats:
    # |p - c|² spelled out: one small matrix product instead of n * k * 3 differences.
    crossed = points @ centers.T
    squared: Floats = (points**2).sum(axis=1)[:, None] - 2 * crossed + (centers**2).sum(axis=1)
    return np.maximum(squared, 0)


def _seeds(points: Floats, shares: Floats) -> Floats:
    """Start k-means as k-means++ would, but take the likeliest next centre in place of a random one."""
    chosen = [int(np.argmax(shares))]
    nearest = _squared_distances(points, points[chosen])[:, 0]
    while len(chosen) < _CLUSTERS:
        # Square roots of shares: a small colour far from all others deserves a centre too.
        pull = np.sqrt(shares) * nearest
        best = int(np.argmax(pull))
        if pull[best] <= _SAME:
            break
        chosen.append(best)
        nearest = np.minimum(nearest, _squared_distances(points, points[[best]])[:, 0])
    return points[chosen]


def _cluster(points: Floats, shares: Floats) -> tuple[Floats, Floats]:
    """Weighted k-means: centres `(k, 3)` and their shares `(k,)`, empty clusters left out."""
    centers = _seeds(points, shares)
    owner = np.zeros(len(points), dtype=np.intp)
    for turn in range(_ROUNDS):
        new_owner = np.argmin(_squared_distances(points, centers), axis=1)
        if turn and np.array_equal(new_owner, owner):
            break
        owner = new_owner
        weight = np.bincount(owner, weights=shares, minlength=len(centers))
        for axis in range(3):
            total = np.bincount(owner, weights=shares * points[:, axis], minlength=len(centers))
            centers[:, axis] = np.where(weight > 0, total / np.maximum(weight, 1e-12), centers[:, axis])
    held: Floats = np.bincount(owner, weights=shares, minlength=len(centers)).astype(np.float64)
    return centers[held > 0], held[held > 0]


def _merge(centers: Floats, shares: Floats) -> tuple[Floats, Floats]:
    """Join the nearest two centres, weighted, until all are at least `_NEAR` apart."""
    while len(centers) > 1:
        squared = _squared_distances(centers, centers)
        np.fill_diagonal(squared, np.inf)
        first, second = divmod(int(np.argmin(squared)), len(centers))
        if squared[first, second] >= _NEAR**2:
            break
        joint = shares[first] + shares[second]
        centers[first] = (centers[first] * shares[first] + centers[second] * shares[second]) / joint
        shares[first] = joint
        centers, shares = np.delete(centers, second, axis=0), np.delete(shares, second)
    return centers, shares


def _prominence(centers: Floats, shares: Floats) -> Floats:
    """Share * (1 + 2 * chroma + contrast), divided by the sum over all colours of the picture.

    Chroma is relative to the most vivid sRGB colour; contrast is the Oklab distance to the mean of the
    picture, at most 1 (white on black). A vivid or contrasting patch thus counts for up to four times its
    area. The formula is our own.
    """
    chroma = np.hypot(centers[:, 1], centers[:, 2]) / _FULL_CHROMA
    contrast = np.minimum(np.linalg.norm(centers - shares @ centers, axis=1), 1)
    weighted = shares * (1 + _CHROMA_WEIGHT * chroma + _CONTRAST_WEIGHT * contrast)
    prominence: Floats = weighted / weighted.sum()
    return prominence


def dominant_colors(picture: RGB, *, source: str = "palette") -> list[Color]:
    """Find the dominant colours of a picture, most prominent first.

    Args:
        picture: Height by width by 3, 0 to 255, not empty.
        source: What the entries name as their source.

    Returns:
        One to `MAX_COLORS` colours, no two nearer than an Oklab distance of about 0.1. `pixel_fraction` is
        the share of the picture's pixels nearest to the colour, `score` its prominence; each adds up to at
        most 1.
    """
    centers, shares = _merge(*_cluster(*_histogram(picture)))
    scores = _prominence(centers, shares)
    large = (shares >= _LEAST_SHARE) | (shares == shares.max())
    channels = np.rint(oklab_to_srgb(centers) * 255).astype(int)
    # A stable sort, ties by share: the same picture gives the same bytes everywhere.
    order = np.lexsort((-shares, -scores))
    colors = []
    for index in order[large[order]][:MAX_COLORS]:
        red, green, blue = (int(channel) for channel in channels[index])
        colors.append(
            Color(
                hex=f"#{red:02x}{green:02x}{blue:02x}",
                # Rounded down, so that the sums stay at or below 1.
                score=int(scores[index] * 10_000) / 10_000,
                pixel_fraction=int(shares[index] * 10_000 + 1e-6) / 10_000,
                red=red,
                green=green,
                blue=blue,
                source=source,
            )
        )
    return colors


class Palette:
    """Back end `palette`: feature `colors`."""

    name = "palette"
    features = frozenset({"colors"})
    model = "clustering in Oklab, no model"
    licence = "Apache-2.0"

    def warm(self) -> None:
        """Nothing to load."""

    def analyze(
        self,
        pictures: Sequence[RGB],
        features: frozenset[str],
        options: AnalysisOptions,  # noqa: ARG002 (colours depend on no option)
    ) -> list[Entries]:
        """Find the dominant colours of each picture; see `dominant_colors`."""
        if "colors" not in features:
            return [Entries() for _ in pictures]
        return [
            Entries(colors={color.hex: [color] for color in dominant_colors(picture, source=self.name)})
            for picture in pictures
        ]
