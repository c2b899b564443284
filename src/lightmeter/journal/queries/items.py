"""Queries on the rows of the manifest: their status, the pending rows, and how many images and frames they have."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from lightmeter import sqlite
from lightmeter.journal.frame_rows import FIRST_FRAME_SEQ, FRAME_SEQS, HAS_FRAMES, frame_of, row_of, seq_ranges
from lightmeter.media.media_info import MediaKind
from lightmeter.media.sampling import WHOLE_SECONDS_SQL
from lightmeter.pricing.estimate import FrameRange

CHUNK_ROWS: Final = 512
"""Number of rows that the queries for waiting rows read at a time."""

STATUSES: Final = ("ok", "failed", "skipped", "duplicate", "in_doubt", "over_budget", "pending")


@dataclass(frozen=True, slots=True)
class AnswerRetry:
    """How to ask the user's question (`--ask`) again: the first answer's error, and the back ends (empty: all)."""

    error: str
    backends: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PendingRow:
    """A manifest row, or a frame of a video, to be sent as it is.

    If `retry` is set, the row was answered, and the question (`--ask`) is asked again.
    """

    seq: int
    url: str
    path: str | None
    kind: str | None
    frames_high: int | None
    retry: AnswerRetry | None = None

    @property
    def frame(self) -> int | None:
        """The frame that is sent as an image; None for a whole row of the manifest."""
        return frame_of(self.seq)


_IS_ROW: Final = f"seq < {FIRST_FRAME_SEQ}"
"""SQL: the row is one of the manifest, not a frame of a video."""

_IS_SENT: Final = f"NOT {HAS_FRAMES.format('items', '')}"
"""SQL: the row is sent, or would be, as it is: it is no video whose frames are sent in its place."""


def count_by_status(db: sqlite.Connection) -> dict[str, int]:
    """Return the number of rows of the manifest in each status, including statuses without rows."""
    return _count_by_status(db, _IS_ROW)


def count_requests_by_status(db: sqlite.Connection) -> dict[str, int]:
    """Return as `count_by_status` the number of rows and frames: frames that are sent count in place of their video."""
    return _count_by_status(db, _IS_SENT)


def _count_by_status(db: sqlite.Connection, condition: str) -> dict[str, int]:
    counted = dict(db.execute(f"SELECT status, count(*) FROM items WHERE {condition} GROUP BY status"))  # noqa: S608
    return {status: counted.get(status, 0) for status in STATUSES}


def has_failed_with(db: sqlite.Connection, reason: str) -> bool:
    """Return whether any manifest row failed with `reason`, a code such as `no_asset`."""
    return bool(db.execute("SELECT EXISTS (SELECT 1 FROM items WHERE status = 'failed' AND reason = ?)", (reason,)).get)


def count_by_reason(db: sqlite.Connection) -> list[tuple[str, str, int, str]]:
    """Return (status, reason, number of rows, URL and error of an example) for each reason, most frequent first."""
    query = (
        "SELECT status, reason, count(*) AS rows, max(url || coalesce(': ' || error, '')) FROM items "  # noqa: S608
        f"WHERE reason IS NOT NULL AND {_IS_ROW} GROUP BY status, reason ORDER BY rows DESC, status, reason"
    )
    return [(status, reason, rows, example) for status, reason, rows, example in db.execute(query)]


def pending_video_lengths(db: sqlite.Connection) -> list[tuple[int | None, int]]:
    """Return (length in seconds, rounded up, or None if unknown; number of videos) for the pending videos."""
    groups = _length_groups(db, "status = 'pending' AND kind = 'video'")
    return [(group.seconds, group.rows) for group in groups]


def first_pending_image(db: sqlite.Connection, first: int, last: int) -> PendingRow | None:
    """Return the first pending row first ≤ seq ≤ last that has at most one frame, as images do; None without one."""
    for low, high in seq_ranges(first, last):
        row = db.execute(_PENDING.format(condition="AND frames_high = 1"), (low, high, 1)).fetchone()
        if row is not None:
            return PendingRow(*row)
    return None


def pending_rows(db: sqlite.Connection, first: int, last: int) -> Iterator[PendingRow]:
    """Yield the pending rows with first ≤ seq ≤ last, in order, then the pending frames of their videos.

    The journal is read in blocks of `CHUNK_ROWS` rows.
    """
    for low, high in seq_ranges(first, last):
        start = low
        while rows := list(db.execute(_PENDING.format(condition=""), (start, high, CHUNK_ROWS))):
            yield from (PendingRow(*row) for row in rows)
            start = rows[-1][0] + 1


class VideoSource(NamedTuple):
    """A video whose frames are sent in its place.

    Attributes:
        url: Its URL or path, as in the manifest.
        path: Absolute path of a local file; None for a URL.
        content_sha256: Hash of the content that the plan chose the frames of.
        times_s: Frame → its time in seconds, for the frames to be sent, in order.
    """

    url: str
    path: str | None
    content_sha256: str | None
    times_s: dict[int, float]


def video_of_frame(db: sqlite.Connection, seq: int) -> VideoSource:
    """Return the video that the frame with row number `seq` belongs to."""
    video = row_of(seq)
    ((url, path, sha256),) = db.execute("SELECT url, path, content_sha256 FROM items WHERE seq = ?", (video,))
    frames = db.execute(
        "SELECT extra ->> 'frame', extra ->> 'time_s' FROM items "  # noqa: S608 (a constant expression)
        f"WHERE seq {FRAME_SEQS.format('?1')} ORDER BY seq",
        (video,),
    )
    return VideoSource(url, path, sha256, dict(frames))


class FrameGroup(NamedTuple):
    """Number of manifest rows with this type (None: unknown) and this least and most (None: no bound) frames."""

    kind: MediaKind | None
    frames_low: int
    frames_high: int | None
    rows: int


class LengthGroup(NamedTuple):
    """Number of manifest rows with this media type and this video length, rounded up; None where unknown."""

    kind: MediaKind | None
    seconds: int | None
    rows: int


class OverBudgetGroup(NamedTuple):
    """Number of rows that were not sent because of the same limit on credits, and of their frames.

    Attributes:
        reason: The limit: `no_credits` (balance), `key_budget`, `at_risk` (`--max-at-risk`), `budget` (of the run), or
            `no_bound` (no upper price of the row is known).
        rows: Number of rows.
        frames_low: Least number of their images and frames.
        frames_high: Most images and frames of the rows, without those in `unbounded`; None if that leaves none.
        unbounded: Number of rows with no known upper bound of their frames.
        largest: Most frames of a single row, without those in `unbounded`; None if that leaves none.
    """

    reason: str
    rows: int
    frames_low: int
    frames_high: int | None
    unbounded: int
    largest: int | None


class AssetMarks(NamedTuple):
    """Properties of a row's image or video that identify its content, as far as the journal knows them.

    Attributes:
        identity: Canonical URL, or path of a local file.
        path: Absolute path of a local file; None for a URL.
        content_sha256: Hash of the content, in hexadecimal, if it was computed.
        reach_facts: JSON of the pre-check `reach`: size and entity tag at the server; None without that check.
    """

    identity: str | None
    path: str | None
    content_sha256: str | None
    reach_facts: str | None


_PENDING: Final = f"""
SELECT seq, url, path, kind, frames_high FROM items
WHERE status = 'pending' AND submission_id IS NULL AND seq BETWEEN ? AND ? AND {_IS_SENT} {{condition}}
ORDER BY seq LIMIT ?
"""  # noqa: S608 (constant expressions, here and below)

_DUPLICATES: Final = """
SELECT o.kind, o.frames_low, o.frames_high, count(*) FROM items i JOIN items o ON o.item_id = i.duplicate_of
WHERE i.status = 'duplicate' AND o.status = 'ok' GROUP BY 1, 2, 3
"""

_CACHED: Final = f"""
SELECT kind, frames_low, frames_high, count(*) FROM items
WHERE status = 'ok' AND reason = 'cached' AND {_IS_SENT} GROUP BY 1, 2, 3
"""  # noqa: S608

_LENGTHS: Final = f"""
SELECT kind, {WHOLE_SECONDS_SQL}, count(*) FROM items
WHERE {{condition}} AND {_IS_SENT} GROUP BY 1, 2 ORDER BY 1, 2
"""  # noqa: S608 (a constant expression)

_OVER_BUDGET: Final = f"""
SELECT reason, count(*), coalesce(sum(frames_low), 0), sum(frames_high), count(*) - count(frames_high), max(frames_high)
FROM items WHERE status = 'over_budget' AND {_IS_ROW} GROUP BY reason ORDER BY reason
"""  # noqa: S608

_FRAMES: Final = f"""
SELECT coalesce(sum(frames_low), 0), CASE WHEN count(frames_high) = count(*) THEN coalesce(sum(frames_high), 0) END
FROM items WHERE {{condition}} AND {_IS_SENT}
"""  # noqa: S608

_PENDING_MARKS: Final = f"""
SELECT items.seq, items.identity, items.path, items.content_sha256, f.facts
FROM items LEFT JOIN findings f ON f.seq = items.seq AND f.name = 'reach'
WHERE items.status = 'pending' AND {_IS_SENT} ORDER BY items.seq
"""  # noqa: S608

_FRAME_MODE_LENGTHS: Final = f"""
SELECT {WHOLE_SECONDS_SQL}, count(*), sum(frames_low) FROM items
WHERE kind = 'video' AND status = 'pending' AND {_IS_ROW} AND NOT {_IS_SENT} GROUP BY 1 ORDER BY 1
"""  # noqa: S608


def count_rows(db: sqlite.Connection) -> int:
    """Return the number of rows of the manifest."""
    return int(db.execute(f"SELECT count(*) FROM items WHERE {_IS_ROW}").get)  # noqa: S608


def planned_frames(db: sqlite.Connection) -> FrameRange:
    """Return the number of images and frames of all rows that the plan meant to send, whatever their status now."""
    return _frames(db, "status NOT IN ('skipped', 'duplicate') AND reason IS NOT 'cached'")


def cached_frames(db: sqlite.Connection) -> FrameRange:
    """Return the number of images and frames of all rows that have a cached answer of an earlier run."""
    return _frames(db, "status = 'ok' AND reason = 'cached'")


def unsent_frames(db: sqlite.Connection) -> FrameRange:
    """Return the number of images and frames of all rows that are pending or over budget."""
    return _frames(db, "status IN ('pending', 'over_budget')")


def _frames(db: sqlite.Connection, condition: str) -> FrameRange:
    return FrameRange(*db.execute(_FRAMES.format(condition=condition)).get)


def unsent_video_frames(db: sqlite.Connection) -> int:
    """Return the number of frames, each with a request of its own, that are pending or over budget."""
    query = f"SELECT count(*) FROM items WHERE status IN ('pending', 'over_budget') AND NOT {_IS_ROW}"  # noqa: S608
    return int(db.execute(query).get)


def pending_frame_ranges(db: sqlite.Connection) -> Iterator[tuple[int, int | None]]:
    """Yield (least, most) frames of each pending row, 1 for an image, in the manifest's order; None without a bound."""
    query = f"SELECT frames_low, frames_high FROM items WHERE status = 'pending' AND {_IS_ROW} ORDER BY seq"  # noqa: S608
    yield from db.execute(query)


def frame_mode_lengths(db: sqlite.Connection) -> list[tuple[int | None, int, int]]:
    """Return (length in seconds, rounded up; number of videos; frames to send) for videos sent as single frames."""
    return [(seconds, videos, frames) for seconds, videos, frames in db.execute(_FRAME_MODE_LENGTHS)]


def duplicate_groups(db: sqlite.Connection) -> Iterator[FrameGroup]:
    """Yield the number of rows that repeat an earlier row's image or video, by media type and number of its frames.

    Only duplicates of rows that have a result count.
    """
    yield from map(FrameGroup._make, db.execute(_DUPLICATES))


def cached_groups(db: sqlite.Connection) -> Iterator[FrameGroup]:
    """Yield how many rows have a cached answer of an earlier run, by media type and number of frames."""
    yield from map(FrameGroup._make, db.execute(_CACHED))


def unsent_lengths(db: sqlite.Connection) -> list[LengthGroup]:
    """Return how many rows are pending or over budget, by media type and video length."""
    return _length_groups(db, "status IN ('pending', 'over_budget')")


def cached_lengths(db: sqlite.Connection) -> list[LengthGroup]:
    """Return how many rows have a cached answer of an earlier run, by media type and video length."""
    return _length_groups(db, "status = 'ok' AND reason = 'cached'")


def skipped_lengths(db: sqlite.Connection) -> list[LengthGroup]:
    """Return how many rows were skipped, except for a bad value or repeated id, by media type and video length."""
    return _length_groups(db, "status = 'skipped' AND reason NOT IN ('bad_row', 'id_repeated')")


def sendable_lengths(db: sqlite.Connection) -> list[LengthGroup]:
    """Return how many rows are neither skipped nor duplicates, by media type and video length."""
    return _length_groups(db, "status NOT IN ('skipped', 'duplicate')")


def _length_groups(db: sqlite.Connection, condition: str) -> list[LengthGroup]:
    return list(map(LengthGroup._make, db.execute(_LENGTHS.format(condition=condition))))


def over_budget_groups(db: sqlite.Connection) -> list[OverBudgetGroup]:
    """Return how many rows were not sent because of a limit on credits, by limit (balance, budget and so on)."""
    return list(map(OverBudgetGroup._make, db.execute(_OVER_BUDGET)))


def item_paths(db: sqlite.Connection, item_ids: Sequence[str]) -> dict[str, str | None]:
    """Return the local path (None for a URL) of each of these items, in the order of the manifest."""
    return dict(
        db.execute(
            "SELECT item_id, path FROM items WHERE item_id IN (SELECT value FROM json_each(?)) ORDER BY seq",
            (json.dumps(item_ids),),
        )
    )


def pending_asset_marks(db: sqlite.Connection) -> Iterator[tuple[int, AssetMarks]]:
    """Yield each pending row's number and the properties that identify its content, in the manifest's order."""
    for seq, *marks in db.execute(_PENDING_MARKS):
        yield seq, AssetMarks._make(marks)
