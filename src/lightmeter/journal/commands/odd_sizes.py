"""Find images whose size is unusual among all images of a manifest, and skip them if the user wants this.

Sizes can only be compared after the last row of the manifest was read. The definition and the default factor are those
of CleanVision 0.3.7 (issue `odd_size`). The side of an image is the square root of width x height. A side is unusual if
it is more than 3 interquartile ranges below the first quartile of all sides, or more than 3 interquartile ranges above
the third quartile.
"""

from __future__ import annotations

from typing import Final

from lightmeter import sqlite
from lightmeter.journal.frame_rows import IS_ROW

_ALL_BITS: Final = (1 << 64) - 1
"""Mask for the difference (XOR) of two perceptual hashes: it makes the number non-negative, to count its bits.

The journal stores the 64 bits of a hash as a signed number.
"""

_COUNT: Final = "SELECT count(*) FROM items WHERE kind = 'image' AND width * height > 0"

_SIDES: Final = """
SELECT place, sqrt(pixels) FROM (
    SELECT width * height AS pixels, row_number() OVER (ORDER BY width * height) - 1 AS place
    FROM items WHERE kind = 'image' AND width * height > 0
) WHERE place IN (?1, ?1 + 1, ?2, ?2 + 1)
"""
"""SQL: the sides with the ranks `?1`, `?1 + 1`, `?2` and `?2 + 1` among the sides of all images.

A side is the square root of width x height. The smallest side has rank 0.
"""

_INSERT: Final = """
INSERT INTO findings (seq, name, severity, message, value, facts)
SELECT seq, 'odd_size', 'warning',
       printf('%d x %d pixels, which is an unusual size in this manifest.', width, height),
       sqrt(width * height), json_object('usual_from', ?1, 'usual_to', ?2)
FROM items WHERE kind = 'image' AND width * height > 0 AND sqrt(width * height) NOT BETWEEN ?1 AND ?2
"""

_SKIP: Final = f"""
UPDATE items SET status = 'skipped', reason = 'odd_size', error = f.message, duplicate_of = NULL,
       duplicate_distance = NULL, frames_low = 0, frames_high = 0
FROM findings f
WHERE f.seq = items.seq AND f.name = 'odd_size' AND status IN ('pending', 'duplicate') AND items.{IS_ROW}
"""  # noqa: S608 (our own words)

_LEFT_COPIES: Final = f"""
SELECT d.seq, d.item_id, d.duplicate_of, d.perceptual_hash FROM items d JOIN items o ON o.item_id = d.duplicate_of
WHERE d.status = 'duplicate' AND o.status = 'skipped' AND o.reason = 'odd_size' AND o.{IS_ROW} ORDER BY d.seq
"""  # noqa: S608 (our own words)
"""SQL: near-duplicates of skipped rows that were not skipped themselves, because their own size is usual."""

_SEND: Final = """
UPDATE items SET status = 'pending', reason = NULL, duplicate_of = NULL, duplicate_distance = NULL,
       frames_low = 1, frames_high = 1 WHERE seq = ?
"""
_COPY: Final = "UPDATE items SET reason = 'near_duplicate', duplicate_of = ?, duplicate_distance = ? WHERE seq = ?"


@sqlite.command
def add_odd_size_findings(db: sqlite.Connection, interquartile_ranges: float) -> None:
    """Add the finding `odd_size` to each image of the plan that is much smaller or larger than most images.

    The side of an image is the square root of width x height. An image gets the finding if its side is more than
    `interquartile_ranges` interquartile ranges below the first quartile of all sides, or more than
    `interquartile_ranges` interquartile ranges above the third quartile. The findings `odd_size` of an earlier call are
    deleted first.
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


def skip_odd_sizes(db: sqlite.Connection) -> None:
    """Skip the rows of the plan that have the finding `odd_size`, before any row is sent.

    A near-duplicate (an image that looks the same) of a skipped row would have got the answer to that row. If the
    near-duplicate's own size is usual, it is not skipped. Of several such near-duplicates of one row, the first becomes
    pending, and the others become near-duplicates of the first.
    """
    db.execute(_SKIP)
    first: dict[str, tuple[str, int]] = {}
    for seq, item_id, skipped_id, bits in list(db.execute(_LEFT_COPIES)):
        sent_id, sent_bits = first.setdefault(skipped_id, (item_id, bits))
        if sent_id == item_id:
            db.execute(_SEND, (seq,))
        else:
            db.execute(_COPY, (sent_id, ((bits ^ sent_bits) & _ALL_BITS).bit_count(), seq))


def _quantile(sides: dict[int, float], position: float) -> float:
    """Return the side of an image at the fractional rank `position`, interpolated between two sides.

    `sides` maps ranks to sides; the smallest side has rank 0.
    """
    lower = sides[int(position)]
    upper = sides.get(int(position) + 1, lower)
    return lower + position % 1 * (upper - lower)
