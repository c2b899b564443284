"""Queries on the manifest rows and video frames that are to be sent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lightmeter import sqlite
from lightmeter.journal.frame_rows import IS_SENT, SEND_ORDER, frame_of

CHUNK_ROWS: Final = 512
"""Number of rows that the queries `pending_rows` and `waiting_retries` read from the journal at a time."""

_UNFINISHED: Final = f"""
SELECT EXISTS (SELECT 1 FROM items WHERE status = ? AND {SEND_ORDER} BETWEEN ? AND ?)
"""  # noqa: S608 (a constant expression)

_LOST_EARLIER: Final = f"""
SELECT {SEND_ORDER}, seq, url, path, kind, frames_high FROM items
WHERE status = 'failed' AND reason = 'paid_and_lost' AND submission_id IS NULL AND {IS_SENT}
  AND {SEND_ORDER} BETWEEN ? AND ? ORDER BY 1, 2
"""  # noqa: S608 (constant expressions)

_PENDING: Final = f"""
SELECT {SEND_ORDER}, seq, url, path, kind, frames_high FROM items
WHERE status = 'pending' AND submission_id IS NULL AND {SEND_ORDER} BETWEEN ?1 AND ?2
      AND ({SEND_ORDER} > ?1 OR seq > ?3) AND {IS_SENT} {{condition}}
ORDER BY {SEND_ORDER}, seq LIMIT ?4
"""  # noqa: S608 (constant expressions)


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


def has_unfinished_rows(db: sqlite.Connection, first: int, last: int) -> bool:
    """Return whether a row in places `first` to `last` (included) of the send order is unfinished.

    A row is unfinished if it is pending, in doubt or over budget.
    """
    statuses = ("pending", "in_doubt", "over_budget")
    return any(db.execute(_UNFINISHED, (status, first, last)).get for status in statuses)


def first_single_picture_row(db: sqlite.Connection, first: int, last: int) -> PendingRow | None:
    """Return the first pending row that is charged as one picture; None if there is none.

    Only rows in places `first` to `last` (included) of the send order are considered.
    """
    row = db.execute(_PENDING.format(condition="AND frames_high = 1"), (first, last, -1, 1)).fetchone()
    return None if row is None else _to_pending_row(row)


def pending_rows(db: sqlite.Connection, first: int, last: int) -> Iterator[PendingRow]:
    """Yield the pending rows in places `first` to `last` (included) of the send order, in this order.

    `CHUNK_ROWS` rows are read at a time. Frames that are sent in place of a video come at the place of the video, in
    order of time.
    """
    after = -1
    while rows := list(db.execute(_PENDING.format(condition=""), (first, last, after, CHUNK_ROWS))):
        yield from map(_to_pending_row, rows)
        first, after = rows[-1][:2]


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
