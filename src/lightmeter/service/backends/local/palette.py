"""Back end `palette`: dominant colors of a picture, by deterministic clustering of its pixels in a few milliseconds.

The picture is sampled on a jittered grid (exact colors, no aliasing with regular patterns), binned, and clustered in
Oklab, a color space in which equal distances look about equally different. Each cluster is represented by its medoid, a
color that occurs in the picture. Near clusters are merged if the colors of the merged cluster are still similar. The
returned fraction of a color counts only the pixels that are similar to the color.

Limits: it does not separate objects from the background or correct color casts. A smooth gradient has no dominant
color; the returned colors are some of its colors.

Measured by `tests/bench/quality/test_colors_quality.py` on 92 pictures. The mean distance of a pixel from the nearest
returned color is 5.3 CIEDE2000 (k-means in CIELAB 4.7, median cut 5.6). A returned color misrepresents its pixels if
less than a third of them are within 5 CIEDE2000 of it. Of the colors with a fraction of 5 % or more, 8 % do so (k-means
24 %, median cut 35 %).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lightmeter.media.oklab import srgb_to_oklab
from lightmeter.service.backends.base import RGB, PictureBackend
from lightmeter.wire.response import Color, Entries

Floats: TypeAlias = NDArray[np.float64]
Members: TypeAlias = NDArray[np.intp]

MAX_COLORS: Final = 8
"""Maximum number of colors for one picture."""

_GRID: Final = 128
"""Maximum number of samples along each side of a picture. With 16,384 samples in all, the fraction of a color has a
standard error of about 0.4 %."""
_CLUSTERS: Final = 12
"""Maximum number of clusters before merging: 1.5 times `MAX_COLORS`."""
_MAX_ITERATIONS: Final = 12
"""Maximum number of iterations of Lloyd's algorithm; after about eight, fractions change by less than a percent."""
_SIMILAR: Final = 0.06
"""Two colors count as similar, so that one may represent the other, up to this Oklab distance. A just noticeable
difference is about 0.02."""
_MAX_WIDTH: Final = 0.03
"""Two clusters are not merged if the mean Oklab distance from their colors to their common medoid would exceed this."""
_DISTANCE_CAP: Final = 0.05
"""Larger Oklab distances from a medoid count as this distance, so that outliers have less influence."""
_MAX_CANDIDATES: Final = 64
"""Maximum number of colors of a cluster that are tried as its medoid, to bound the time. The most frequent are
tried."""
_MIN_SHARE: Final = 0.005
"""Colors that represent a smaller fraction of the pixels are not returned, because such clusters are edges and
noise. The most frequent color is always returned."""
_CHROMA_WEIGHT: Final = 2.0
"""Weight of the chroma in the prominence of a color (`_prominence`)."""
_CONTRAST_WEIGHT: Final = 1.0
"""Weight of the contrast in the prominence of a color (`_prominence`)."""
_FULL_CHROMA: Final = 0.3225
"""Largest Oklab chroma of any sRGB color; magenta has it."""
_MIN_SEED_WEIGHT: Final = 1e-9
"""A bin becomes a seed only if its weight is above this. The weight is the squared distance from the nearest seed,
times the root of the fraction of the samples in the bin."""
_GOLDEN_RATIO: Final = (5**0.5 - 1) / 2


def _sample_positions(length: int, offset: float) -> NDArray[np.intp]:
    """Return 128 pixel indices below `length`, one in each of 128 equal sections.

    If `length` is at most 128, return every index. The position within a section is not random, but a multiple of the
    golden ratio plus `offset`, modulo 1.
    """
    if length <= _GRID:
        return np.arange(length)
    strata = np.arange(_GRID)
    jitter = (strata * _GOLDEN_RATIO + offset) % 1
    return np.minimum(((strata + jitter) * length / _GRID).astype(np.intp), length - 1)


@dataclass(frozen=True, slots=True)
class _Bins:
    """Sampled pixels of a picture, grouped by similar color into n groups (bins), none of them empty.

    The colors of a bin agree in the upper five bits of red, green and blue.

    Attributes:
        colors: Mean Oklab color of each bin, `(n, 3)`.
        shares: Fraction of the sampled pixels that are in each bin, `(n,)`.
        members: For each bin, the sRGB color of the sampled pixel nearest to the mean color of the bin, `(n, 3)`.
    """

    colors: Floats
    shares: Floats
    members: RGB


def _bin_samples(picture: RGB) -> _Bins:
    height, width = picture.shape[:2]
    sample = picture[np.ix_(_sample_positions(height, 0.0), _sample_positions(width, 0.5))].reshape(-1, 3)
    keys = (sample >> 3).astype(np.int64) @ np.array([1024, 32, 1])
    _, inverse, counts = np.unique(keys, return_inverse=True, return_counts=True)
    sums = [np.bincount(inverse, weights=sample[:, channel], minlength=len(counts)) for channel in range(3)]
    means = np.stack(sums, axis=1) / counts[:, None]
    away = ((sample - means[inverse]) ** 2).sum(axis=1)
    # By bin, then by distance: the first of each bin is its nearest sample.
    order = np.lexsort((away, inverse))
    nearest = order[np.cumsum(counts) - counts]
    # Averaged in sRGB: inside a bin, eight levels wide, the transfer function is nearly linear.
    return _Bins(srgb_to_oklab(means / 255.0), counts / len(sample), sample[nearest])


def _squared_distances(points: Floats, centers: Floats) -> Floats:
    # |p - c|² expanded: one small matrix product instead of n * k * 3 differences.
    crossed = points @ centers.T
    squared: Floats = (points**2).sum(axis=1)[:, None] - 2 * crossed + (centers**2).sum(axis=1)
    return np.maximum(squared, 0)


def _seeds(points: Floats, shares: Floats) -> Floats:
    """Return up to `_CLUSTERS` of the Oklab colors `points`, as initial centers for k-means.

    `shares` is the fraction of the pixels that each color has. The first center is the most frequent color. Each next
    center is the color with the largest weight: its squared distance from the nearest center so far, times the square
    root of its share.
    """
    chosen = [int(np.argmax(shares))]
    nearest = _squared_distances(points, points[chosen])[:, 0]
    while len(chosen) < _CLUSTERS:
        # Square roots of fractions: a rare color far from all others gets a seed, too.
        weights = np.sqrt(shares) * nearest
        best = int(np.argmax(weights))
        if weights[best] <= _MIN_SEED_WEIGHT:
            break
        chosen.append(best)
        nearest = np.minimum(nearest, _squared_distances(points, points[[best]])[:, 0])
    return points[chosen]


def _cluster(points: Floats, shares: Floats) -> list[Members]:
    """Cluster the Oklab colors `points` by k-means; return the indices in `points` of each cluster's colors.

    `shares` is the fraction of the pixels that each color has; k-means uses it as the weight of the color.
    """
    centers = _seeds(points, shares)
    nearest_center = np.zeros(len(points), dtype=np.intp)
    for iteration in range(_MAX_ITERATIONS):
        new_nearest_center = np.argmin(_squared_distances(points, centers), axis=1)
        if iteration and np.array_equal(new_nearest_center, nearest_center):
            break
        nearest_center = new_nearest_center
        weight = np.bincount(nearest_center, weights=shares, minlength=len(centers))
        for axis in range(3):
            total = np.bincount(nearest_center, weights=shares * points[:, axis], minlength=len(centers))
            centers[:, axis] = np.where(weight > 0, total / np.maximum(weight, 1e-12), centers[:, axis])
    clusters = [np.flatnonzero(nearest_center == index) for index in range(len(centers))]
    return [members for members in clusters if members.size]


def _medoid(points: Floats, shares: Floats, members: Members) -> tuple[int, float]:
    """Find the medoid of a cluster of colors: the member with the smallest sum of distances to the others.

    Distances are capped at `_DISTANCE_CAP`, so that outliers do not move the medoid. Only the `_MAX_CANDIDATES` most
    frequent members are tried.

    Args:
        points: Oklab colors of the picture, `(n, 3)`.
        shares: Fraction of the pixels that each color has, `(n,)`; each distance is weighted by it.
        members: Indices in `points` of the colors of the cluster.

    Returns:
        Index of the medoid in `points`, and the mean of the capped distances between medoid and members.
    """
    common = members[np.argsort(-shares[members], kind="stable")[:_MAX_CANDIDATES]]
    distances = np.minimum(np.sqrt(_squared_distances(points[common], points[members])), _DISTANCE_CAP)
    widths = distances @ shares[members] / shares[members].sum()
    best = int(np.argmin(widths))
    return int(common[best]), float(widths[best])


def _merge(points: Floats, shares: Floats, clusters: list[Members]) -> Members:
    """Merge clusters of similar colors in pairs, the nearest pair first; return the medoids of the remaining clusters.

    Two clusters are merged only if their medoids are nearer than `_SIMILAR` in Oklab, and the mean distance of their
    colors to their common medoid is at most `_MAX_WIDTH`.

    Args:
        points: Oklab colors of the picture, `(n, 3)`.
        shares: Fraction of the pixels that each color has, `(n,)`.
        clusters: For each cluster, the indices in `points` of its colors.

    Returns:
        Index in `points` of the medoid of each remaining cluster.
    """
    clusters = list(clusters)
    medoids = np.array([_medoid(points, shares, members)[0] for members in clusters])
    distances = _squared_distances(points[medoids], points[medoids])
    np.fill_diagonal(distances, np.inf)
    while len(clusters) > 1:
        first, second = sorted(divmod(int(np.argmin(distances)), len(clusters)))
        if distances[first, second] >= _SIMILAR**2:
            break
        joint = np.concatenate([clusters[first], clusters[second]])
        medoid, width = _medoid(points, shares, joint)
        if width > _MAX_WIDTH:
            distances[first, second] = distances[second, first] = np.inf
            continue
        clusters[first], medoids[first] = joint, medoid
        del clusters[second]
        medoids = np.delete(medoids, second)
        distances = np.delete(np.delete(distances, second, axis=0), second, axis=1)
        distances[first] = distances[:, first] = _squared_distances(points[medoids], points[[medoid]])[:, 0]
        distances[first, first] = np.inf
    return medoids


def _prominence(centers: Floats, shares: Floats) -> Floats:
    """Return the prominence of each color: share * (1 + 2 * chroma + contrast), divided by the sum over all colors.

    `centers` are the colors in Oklab, `(n, 3)`. `shares` is the fraction of the pixels that each color has. Chroma is
    relative to the most vivid sRGB color. Contrast is the Oklab distance from the picture's mean color, at most 1
    (white on black). A vivid or contrasting area counts for up to four times its size. The formula was made for this
    project.
    """
    chroma = np.hypot(centers[:, 1], centers[:, 2]) / _FULL_CHROMA
    contrast = np.minimum(np.linalg.norm(centers - shares @ centers / shares.sum(), axis=1), 1)
    weighted = shares * (1 + _CHROMA_WEIGHT * chroma + _CONTRAST_WEIGHT * contrast)
    prominence: Floats = weighted / weighted.sum()
    return prominence


def dominant_colors(picture: RGB, *, source: str = "palette") -> list[Color]:
    """Find the dominant colors of a picture, most prominent first.

    Args:
        picture: Height by width by 3, 0 to 255, not empty.
        source: Name of a back end, which becomes the `source` of the returned colors.

    Returns:
        One to `MAX_COLORS` colors that occur in the picture. `score` is the prominence of a color (`_prominence`).
        `pixel_fraction` is the fraction of the pixels that the color represents: this color is the nearest one to them,
        at an Oklab distance of at most 0.06. The fractions add up to at most 1, and so do the scores.
    """
    bins = _bin_samples(picture)
    medoids = _merge(bins.colors, bins.shares, _cluster(bins.colors, bins.shares))
    squared = _squared_distances(bins.colors, bins.colors[medoids])
    nearest_center = np.argmin(squared, axis=1)
    is_similar = squared[np.arange(len(nearest_center)), nearest_center] <= _SIMILAR**2
    shares: Floats = np.bincount(
        nearest_center[is_similar], weights=bins.shares[is_similar], minlength=len(medoids)
    ).astype(np.float64)
    scores = _prominence(bins.colors[medoids], shares)
    large = (shares >= _MIN_SHARE) | (shares == shares.max())
    # A stable sort, ties by share: results are the same on every machine.
    order = np.lexsort((-shares, -scores))
    colors = []
    for index in order[large[order]][:MAX_COLORS]:
        red, green, blue = (int(channel) for channel in bins.members[medoids[index]])
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


class PaletteBackend(PictureBackend):
    """Back end `palette`: feature `colors`, the dominant colors of a picture that `dominant_colors` finds."""

    name = "palette"
    features = frozenset({"colors"})

    def _analyze_picture(self, picture: RGB, features: frozenset[str]) -> Entries:  # noqa: ARG002 (there is one feature)
        return Entries(colors={color.hex: [color] for color in dominant_colors(picture, source=self.name)})
