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
SELECT sqrt(width * height) FROM items WHERE kind = 'image' AND width * height > 0 ORDER BY 1 LIMIT 2 OFFSET ?
"""

_INSERT: Final = """
INSERT INTO findings (seq, name, severity, message, value, facts)
SELECT seq, 'odd_size', 'warning',
       printf('%d x %d pixels, which is an unusual size in this manifest.', width, height),
       sqrt(width * height), json_object('usual_from', ?1, 'usual_to', ?2)
FROM items WHERE kind = 'image' AND width * height > 0 AND sqrt(width * height) NOT BETWEEN ?1 AND ?2
"""


@sqlite.command
def add_odd_size_findings(db: sqlite.Connection, interquartile_ranges: float) -> None:
    """Add the finding `odd_size` to each image whose side is that many interquartile ranges outside the quartiles."""
    images: int = db.execute(_COUNT).get
    if images == 0:
        return
    first, third = (_side_at(db, share * (images - 1)) for share in (0.25, 0.75))
    margin = interquartile_ranges * (third - first)
    db.execute(_INSERT, (first - margin, third + margin))


def _side_at(db: sqlite.Connection, position: float) -> float:
    """Return the side at a position among all sides in ascending order; between two, the mean weighted by distance."""
    sides: list[float] = [side for (side,) in db.execute(_SIDES, (int(position),))]
    return sides[0] + position % 1 * (sides[-1] - sides[0])
