"""Back end `logos`: finds the operator's own logos in pictures by local features.

SIFT features (D. Lowe, "Distinctive image features from scale-invariant keypoints", IJCV 2004) of each logo are matched
with those of a picture. A logo is found if enough matches agree on its position (RANSAC). There is no training: one
clear picture of a logo is enough.
"""

from __future__ import annotations

import logging
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
from lightmeter.service.backends.base import MAX_SIDE, RGB, BackendTraits, PictureBackend
from lightmeter.wire.response import Brand, Entries

log = logging.getLogger("lightmeter.service")

Floats: TypeAlias = NDArray[np.float32]

MIN_FEATURES: Final = 40
"""Minimum number of SIFT features of a logo; a logo with fewer is left out. In a good picture, about a third of a
logo's features are found again."""
MIN_INLIERS: Final = 12
"""Minimum number of matches that must agree on the position of a logo. Any four matches would agree, because a
homography has eight parameters."""

_TRANSFORM: Final = FitWithin(MAX_SIDE)
_LOGO_SIDE: Final = 400
"""Longest side of a logo's picture, in pixels; a larger one is shrunk before its features are extracted."""
_MAX_FEATURES: Final = 4000
"""Maximum number of features that are extracted from a picture, to bound time and memory. The strongest are kept."""
_MAX_LOGO_FEATURES: Final = 800
"""Maximum number of features that are extracted from a logo. The strongest are kept."""
_MAX_DISTANCE_RATIO: Final = 0.75
"""The best match of a feature counts only if its distance is less than this times the distance of the second-best
match (Lowe, section 7.1, has 0.8)."""
_MAX_REPROJECTION_PX: Final = 4.0
"""A match agrees with an assumed position of the logo if its feature in the picture is at most this far, in pixels,
from where the logo's feature would be at that position."""
_MIN_SIDE: Final = 12.0
"""A found logo is rejected if one of its four sides in the picture is shorter than this, in pixels."""
_MAX_STRETCH: Final = 4.0
"""A found logo is rejected if the scales of its four sides differ by more than this factor. Perspective makes them
differ."""


@dataclass(frozen=True, slots=True)
class _Features:
    """SIFT features of a picture: `points` `(n, 2)` in pixels, and `descriptors` `(n, 128)`."""

    points: Floats
    descriptors: Floats


@dataclass(frozen=True, slots=True)
class _Logo:
    """Picture of a brand's logo: its size in pixels and its SIFT features."""

    brand: str
    width: int
    height: int
    features: _Features


@dataclass(frozen=True, slots=True)
class _Match:
    """Logo found in a picture.

    Attributes:
        brand: Name of the brand.
        score: Fraction of the matching features that agree on the logo's position, 0 to 1.
        inliers: Number of features that agree.
        corners: x and y of the logo's corners, in pixels of the picture, clockwise from the logo's upper left.
    """

    brand: str
    score: float
    inliers: int
    corners: tuple[tuple[int, int], ...]


class Logos(PictureBackend):
    """Back end `logos`: feature `brands`; it finds the logos whose pictures the operator has put in a folder.

    A file `Brand.png` is the logo of Brand; a folder `Brand` holds several pictures of it (variants, with and without
    the name, on light and dark backgrounds). Transparent parts count as white. For each brand, only the best match in a
    picture is returned.

    The score is the fraction of a logo's matching features that agree on one position, 0 to 1; it is not a probability.
    Logos with fewer than 12 agreeing features are not returned.

    It finds logos with detail (a crest, letters, a drawing), even if they are rotated, tilted or partly hidden. They
    must be at least about 100 pixels wide in a picture whose longer side has 1024. It cannot find simple marks (a
    swoosh, three stripes): they have too few features, and loading them logs a warning. It does not find inverted or
    redrawn logos.

    Measured (`tests/bench/quality`) on 16 photographs, each with one of four logos pasted in. At a width of 120 or 200
    pixels, the logo was found in 14 photographs; at 80 pixels in 10; at 60 pixels in 4. No wrong logo was found in
    these photographs, and no logo at all in 139 photographs without logos.

    Args:
        folder: Folder with the logos; it is read once, when the back end is loaded.
    """

    name = "logos"
    features = frozenset({"brands"})
    traits = BackendTraits(calls_at_once=process_cpu_count(), transform=_TRANSFORM)

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def _load(self) -> None:
        cv2.setNumThreads(1)  # the service has a thread for each core
        self._logos = _read_logos(self._folder)

    def _analyze_picture(self, picture: RGB, features: frozenset[str]) -> Entries:  # noqa: ARG002 (there is one feature)
        return Entries(brands=[self._brand(match) for match in _find_logos(picture, self._logos)])

    def _brand(self, match: _Match) -> Brand:
        corners: list[dict[str, Any]] = [{"x": x, "y": y} for x, y in match.corners]
        return Brand(name=match.brand, score=match.score, bounding_poly={"vertices": corners}, source=self.name)


def _logo_files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the brand and the path of each file in a folder of logos, sorted by path; hidden files are skipped.

    The brand is the name of the subfolder that holds the file or, without a subfolder, the file's name without suffix.
    """
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        if path.is_dir():
            yield from ((path.name, file) for file in sorted(path.iterdir()) if not file.name.startswith("."))
        else:
            yield path.stem, path


def _read_logos(folder: Path) -> list[_Logo]:
    """Return the logos of a folder. Log a warning for each file that is no picture or has too few SIFT features.

    Raises:
        BackendError: the folder cannot be read, or holds no usable logo.
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
        found = _extract_features(picture, _MAX_LOGO_FEATURES)
        if len(found.points) < MIN_FEATURES:
            log.warning(
                "The logo %s has %d features, fewer than %d: simple marks cannot be found. Leave it out, or add a "
                "picture with more detail.",
                path,
                len(found.points),
                MIN_FEATURES,
            )
            continue
        logos.append(_Logo(brand, picture.shape[1], picture.shape[0], found))
    if not logos:
        raise BackendError(
            f"No logo in {folder} can be found in pictures.",
            hint="Add pictures of logos; the log says why others fail.",
        )
    return logos


def _extract_features(picture: RGB, max_features: int) -> _Features:
    grey = cv2.cvtColor(np.ascontiguousarray(picture), cv2.COLOR_RGB2GRAY)
    descriptors: Any  # None without keypoints, which OpenCV's type hints omit
    keypoints, descriptors = cv2.SIFT.create(nfeatures=max_features).detectAndCompute(grey, None)
    if descriptors is None:
        return _Features(np.zeros((0, 2), np.float32), np.zeros((0, 128), np.float32))
    points = np.array([keypoint.pt for keypoint in keypoints], np.float32)
    # OpenCV returns more features than requested if several are equally strong.
    return _Features(points[:max_features], np.asarray(descriptors, np.float32)[:max_features])


def _find_logos(picture: RGB, logos: Sequence[_Logo]) -> list[_Match]:
    """Find logos in `picture`; return the best match of each brand, highest score first.

    The corners of the matches are in pixels of `picture`.
    """
    resized = transform_array(picture, _TRANSFORM)
    across, down = picture.shape[1] / resized.shape[1], picture.shape[0] / resized.shape[0]
    features = _extract_features(resized, _MAX_FEATURES)
    best: dict[str, _Match] = {}
    if len(features.points) < MIN_INLIERS:
        return []
    for logo in logos:
        found = _find_logo(logo, features, across, down)
        if found is not None and (logo.brand not in best or found.inliers > best[logo.brand].inliers):
            best[logo.brand] = found
    return sorted(best.values(), key=lambda match: (-match.score, match.brand))


def _find_logo(logo: _Logo, features: _Features, across: float, down: float) -> _Match | None:
    """Return where a picture shows a logo; None if the picture does not show it.

    Args:
        logo: The logo.
        features: SIFT features of a resized copy of the picture.
        across: Width of the original picture divided by the width of the copy.
        down: Height of the original picture divided by the height of the copy.
    """
    pairs = cv2.BFMatcher(cv2.NORM_L2).knnMatch(logo.features.descriptors, features.descriptors, k=2)
    nearest: dict[int, cv2.DMatch] = {}  # each point of the picture matches one point of the logo
    for first, second in pairs:
        previous = nearest.get(first.trainIdx)
        if first.distance < _MAX_DISTANCE_RATIO * second.distance and (
            previous is None or first.distance < previous.distance
        ):
            nearest[first.trainIdx] = first
    if len(nearest) < MIN_INLIERS:
        return None
    origin = logo.features.points[[match.queryIdx for match in nearest.values()]]
    target = features.points[list(nearest)]
    # OpenCV seeds RANSAC with a constant, so results are reproducible.
    homography, agreeing = cv2.findHomography(
        origin, target, cv2.RANSAC, _MAX_REPROJECTION_PX, maxIters=2000, confidence=0.999
    )
    if homography is None or (inliers := int(agreeing.sum())) < MIN_INLIERS:
        return None
    corners = np.array([[[0, 0]], [[logo.width, 0]], [[logo.width, logo.height]], [[0, logo.height]]], np.float32)
    outline = cv2.perspectiveTransform(corners, homography).reshape(4, 2).astype(np.float64)
    if not _is_plausible(outline, logo.width, logo.height):
        return None
    corners_px = tuple((round(x * across), round(y * down)) for x, y in outline.tolist())
    return _Match(logo.brand, round(inliers / len(nearest), 4), inliers, corners_px)


def _is_plausible(outline: NDArray[np.float64], width: int, height: int) -> bool:
    """Return whether `outline` can be a flat logo that a picture shows from the front or at an angle.

    The outline must be convex and not mirrored. Each side must have at least `_MIN_SIDE` pixels. The scales of the four
    sides (length in the picture / length on the logo) must differ at most by the factor `_MAX_STRETCH`.

    Args:
        outline: The logo's four corners in the picture, `(4, 2)` in pixels, in clockwise order on the logo.
        width: Width of the logo, in pixels.
        height: Height of the logo, in pixels.
    """
    if not np.isfinite(outline).all():
        return False
    sides = np.roll(outline, -1, axis=0) - outline
    following = np.roll(sides, -1, axis=0)
    turns = sides[:, 0] * following[:, 1] - sides[:, 1] * following[:, 0]
    if not (turns > 0).all():  # clockwise, with y pointing down, as on the logo
        return False
    lengths = np.hypot(sides[:, 0], sides[:, 1])
    if lengths.min() < _MIN_SIDE:
        return False
    scales = lengths / np.array([width, height, width, height])
    return bool(scales.max() <= _MAX_STRETCH * scales.min())
