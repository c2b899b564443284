"""Boxes: overlap, non-maximum suppression, and their way back from a model's input to the picture."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from lightmeter.media.image_transforms import LetterboxedImage

__all__ = ["Floats", "boxes_to_fractions", "corners", "intersection_over_union", "non_maximum_suppression"]

Floats: TypeAlias = NDArray[np.float32]


def corners(centred: Floats) -> Floats:
    """Boxes `(n, 4)` of centre x, centre y, width, height as left, top, right, bottom."""
    half = centred[:, 2:] / 2
    return np.concatenate([centred[:, :2] - half, centred[:, :2] + half], axis=1)


def intersection_over_union(box: Floats, boxes: Floats) -> Floats:
    """How much a box `(4,)` and each of others `(n, 4)` overlap, 0 to 1; left, top, right, bottom.

    A box without an area overlaps nothing.
    """
    sides = np.minimum(box[2:], boxes[:, 2:]) - np.maximum(box[:2], boxes[:, :2])
    shared = np.prod(np.maximum(sides, 0), axis=1)
    areas = np.prod(np.maximum(boxes[:, 2:] - boxes[:, :2], 0), axis=1)
    union = np.prod(np.maximum(box[2:] - box[:2], 0)) + areas - shared
    overlap: Floats = np.where(shared > 0, shared / np.where(union > 0, union, 1), 0).astype(np.float32)
    return overlap


def non_maximum_suppression(boxes: Floats, scores: Floats, most_overlap: float) -> NDArray[np.intp]:
    """Keep the best of boxes that cover the same thing: greedy, best score first.

    Args:
        boxes: `(n, 4)`: left, top, right, bottom; all of one class.
        scores: `(n,)`.
        most_overlap: Intersection over union, above which the weaker of two boxes is dropped.

    Returns:
        Indices of the boxes that are kept, best first.
    """
    waiting = np.argsort(-scores, kind="stable")
    kept = []
    while len(waiting):
        best, waiting = waiting[0], waiting[1:]
        kept.append(best)
        waiting = waiting[intersection_over_union(boxes[best], boxes[waiting]) <= most_overlap]
    return np.array(kept, np.intp)


def boxes_to_fractions(boxes: Floats, fitted: LetterboxedImage) -> Floats:
    """Boxes `(n, 4)` in pixels of a model's input as shares of the picture, 0 to 1, cut off at its edges."""
    start = np.array([fitted.left, fitted.top] * 2, np.float32)
    size = np.array([fitted.width, fitted.height] * 2, np.float32)
    shares: Floats = np.clip((boxes - start) / size, 0, 1)
    return shares
