"""Finds images whose size is unusual among all images of a manifest, after its last row was read.

The definition and the default factor are those of CleanVision 0.3.7 (issue `odd_size`): the side of an image is the
square root of width x height; it is unusual if it is more than 3 interquartile ranges below the first quartile of all
sides, or above the third.
"""

from __future__ import annotations

from typing import Final

from lightmeter import sqlite

_COUNT: Final = "SELECT count(*) FROM items WHERE kind = 'image' AND width * height > 0"

_SIDES: Final = """
SELECT place, sqrt(pixels) FROM (
    SELECT width * height AS pixels, row_number() OVER (ORDER BY width * height) - 1 AS place
    FROM items WHERE kind = 'image' AND width * height > 0
) WHERE place IN (?1, ?1 + 1, ?2, ?2 + 1)
"""
"""The sides at two places, counted from 0, and at those after them, among all sides in ascending order."""

_INSERT: Final = """
INSERT INTO findings (seq, name, severity, message, value, facts)
SELECT seq, 'odd_size', 'warning',
       printf('%d x %d pixels, which is an unusual size in this manifest.', width, height),
       sqrt(width * height), json_object('usual_from', ?1, 'usual_to', ?2)
FROM items WHERE kind = 'image' AND width * height > 0 AND sqrt(width * height) NOT BETWEEN ?1 AND ?2
"""


@sqlite.command
def add_odd_size_findings(db: sqlite.Connection, interquartile_ranges: float) -> None:
    """Add the finding `odd_size` to each image of the plan that is much smaller or larger than the others.

    An image's side is the square root of width x height. A side more than `interquartile_ranges` interquartile ranges
    below the first quartile of all sides, or above the third, gets the finding. Findings of an earlier call are
    replaced.
    """
    db.execute("DELETE FROM findings WHERE name = 'odd_size'")
    images: int = db.execute(_COUNT).get
    if images == 0:
        return
    low, high = 0.25 * (images - 1), 0.75 * (images - 1)
    sides: dict[int, float] = dict(db.execute(_SIDES, (int(low), int(high))))
    first, third = _quantile(sides, low), _quantile(sides, high)
    margin = interquartile_ranges * (third - first)
    db.execute(_INSERT, (first - margin, third + margin))


def _quantile(sides: dict[int, float], position: float) -> float:
    """Return the value at the rank `position` from `sides` (rank → value); interpolate between two whole ranks."""
    lower = sides[int(position)]
    upper = sides.get(int(position) + 1, lower)
    return lower + position % 1 * (upper - lower)
