"""Queries that count images, frames and video lengths of manifest rows, by what happened to the rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from lightmeter import sqlite
from lightmeter.journal.frame_rows import HAS_FRAMES, IS_ROW, IS_SENT, SEND_ORDER
from lightmeter.media.media_info import MediaKind
from lightmeter.media.video.sampling import WHOLE_SECONDS_SQL
from lightmeter.pricing.estimate import FrameRange

_DUPLICATES: Final = f"""
SELECT o.kind, o.frames_low, o.frames_high, {HAS_FRAMES.format("o", "")}, count(*)
FROM items i JOIN items o ON o.item_id = i.duplicate_of
WHERE i.status = 'duplicate' AND o.status = 'ok' AND (i.duplicate_distance IS NOT NULL OR NOT ?) GROUP BY 1, 2, 3, 4
"""  # noqa: S608 (constant expressions)

_GROUPS: Final = f"""
SELECT kind, frames_low, frames_high, count(*) FROM items WHERE status = ? AND reason = ? AND {IS_SENT} GROUP BY 1, 2, 3
"""  # noqa: S608 (constant expressions)

_LENGTHS: Final = f"""
SELECT kind, {WHOLE_SECONDS_SQL}, count(*), total(duration_s) FROM items
WHERE {{condition}} AND {IS_SENT} GROUP BY 1, 2 ORDER BY 1, 2
"""  # noqa: S608 (a constant expression)

_OVER_BUDGET: Final = f"""
SELECT reason, count(*), coalesce(sum(frames_low), 0), sum(frames_high), count(*) - count(frames_high), max(frames_high)
FROM items WHERE status = 'over_budget' AND {IS_ROW} GROUP BY reason ORDER BY reason
"""  # noqa: S608 (constant expressions)

_FRAMES: Final = f"""
SELECT coalesce(sum(frames_low), 0), CASE WHEN count(frames_high) = count(*) THEN coalesce(sum(frames_high), 0) END
FROM items WHERE {{condition}} AND {IS_SENT}
"""  # noqa: S608 (constant expressions)

PLANNED: Final = "status NOT IN ('skipped', 'duplicate') AND reason IS NOT 'cached'"
"""SQL: whether the plan meant to send the row of `items`, whatever the row's status is now."""

UNSENT: Final = "status IN ('pending', 'over_budget')"
"""SQL: whether the row of `items` is pending or over budget."""


class FrameGroup(NamedTuple):
    """Number of `rows` of one `kind` (None: unknown), each with `frames_low` to `frames_high` (None: any) pictures."""

    kind: MediaKind | None
    frames_low: int
    frames_high: int | None
    rows: int


class LengthGroup(NamedTuple):
    """Number of manifest rows with the same media type and the same video length, in whole seconds rounded up.

    Attributes:
        kind: Media type; None if unknown.
        seconds: The length, rounded up; None if unknown, and for images.
        rows: Number of rows.
        total_s: Sum of the exact lengths of the videos in these rows, in seconds.
    """

    kind: MediaKind | None
    seconds: int | None
    rows: int
    total_s: float


class OverBudgetGroup(NamedTuple):
    """Number of rows, and of their frames, that were not sent because of one limit on credits.

    Attributes:
        reason: The limit: `no_credits` (balance), `key_budget`, `at_risk` (`--max-at-risk`), `budget` (of the run), or
            `no_bound` (no upper price of the row is known).
        rows: Number of rows.
        frames_low: Least number of images and frames of the rows.
        frames_high: Most images and frames of the rows with a known upper bound; None if no row has one.
        unbounded: Number of rows whose number of frames has no known upper bound.
        largest: Most frames of a single row with a known upper bound; None if no row has one.
    """

    reason: str
    rows: int
    frames_low: int
    frames_high: int | None
    unbounded: int
    largest: int | None


def pending_video_lengths(db: sqlite.Connection) -> list[tuple[int | None, int, float]]:
    """Count the pending videos by length. Return a list of (length, number of videos, sum of their exact lengths).

    The length is in seconds, rounded up; None if it is unknown. The sum is in seconds too.
    """
    groups = _length_groups(db, "status = 'pending' AND kind = 'video'")
    return [(group.seconds, group.rows, group.total_s) for group in groups]


def cached_frames(db: sqlite.Connection) -> FrameRange:
    """Return the number of images and frames of all rows that have a cached answer of an earlier run."""
    return _frames(db, "status = 'ok' AND reason = 'cached'")


def screened_frames(db: sqlite.Connection) -> FrameRange:
    """Return the number of images and frames of all rows that local back ends rejected (`--screen`)."""
    return _frames(db, "status = 'skipped' AND reason = 'screened'")


def frames_to_send(db: sqlite.Connection, which: str) -> tuple[FrameRange, int]:
    """Return two counts for the selected rows: all images and frames, and frames that are sent as single images.

    Args:
        db: The journal.
        which: SQL condition that selects the rows: `PLANNED` (neither skipped, duplicate nor cached) or `UNSENT`
            (pending or over budget).
    """
    single = db.execute(f"SELECT count(*) FROM items WHERE {which} AND NOT {IS_ROW}").get  # noqa: S608
    return _frames(db, which), int(single)


def _frames(db: sqlite.Connection, condition: str) -> FrameRange:
    return FrameRange(*db.execute(_FRAMES.format(condition=condition)).get)


def pending_frame_ranges(db: sqlite.Connection) -> Iterator[tuple[int, int | None, bool]]:
    """Yield how many frames each pending row has, in the send order.

    A result is a tuple (least frames, 1 for an image; most frames, None if unbounded; whether the row is a video whose
    frames are sent in its place, as images).
    """
    query = (
        f"SELECT frames_low, frames_high, NOT {IS_SENT} FROM items "  # noqa: S608
        f"WHERE status = 'pending' AND {IS_ROW} ORDER BY {SEND_ORDER}"
    )
    for least, most, single in db.execute(query):
        yield least, most, bool(single)


def duplicate_groups(db: sqlite.Connection, *, only_near: bool = False) -> Iterator[FrameGroup]:
    """Count the rows that repeat the image or video of an earlier row.

    They are grouped by the media type and the number of frames of the earlier row. A row counts only if the earlier row
    has a result; with `only_near`, only if the two images look the same but differ. If frames were sent in place of the
    earlier row's video, each of them counts as one image.
    """
    for kind, low, high, single, rows in db.execute(_DUPLICATES, (only_near,)):
        yield FrameGroup("image", 1, 1, low * rows) if single else FrameGroup(kind, low, high, rows)


def cached_groups(db: sqlite.Connection) -> Iterator[FrameGroup]:
    """Yield how many rows have a cached answer of an earlier run, grouped by media type and number of frames."""
    yield from map(FrameGroup._make, db.execute(_GROUPS, ("ok", "cached")))


def screened_groups(db: sqlite.Connection) -> Iterator[FrameGroup]:
    """Yield how many rows local back ends rejected (`--screen`), grouped by media type and number of frames."""
    yield from map(FrameGroup._make, db.execute(_GROUPS, ("skipped", "screened")))


def unsent_lengths(db: sqlite.Connection) -> list[LengthGroup]:
    """Return how many rows are pending or over budget, grouped by media type and video length."""
    return _length_groups(db, UNSENT)


def cached_lengths(db: sqlite.Connection) -> list[LengthGroup]:
    """Return how many rows have a cached answer of an earlier run, grouped by media type and video length."""
    return _length_groups(db, "status = 'ok' AND reason = 'cached'")


def skipped_lengths(db: sqlite.Connection) -> list[LengthGroup]:
    """Return how many rows were skipped because of pre-checks, grouped by media type and video length."""
    return _length_groups(db, "status = 'skipped' AND reason NOT IN ('bad_row', 'id_repeated', 'screened')")


def sendable_lengths(db: sqlite.Connection) -> list[LengthGroup]:
    """Return how many rows are neither skipped nor duplicates, grouped by media type and video length."""
    return _length_groups(db, "status NOT IN ('skipped', 'duplicate')")


def _length_groups(db: sqlite.Connection, condition: str) -> list[LengthGroup]:
    return list(map(LengthGroup._make, db.execute(_LENGTHS.format(condition=condition))))


def over_budget_groups(db: sqlite.Connection) -> list[OverBudgetGroup]:
    """Return, for each limit on credits (such as balance or budget), how many rows were not sent because of it."""
    return list(map(OverBudgetGroup._make, db.execute(_OVER_BUDGET)))
