"""Rows of the manifest in the journal: where they stand, and which of them wait; `planned` has how they came there."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import apsw

from lightmeter.media.sampling import WHOLE_SECONDS_SQL

__all__ = [
    "STATUSES",
    "AnswerRetry",
    "PendingRow",
    "any_with_reason",
    "count_by_length",
    "count_by_status",
    "first_image",
    "item_paths",
    "pending_frames",
    "pending_rows",
    "pending_video_lengths",
    "reasons",
    "totals",
]

STATUSES: Final = ("ok", "failed", "skipped", "duplicate", "in_doubt", "over_budget", "pending")


@dataclass(frozen=True, slots=True)
class AnswerRetry:
    """A second question about a row: what was wrong with the first answer, and who is asked (none: as in the run)."""

    error: str
    backends: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PendingRow:
    """A row that waits to be sent; `retry` where it is asked about again, always alone in its request."""

    seq: int
    url: str
    path: str | None
    kind: str | None
    frames_high: int | None
    retry: AnswerRetry | None = None


def count_by_status(db: apsw.Connection) -> dict[str, int]:
    """How many rows stand where; every status is there, also with 0."""
    counted = dict(db.execute("SELECT status, count(*) FROM items GROUP BY status"))
    return {status: counted.get(status, 0) for status in STATUSES}


def any_with_reason(db: apsw.Connection, reason: str) -> bool:
    """Whether any row has failed for this reason."""
    ((found,),) = db.execute("SELECT EXISTS (SELECT 1 FROM items WHERE status = 'failed' AND reason = ?)", (reason,))
    return bool(found)


def reasons(db: apsw.Connection) -> list[tuple[str, str, int, str]]:
    """(status, reason, rows, an example's url and error) for all rows that have a reason, most frequent first."""
    return [
        (status, reason, rows, example)
        for status, reason, rows, example in db.execute(
            "SELECT status, reason, count(*) AS rows, max(url || coalesce(': ' || error, '')) FROM items "
            "WHERE reason IS NOT NULL GROUP BY status, reason ORDER BY rows DESC, status, reason"
        )
    ]


def pending_frames(db: apsw.Connection) -> tuple[int, int | None]:
    """Pictures that will be charged for all rows still to be paid for, from (at least) to (at most, None: no bound)."""
    ((low, high, unbounded),) = db.execute(
        "SELECT coalesce(sum(frames_low), 0), coalesce(sum(frames_high), 0), count(*) - count(frames_high) "
        "FROM items WHERE status IN ('pending', 'over_budget')"
    )
    return low, None if unbounded else high


def pending_video_lengths(db: apsw.Connection) -> list[tuple[int | None, int]]:
    """Lengths of the videos that wait, in whole seconds, rounded up (None: not known), and how many have each."""
    return [
        (seconds, videos)
        for seconds, videos in db.execute(
            f"SELECT {WHOLE_SECONDS_SQL}, count(*) FROM items WHERE status = 'pending' AND kind = 'video' "  # noqa: S608
            "GROUP BY 1 ORDER BY 1"
        )
    ]


def totals(db: apsw.Connection) -> tuple[int, int]:
    """Credits (paid, held) so far."""
    ((paid, held),) = db.execute("SELECT paid, held FROM money")
    return paid, held


def first_image(db: apsw.Connection, first: int, last: int) -> PendingRow | None:
    """The first row first ≤ seq ≤ last that waits and is a single picture, if there is one."""
    row = db.execute(
        "SELECT seq, url, path, kind, frames_high FROM items WHERE status = 'pending' AND submission_id IS NULL "
        "AND seq BETWEEN ? AND ? AND frames_high = 1 ORDER BY seq LIMIT 1",
        (first, last),
    ).fetchone()
    return None if row is None else PendingRow(*row)


def pending_rows(db: apsw.Connection, first: int, last: int, chunk: int = 512) -> Iterator[PendingRow]:
    """Rows first ≤ seq ≤ last that wait to be sent, in order; each chunk is read when it is needed."""
    at = first
    while True:
        rows = list(
            db.execute(
                "SELECT seq, url, path, kind, frames_high FROM items "
                "WHERE status = 'pending' AND submission_id IS NULL AND seq BETWEEN ? AND ? ORDER BY seq LIMIT ?",
                (at, last, chunk),
            )
        )
        if not rows:
            return
        for row in rows:
            yield PendingRow(*row)
        at = rows[-1][0] + 1


def item_paths(db: apsw.Connection, item_ids: Sequence[str]) -> dict[str, str | None]:
    """Return the local path (None for a URL) of each of these items, in the order of the manifest."""
    return dict(
        db.execute(
            "SELECT item_id, path FROM items WHERE item_id IN (SELECT value FROM json_each(?)) ORDER BY seq",
            (json.dumps(item_ids),),
        )
    )


def count_by_length(db: apsw.Connection, statuses: Sequence[str], reason: str | None = None) -> list[tuple[Any, ...]]:
    """Return (kind, whole seconds rounded up or None, rows) of the rows with one of these statuses.

    Args:
        db: The journal.
        statuses: Statuses to count.
        reason: Counts only rows with this reason; None counts all.
    """
    return list(
        db.execute(
            f"SELECT kind, {WHOLE_SECONDS_SQL}, count(*) FROM items "  # noqa: S608 (a constant expression)
            "WHERE status IN (SELECT value FROM json_each(?1)) AND (?2 IS NULL OR reason = ?2) "
            "GROUP BY 1, 2 ORDER BY 1, 2",
            (json.dumps(statuses), reason),
        )
    )
