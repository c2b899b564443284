"""Bounding boxes: overlap, non-maximum suppression, and conversion from model input to picture coordinates."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from lightmeter.media.image_transforms import LetterboxedImage

Floats: TypeAlias = NDArray[np.float32]


def corners(centered: Floats) -> Floats:
    """Convert boxes `(n, 4)` from center x, center y, width, height to left, top, right, bottom."""
    half = centered[:, 2:] / 2
    return np.concatenate([centered[:, :2] - half, centered[:, :2] + half], axis=1)


def intersection_over_union(box: Floats, boxes: Floats) -> Floats:
    """Return the intersection over union, 0 to 1, of a box `(4,)` with each of `boxes` `(n, 4)`.

    A box is left, top, right, bottom. A box without an area overlaps no box.
    """
    sides = np.minimum(box[2:], boxes[:, 2:]) - np.maximum(box[:2], boxes[:, :2])
    shared = np.prod(np.maximum(sides, 0), axis=1)
    areas = np.prod(np.maximum(boxes[:, 2:] - boxes[:, :2], 0), axis=1)
    union = np.prod(np.maximum(box[2:] - box[:2], 0)) + areas - shared
    overlap: Floats = np.where(shared > 0, shared / np.where(union > 0, union, 1), 0).astype(np.float32)
    return overlap


def non_maximum_suppression(boxes: Floats, scores: Floats, max_overlap: float) -> NDArray[np.intp]:
    """Drop each box that overlaps too much with a box of a higher score; return the indices of the other boxes.

    The algorithm is greedy: it keeps the box with the highest score, drops those that overlap it, and continues with
    the rest.

    Args:
        boxes: Array `(n, 4)`: left, top, right, bottom; all of one class.
        scores: Array `(n,)`.
        max_overlap: Intersection over union above which the box with the lower score is dropped.

    Returns:
        Indices of the remaining boxes, highest score first.
    """
    remaining = np.argsort(-scores, kind="stable")
    selected = []
    while len(remaining):
        best, remaining = remaining[0], remaining[1:]
        selected.append(best)
        remaining = remaining[intersection_over_union(boxes[best], boxes[remaining]) <= max_overlap]
    return np.array(selected, np.intp)


def boxes_to_fractions(boxes: Floats, letterboxed: LetterboxedImage) -> Floats:
    """Convert boxes `(n, 4)` from pixels of a model's input to fractions, 0 to 1, of the picture inside the input.

    A box is left, top, right, bottom. `letterboxed` says which rectangle of the input shows the picture.
    """
    start = np.array([letterboxed.left, letterboxed.top] * 2, np.float32)
    size = np.array([letterboxed.width, letterboxed.height] * 2, np.float32)
    fractions: Floats = np.clip((boxes - start) / size, 0, 1)
    return fractions
