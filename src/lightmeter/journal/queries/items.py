"""Queries on the manifest's rows: their status, the rows that are pending, and how many images and frames they have."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from lightmeter import sqlite
from lightmeter.journal.frame_rows import HAS_FRAMES, IS_ROW, IS_SENT, SEND_ORDER, frame_of
from lightmeter.media.media_info import MediaKind
from lightmeter.media.video.sampling import WHOLE_SECONDS_SQL
from lightmeter.pricing.estimate import FrameRange

CHUNK_ROWS: Final = 512
"""Number of rows that the queries `pending_rows` and `waiting_retries` read from the journal at a time."""

STATUSES: Final = ("ok", "failed", "skipped", "duplicate", "in_doubt", "over_budget", "pending")


@dataclass(frozen=True, slots=True)
class AnswerRetry:
    """How to ask the user's question (`--ask`) again: the first answer's error, and back ends to ask (empty: all)."""

    error: str
    backends: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PendingRow:
    """A manifest row, or one frame of a video, that is to be sent.

    `seq` is the row's number in the journal. `path` is the absolute path of a local file, None for a URL. `kind` is
    `image`, `video` or None (unknown). `frames_high` is the most pictures that are charged (None: no limit). `place` is
    the position in the send order, from 0; frames have the place of their video. If `retry` is set, the row was
    answered, and the user's question (`--ask`) is to be asked again.
    """

    seq: int
    url: str
    path: str | None
    kind: str | None
    frames_high: int | None
    retry: AnswerRetry | None = None
    place: int = 0

    @property
    def frame(self) -> int | None:
        """Number of a frame, from 0, among those that the service would analyze of its video; None for other rows."""
        return frame_of(self.seq)


def count_by_status(db: sqlite.Connection) -> dict[str, int]:
    """Return the number of rows of the manifest in each status, including statuses without rows."""
    return _count_by_status(db, IS_ROW)


def count_requests_by_status(db: sqlite.Connection) -> dict[str, int]:
    """Return the number of rows in each status. A video whose frames are sent as images counts as these frames."""
    return _count_by_status(db, IS_SENT)


def _count_by_status(db: sqlite.Connection, condition: str) -> dict[str, int]:
    counted = dict(db.execute(f"SELECT status, count(*) FROM items WHERE {condition} GROUP BY status"))  # noqa: S608
    return {status: counted.get(status, 0) for status in STATUSES}


def has_failed_with(db: sqlite.Connection, reason: str) -> bool:
    """Return whether any manifest row failed with `reason`, a code such as `no_asset`."""
    return bool(db.execute("SELECT EXISTS (SELECT 1 FROM items WHERE status = 'failed' AND reason = ?)", (reason,)).get)


def count_by_reason(db: sqlite.Connection) -> list[tuple[str, str, int, str]]:
    """Count the manifest rows that have a reason (a code), by status and reason; most frequent first.

    Return tuples (status, reason, number of rows, text with the URL and the error of one of these rows).
    """
    query = (
        "SELECT status, reason, count(*) AS rows, max(url || coalesce(': ' || error, '')) FROM items "  # noqa: S608
        f"WHERE reason IS NOT NULL AND {IS_ROW} GROUP BY status, reason ORDER BY rows DESC, status, reason"
    )
    return [(status, reason, rows, example) for status, reason, rows, example in db.execute(query)]


def count_findings(db: sqlite.Connection) -> list[tuple[str, str, int, str, str]]:
    """Return what pre-checks found, as (check, severity, number of rows, URL and message of the first row).

    Errors come first, then warnings, then facts. Within each severity, the most frequent finding comes first.
    """
    query = (
        "SELECT f.name, f.severity, count(DISTINCT f.seq) AS rows, i.url, f.message, min(f.seq) "
        "FROM findings f JOIN items i USING (seq) GROUP BY f.name, f.severity "
        "ORDER BY f.severity = 'info', f.severity = 'warning', rows DESC, f.name"
    )
    return [(name, severity, rows, url, message) for name, severity, rows, url, message, _ in db.execute(query)]


def pending_video_lengths(db: sqlite.Connection) -> list[tuple[int | None, int, float]]:
    """Return (seconds rounded up or None if unknown, number of videos, exact seconds in all) by pending length."""
    groups = _length_groups(db, "status = 'pending' AND kind = 'video'")
    return [(group.seconds, group.rows, group.total_s) for group in groups]


_UNFINISHED: Final = f"""
SELECT EXISTS (SELECT 1 FROM items WHERE status = ? AND {SEND_ORDER} BETWEEN ? AND ?)
"""  # noqa: S608 (a constant expression)


def has_unfinished_rows(db: sqlite.Connection, first: int, last: int) -> bool:
    """Return whether a row in places `first` to `last` of the send order is pending, in doubt or over budget."""
    statuses = ("pending", "in_doubt", "over_budget")
    return any(db.execute(_UNFINISHED, (status, first, last)).get for status in statuses)


def planned_rows(db: sqlite.Connection) -> int:
    """Return how many rows of the manifest are planned so far (`--stream`). Not all rows are read for this."""
    last = db.execute(f"SELECT max(seq) FROM items WHERE {IS_ROW}").get  # noqa: S608 (a constant expression)
    return 0 if last is None else int(last) + 1


def first_pending_image(db: sqlite.Connection, first: int, last: int) -> PendingRow | None:
    """Return the first pending row in places `first` to `last` of the send order charged as one picture, or None."""
    row = db.execute(_PENDING.format(condition="AND frames_high = 1"), (first, last, -1, 1)).fetchone()
    return None if row is None else _to_pending_row(row)


def pending_rows(db: sqlite.Connection, first: int, last: int) -> Iterator[PendingRow]:
    """Yield the pending rows in places `first` to `last` of the send order, reading `CHUNK_ROWS` rows at a time.

    Frames that are sent in place of a video come at the place of the video, in order of time.
    """
    after = -1
    while rows := list(db.execute(_PENDING.format(condition=""), (first, last, after, CHUNK_ROWS))):
        yield from map(_to_pending_row, rows)
        first, after = rows[-1][:2]


_LOST_EARLIER: Final = f"""
SELECT {SEND_ORDER}, seq, url, path, kind, frames_high FROM items
WHERE status = 'failed' AND reason = 'paid_and_lost' AND submission_id IS NULL AND {IS_SENT}
  AND {SEND_ORDER} BETWEEN ? AND ? ORDER BY 1, 2
"""  # noqa: S608 (constant expressions)


def rows_lost_earlier(db: sqlite.Connection, first: int, last: int) -> list[PendingRow]:
    """Return, in the send order, the unsent rows that an earlier run of the folder paid for but got no answer to.

    Args:
        db: The journal.
        first: First place in the send order, from 0.
        last: Last place in the send order; it is included.
    """
    return [_to_pending_row(row) for row in db.execute(_LOST_EARLIER, (first, last))]


def _to_pending_row(row: Sequence[Any]) -> PendingRow:
    place, seq, url, path, kind, frames_high = row
    return PendingRow(seq, url, path, kind, frames_high, place=place)


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


class ItemFile(NamedTuple):
    """Where the image or video of an item is.

    Attributes:
        url: URL or path as in the manifest.
        path: Absolute path of a local file; None for a URL.
        content_sha256: Hash of the content, in hexadecimal; None if it was not computed.
    """

    item_id: str
    url: str
    path: str | None
    content_sha256: str | None


class AssetMarks(NamedTuple):
    """Properties of a row's image or video by which a cache of answers can find its answer.

    Attributes:
        identity: URL in canonical form, or path of a local file; None if unknown.
        path: Absolute path of a local file; None for a URL.
        content_sha256: Hash of the content, in hexadecimal; None if it was not computed.
        reach_facts: JSON from the pre-check `reach`: size and entity tag at the server; None without that check.
    """

    identity: str | None
    path: str | None
    content_sha256: str | None
    reach_facts: str | None


_PENDING: Final = f"""
SELECT {SEND_ORDER}, seq, url, path, kind, frames_high FROM items
WHERE status = 'pending' AND submission_id IS NULL AND {SEND_ORDER} BETWEEN ?1 AND ?2
      AND ({SEND_ORDER} > ?1 OR seq > ?3) AND {IS_SENT} {{condition}}
ORDER BY {SEND_ORDER}, seq LIMIT ?4
"""  # noqa: S608 (constant expressions, here and below)

_DUPLICATES: Final = f"""
SELECT o.kind, o.frames_low, o.frames_high, {HAS_FRAMES.format("o", "")}, count(*)
FROM items i JOIN items o ON o.item_id = i.duplicate_of
WHERE i.status = 'duplicate' AND o.status = 'ok' AND (i.duplicate_distance IS NOT NULL OR NOT ?) GROUP BY 1, 2, 3, 4
"""  # noqa: S608

_GROUPS: Final = f"""
SELECT kind, frames_low, frames_high, count(*) FROM items WHERE status = ? AND reason = ? AND {IS_SENT} GROUP BY 1, 2, 3
"""  # noqa: S608

_LENGTHS: Final = f"""
SELECT kind, {WHOLE_SECONDS_SQL}, count(*), total(duration_s) FROM items
WHERE {{condition}} AND {IS_SENT} GROUP BY 1, 2 ORDER BY 1, 2
"""  # noqa: S608 (a constant expression)

_OVER_BUDGET: Final = f"""
SELECT reason, count(*), coalesce(sum(frames_low), 0), sum(frames_high), count(*) - count(frames_high), max(frames_high)
FROM items WHERE status = 'over_budget' AND {IS_ROW} GROUP BY reason ORDER BY reason
"""  # noqa: S608

_FRAMES: Final = f"""
SELECT coalesce(sum(frames_low), 0), CASE WHEN count(frames_high) = count(*) THEN coalesce(sum(frames_high), 0) END
FROM items WHERE {{condition}} AND {IS_SENT}
"""  # noqa: S608

_PENDING_MARKS: Final = f"""
SELECT items.seq, items.identity, items.path, items.content_sha256, f.facts
FROM items LEFT JOIN findings f ON f.seq = items.seq AND f.name = 'reach'
WHERE items.status = 'pending' AND {IS_SENT} ORDER BY items.seq
"""  # noqa: S608


def count_rows(db: sqlite.Connection) -> int:
    """Return the number of rows of the manifest."""
    return int(db.execute(f"SELECT count(*) FROM items WHERE {IS_ROW}").get)  # noqa: S608


PLANNED: Final = "status NOT IN ('skipped', 'duplicate') AND reason IS NOT 'cached'"
"""SQL: whether the plan meant to send the row of `items`, whatever the row's status is now."""

UNSENT: Final = "status IN ('pending', 'over_budget')"
"""SQL: whether the row of `items` is pending or over budget."""


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

    A result is (least frames, 1 for an image; most frames, None if unbounded; whether they are sent as single images).
    """
    query = (
        f"SELECT frames_low, frames_high, NOT {IS_SENT} FROM items "  # noqa: S608
        f"WHERE status = 'pending' AND {IS_ROW} ORDER BY {SEND_ORDER}"
    )
    for least, most, single in db.execute(query):
        yield least, most, bool(single)


def duplicate_groups(db: sqlite.Connection, *, only_near: bool = False) -> Iterator[FrameGroup]:
    """Count the rows that repeat an earlier row's image or video, by the media type and number of frames of that row.

    A row counts only if the earlier row has a result; with `only_near`, only if the two images look the same but
    differ. Each frame that is sent in place of a video counts as one image.
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


def item_paths(db: sqlite.Connection, item_ids: Sequence[str]) -> dict[str, str | None]:
    """Return item id → local path (None for a URL) for the items `item_ids`, in the order of the manifest."""
    return dict(
        db.execute(
            "SELECT item_id, path FROM items WHERE item_id IN (SELECT value FROM json_each(?)) ORDER BY seq",
            (json.dumps(item_ids),),
        )
    )


def item_files(db: sqlite.Connection, item_ids: Sequence[str]) -> list[ItemFile]:
    """Return the `ItemFile`s of `item_ids`, in any order; a duplicate without a hash gets the earlier item's hash."""
    query = """
        SELECT i.item_id, i.url, i.path, coalesce(i.content_sha256, o.content_sha256)
        FROM items i LEFT JOIN items o ON o.item_id = i.duplicate_of WHERE i.item_id IN (SELECT value FROM json_each(?))
    """
    return list(map(ItemFile._make, db.execute(query, (json.dumps(list(item_ids)),))))


def pending_asset_marks(db: sqlite.Connection) -> Iterator[tuple[int, AssetMarks]]:
    """Yield (row number, properties that identify its image or video) of pending rows, in the manifest's order."""
    for seq, *marks in db.execute(_PENDING_MARKS):
        yield seq, AssetMarks._make(marks)
