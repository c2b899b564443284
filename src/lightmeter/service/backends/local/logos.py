"""Brands by the user's own logos: local features of each logo, looked for in each picture.

Features are those of SIFT (D. Lowe, "Distinctive image features from scale-invariant keypoints", IJCV 2004). Those of a
logo are matched with those of a picture, and a logo is found where enough of the matches agree on one perspective view
of it (RANSAC). Nothing is learned, so that one clear picture of a logo is enough.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import cv2
import numpy as np
from numpy.typing import NDArray

from lightmeter.cpu_count import process_cpu_count
from lightmeter.errors import BackendError, MediaError
from lightmeter.media.image import load_rgb
from lightmeter.media.image_transforms import FitWithin, transform_array
from lightmeter.models.response import Brand, Entries
from lightmeter.service.backends.base import MAX_SIDE, RGB, AnalysisOptions, BackendTraits

__all__ = ["LEAST_FEATURES", "LEAST_INLIERS", "Logos"]

log = logging.getLogger("lightmeter.service")

Floats: TypeAlias = NDArray[np.float32]

LEAST_FEATURES: Final = 40
"""Features of the simplest logo that is looked for: about a third of them are found again in a good picture."""
LEAST_INLIERS: Final = 12
"""Matches that must agree on where a logo lies. Eight parameters are fitted: four matches always agree."""

_VIEW: Final = FitWithin(MAX_SIDE)
_LOGO_SIDE: Final = 400
"""Longest side of a logo, in pixels, when its features are taken."""
_MAX_FEATURES: Final = 4000
"""Of a picture, the strongest first: bounds time and memory."""
_MAX_LOGO_FEATURES: Final = 800
_RATIO: Final = 0.75
"""A match must be so much nearer than the next best one (Lowe, section 7.1, found 0.8)."""
_OFF_PX: Final = 4.0
"""Farthest, in pixels, that a match may lie from where the others put it."""
_LEAST_SIDE: Final = 12.0
"""Shortest side of a found logo in the picture, in pixels."""
_MAX_STRETCH: Final = 4.0
"""A logo's sides may have been shortened by perspective, one against the other, at most so much."""


@dataclass(frozen=True, slots=True)
class _Features:
    """Local features of a picture: `points`, n x 2 in pixels, and their `descriptors`, n x 128."""

    points: Floats
    descriptors: Floats


@dataclass(frozen=True, slots=True)
class _Logo:
    """One picture of a brand's logo, its size in pixels, and its features."""

    brand: str
    width: int
    height: int
    features: _Features


@dataclass(frozen=True, slots=True)
class _Sighting:
    """A logo in a picture; its corners clockwise from the logo's upper left."""

    brand: str
    score: float
    inliers: int
    corners: tuple[tuple[int, int], ...]


class Logos:
    """Back end `logos`: feature `brands`, for the logos in a folder.

    A file `Brand.png` is the logo of Brand; a folder `Brand` holds several pictures of it (variants, with and without
    the name, on a light and on a dark ground). What is transparent is taken for white. Of each brand the best sighting
    in a picture is answered, once.

    The score is the share of the logo's matches that agree on one place, 0 to 1: it says how clear the sighting is, and
    is no probability. Sightings of fewer than 12 agreeing matches are left out.

    It finds logos with detail (a crest, letters, a drawing) that are about 100 pixels wide or more, where the longer
    side of the picture has 1024; also turned, tilted or partly hidden. It cannot find simple marks (a swoosh, three
    stripes): they have too few features, and loading them logs a warning. It does not find a logo whose light and dark
    are exchanged, nor one that is redrawn.

    Measured (`tests/bench/quality`): of four logos pasted into 16 photographs, 14 of 16 found at 120 and at 200 pixels,
    10 at 80, 4 at 60; none invented there nor on 139 photographs without logos.

    Args:
        folder: With the logos; read once, when the back end is loaded.
    """

    name = "logos"
    features = frozenset({"brands"})
    model = "SIFT features and RANSAC, of OpenCV"
    licence = "Apache-2.0"

    def __init__(self, folder: Path) -> None:
        self.traits = BackendTraits(calls_at_once=process_cpu_count(), view=_VIEW)
        self._folder = folder
        self._loading = threading.Lock()
        self._logos: tuple[_Logo, ...] | None = None

    def warm(self) -> None:
        """Read the logos.

        Raises:
            BackendError: there is no such folder, or no logo in it that can be found.
        """
        self._load()

    def _load(self) -> tuple[_Logo, ...]:
        with self._loading:
            if self._logos is None:
                cv2.setNumThreads(1)  # each core has a caller
                self._logos = tuple(_read_logos(self._folder))
            return self._logos

    def analyze(
        self,
        pictures: Sequence[RGB],
        features: frozenset[str],
        options: AnalysisOptions,  # noqa: ARG002 (nothing to choose)
    ) -> list[Entries]:
        """Look for each logo in each picture.

        Raises:
            BackendError: the logos cannot be read.
        """
        if "brands" not in features:
            return [Entries() for _ in pictures]
        logos = self._load()
        return [Entries(brands=[self._brand(one) for one in _sightings(picture, logos)]) for picture in pictures]

    def _brand(self, sighting: _Sighting) -> Brand:
        corners: list[dict[str, Any]] = [{"x": x, "y": y} for x, y in sighting.corners]
        return Brand(name=sighting.brand, score=sighting.score, bounding_poly={"vertices": corners}, source=self.name)


def _logo_files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Each file with the brand it stands for, in a fixed order; hidden files are none."""
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        if path.is_dir():
            yield from ((path.name, file) for file in sorted(path.iterdir()) if not file.name.startswith("."))
        else:
            yield path.stem, path


def _read_logos(folder: Path) -> list[_Logo]:
    """The logos that can be found; of the others a warning says why they cannot.

    Raises:
        BackendError: none can, or there is no such folder.
    """
    try:
        files = list(_logo_files(folder))
    except OSError as error:
        raise BackendError(
            f"The folder of logos cannot be read: {error}.", hint="Set LIGHTMETER_LOGOS_DIR to a folder with pictures."
        ) from error
    logos = []
    for brand, path in files:
        try:
            picture = load_rgb(path.read_bytes(), max_side=_LOGO_SIDE)
        except (MediaError, OSError) as error:
            log.warning("The logo %s cannot be read: %s", path, error)
            continue
        found = _features(picture, _MAX_LOGO_FEATURES)
        if len(found.points) < LEAST_FEATURES:
            log.warning(
                "The logo %s has %d features, fewer than %d: simple marks cannot be found. Leave it out, or add a "
                "picture with more detail.",
                path,
                len(found.points),
                LEAST_FEATURES,
            )
            continue
        logos.append(_Logo(brand, picture.shape[1], picture.shape[0], found))
    if not logos:
        raise BackendError(
            f"No logo in {folder} can be found in pictures.",
            hint="Add pictures of logos; the log says why others fail.",
        )
    return logos


def _features(picture: RGB, most: int) -> _Features:
    grey = cv2.cvtColor(np.ascontiguousarray(picture), cv2.COLOR_RGB2GRAY)
    descriptors: Any  # None where there are no keypoints, which the types of OpenCV do not say
    keypoints, descriptors = cv2.SIFT.create(nfeatures=most).detectAndCompute(grey, None)
    if descriptors is None:
        return _Features(np.zeros((0, 2), np.float32), np.zeros((0, 128), np.float32))
    points = np.array([keypoint.pt for keypoint in keypoints], np.float32)
    # OpenCV gives more than asked for where several are equally strong.
    return _Features(points[:most], np.asarray(descriptors, np.float32)[:most])


def _sightings(picture: RGB, logos: Sequence[_Logo]) -> list[_Sighting]:
    """The best sighting of each brand, the clearest first; coordinates are those of the picture."""
    seen = transform_array(picture, _VIEW)
    across, down = picture.shape[1] / seen.shape[1], picture.shape[0] / seen.shape[0]
    features = _features(seen, _MAX_FEATURES)
    best: dict[str, _Sighting] = {}
    if len(features.points) < LEAST_INLIERS:
        return []
    for logo in logos:
        found = _sighted(logo, features, across, down)
        if found is not None and (logo.brand not in best or found.inliers > best[logo.brand].inliers):
            best[logo.brand] = found
    return sorted(best.values(), key=lambda one: (-one.score, one.brand))


def _sighted(logo: _Logo, features: _Features, across: float, down: float) -> _Sighting | None:
    """Where a logo lies in a picture with these features; None if it is not there."""
    pairs = cv2.BFMatcher(cv2.NORM_L2).knnMatch(logo.features.descriptors, features.descriptors, k=2)
    nearest: dict[int, cv2.DMatch] = {}  # a point of the picture stands for one point of the logo
    for first, second in pairs:
        known = nearest.get(first.trainIdx)
        if first.distance < _RATIO * second.distance and (known is None or first.distance < known.distance):
            nearest[first.trainIdx] = first
    if len(nearest) < LEAST_INLIERS:
        return None
    origin = logo.features.points[[match.queryIdx for match in nearest.values()]]
    target = features.points[list(nearest)]
    # Its random draws start from a constant: the same pictures give the same answer.
    homography, agreeing = cv2.findHomography(origin, target, cv2.RANSAC, _OFF_PX, maxIters=2000, confidence=0.999)
    if homography is None or (inliers := int(agreeing.sum())) < LEAST_INLIERS:
        return None
    corners = np.array([[[0, 0]], [[logo.width, 0]], [[logo.width, logo.height]], [[0, logo.height]]], np.float32)
    outline = cv2.perspectiveTransform(corners, homography).reshape(4, 2).astype(np.float64)
    if not _is_plausible(outline, logo.width, logo.height):
        return None
    placed = tuple((round(x * across), round(y * down)) for x, y in outline.tolist())
    return _Sighting(logo.brand, round(inliers / len(nearest), 4), inliers, placed)


def _is_plausible(outline: NDArray[np.float64], width: int, height: int) -> bool:
    """Whether four corners may be a flat logo seen from its front: convex, not mirrored, not squeezed to a line.

    Args:
        outline: The corners in the picture, 4 x 2 in pixels, in the order in which they go round the logo clockwise.
        width: Of the logo, in pixels.
        height: Likewise.
    """
    if not np.isfinite(outline).all():
        return False
    sides = np.roll(outline, -1, axis=0) - outline
    following = np.roll(sides, -1, axis=0)
    turns = sides[:, 0] * following[:, 1] - sides[:, 1] * following[:, 0]
    if not (turns > 0).all():  # clockwise, where y points down, as the corners of the logo
        return False
    lengths = np.hypot(sides[:, 0], sides[:, 1])
    if lengths.min() < _LEAST_SIDE:
        return False
    scales = lengths / np.array([width, height, width, height])
    return bool(scales.max() <= _MAX_STRETCH * scales.min())
