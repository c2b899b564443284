"""Queries that group the rows of a plan by all that their price depends on.

With these groups, the price of the plan with other options can be computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from lightmeter import sqlite
from lightmeter.journal.frame_rows import FIRST_FRAME_SEQ, IS_ROW, IS_SENT, ROW_OF, SEND_ORDER
from lightmeter.media.media_info import MediaKind
from lightmeter.media.video.sampling import WHOLE_SECONDS_SQL


class PricedRows(NamedTuple):
    """Number of rows of a plan that cost the same, whatever options are chosen.

    Attributes:
        value: The rows' value in a manifest column; None for rows without a value, or if no column was asked for.
        fate: `sent`; or `same_asset` or `near_duplicate` for rows that share the answer of an earlier row.
        cached: Whether an answer of an earlier run is used: for the row, or for the earlier row whose answer it shares.
        kind: `image`, `video`, or None if unknown.
        seconds: Length of a video in seconds, rounded up; None if unknown.
        rows: Number of rows.
        total_s: Sum of the exact lengths of the rows that are videos, in seconds.
    """

    value: str | None
    fate: str
    cached: bool
    kind: MediaKind | None
    seconds: int | None
    rows: int
    total_s: float


_VALUE: Final = f"""
CASE ?1 WHEN '' THEN NULL WHEN 'kind' THEN {{0}}.kind
ELSE (SELECT nullif(CAST(value AS TEXT), '') FROM json_each((
    SELECT extra FROM items r WHERE r.seq = {ROW_OF.format("{0}.seq")})) WHERE key = ?1) END
"""  # noqa: S608 (constant expressions, here and below)

_PRICED: Final = f"""
SELECT {_VALUE.format("items")}, 'sent', status = 'ok', kind, {WHOLE_SECONDS_SQL}, count(*), total(duration_s)
FROM items
WHERE (status IN ('pending', 'over_budget') OR (status = 'ok' AND reason = 'cached')) AND {IS_SENT}
GROUP BY 1, 2, 3, 4, 5
UNION ALL
SELECT value, iif(near, 'near_duplicate', 'same_asset'), cached, kind, {WHOLE_SECONDS_SQL}, count(*), total(duration_s)
FROM (
    SELECT {_VALUE.format("i")} AS value, i.duplicate_distance IS NOT NULL AS near, o.status = 'ok' AS cached, o.kind,
           o.duration_s
    FROM items i JOIN items o ON o.item_id = i.duplicate_of
    WHERE i.status = 'duplicate' AND (o.status IN ('pending', 'over_budget') OR o.reason = 'cached')
) GROUP BY 1, 2, 3, 4, 5
"""  # noqa: S608

_REPEATED: Final = f"""
SELECT kind, {WHOLE_SECONDS_SQL}, count(*) FROM (
    SELECT kind, duration_s, row_number() OVER (PARTITION BY coalesce(content_sha256, identity) ORDER BY seq) AS n
    FROM items WHERE status = 'pending' AND {IS_ROW} AND coalesce(content_sha256, identity) IS NOT NULL
) WHERE n > 1 GROUP BY 1, 2
"""  # noqa: S608

_VALUES: Final = f"""
SELECT key, count(DISTINCT value) FROM (
    SELECT e.key, e.value FROM (SELECT extra FROM items WHERE {IS_ROW} LIMIT ?) i, json_each(i.extra) e
    WHERE e.type NOT IN ('object', 'array')
) GROUP BY key
"""  # noqa: S608


def priced_rows(db: sqlite.Connection, column: str | None = None) -> Iterator[PricedRows]:
    """Yield groups of rows of a plan that cost the same, with the number of rows in each group.

    If `column` is given, rows with different values in this manifest column are in different groups; otherwise all
    groups have the value None. Rows that pre-checks skipped or that local back ends rejected (`--screen`) are left out.
    """
    for value, fate, cached, kind, seconds, rows, total_s in db.execute(_PRICED, (column or "",)):
        yield PricedRows(None if value is None else str(value), fate, bool(cached), kind, seconds, rows, total_s)


def repeated_lengths(db: sqlite.Connection) -> list[tuple[MediaKind | None, int | None, int]]:
    """Count the pending rows that repeat an earlier pending row, by media type and video length.

    A row repeats another if the hashes of their contents are equal, or, where both hashes are unknown, their URLs or
    paths. Return tuples (media type; video length in seconds, rounded up, or None if unknown; number of these rows).
    """
    return list(db.execute(_REPEATED))


def pending_hashes(db: sqlite.Connection, most: int) -> list[int]:
    """Return the perceptual hashes (unsigned, 64 bits) of the first `most` pending images of the manifest."""
    query = (
        f"SELECT perceptual_hash FROM items WHERE status = 'pending' AND perceptual_hash IS NOT NULL AND {IS_ROW} "  # noqa: S608
        "AND kind = 'image' ORDER BY seq LIMIT ?"
    )
    return [bits % (1 << 64) for (bits,) in db.execute(query, (most,))]


def pending_lengths_in_order(db: sqlite.Connection) -> Iterator[tuple[MediaKind | None, int | None]]:
    """Yield (media type, video length) of each pending row, in the order of sending.

    The media type is None if it is unknown. The length is in seconds, rounded up; None for images and if it is unknown.
    """
    query = (
        f"SELECT kind, {WHOLE_SECONDS_SQL} FROM items WHERE status = 'pending' AND seq < {FIRST_FRAME_SEQ} "  # noqa: S608
        f"ORDER BY {SEND_ORDER}"
    )
    yield from db.execute(query)


def count_column_values(db: sqlite.Connection, first_rows: int) -> dict[str, int]:
    """Return column → number of its distinct values in the first `first_rows` rows of the manifest.

    The columns are all but those of the URL, path, id and kind. Nulls, lists and objects are not counted. A column that
    has only lists and objects in these rows is left out.
    """
    return dict(db.execute(_VALUES, (first_rows,)))
