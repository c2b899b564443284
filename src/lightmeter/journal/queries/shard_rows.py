"""Queries that divide a journal's pending rows into shards, and read the answers from a shard's journal.

A shard is a range of rows. Another process, with a journal of its own, analyzes these rows with free back ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from lightmeter import sqlite
from lightmeter.journal.frame_rows import SEND_ORDER

_PLACES: Final = f"SELECT DISTINCT {SEND_ORDER} FROM items WHERE status = 'pending' ORDER BY 1"  # noqa: S608 (our own words)

_ROWS: Final = f"SELECT {{}} FROM items WHERE status = 'pending' AND {SEND_ORDER} BETWEEN ? AND ? ORDER BY seq"  # noqa: S608 (likewise)

_ANSWERED: Final = """
SELECT i.seq, i.asset, i.name, s.request_id, s.answered_at, s.submission_id
FROM items i JOIN submissions s USING (submission_id)
WHERE i.status = 'ok' AND i.asset IS NOT NULL AND s.answered_at IS NOT NULL ORDER BY s.submission_id, i.seq
"""


class AnsweredRow(NamedTuple):
    """A row whose request was answered, and the position of its image or video in the answer.

    Attributes:
        seq: Number of the row in the manifest, from 0; for a video frame, the number that `frame_seq` returns.
        asset: Position of the image or video in the answer's list `all.assets`, from 0.
        name: Name of the image or video in the answer; None if it has no name there.
        request_id: The service's id of the request.
        answered_at: When the service answered, in seconds since the epoch.
        submission_id: Number of the request in the journal.
    """

    seq: int
    asset: int
    name: str | None
    request_id: str | None
    answered_at: float
    submission_id: int


def shard_ranges(db: sqlite.Connection, rows: int) -> list[tuple[int, int]]:
    """Divide the pending manifest rows into shards of at most `rows` rows.

    Return (first place, last place) of each shard.

    A place is a position in the send order. All frames of a video have the place of the video, so they are in one
    shard.
    """
    places = (place for (place,) in db.execute(_PLACES))
    ranges = []
    while chunk := list(islice(places, rows)):
        ranges.append((chunk[0], chunk[-1]))
    return ranges


def pending_row_dicts(db: sqlite.Connection, first: int, last: int) -> list[dict[str, Any]]:
    """Return the pending rows whose place in the send order is from `first` to `last` (both included).

    A place is a number that a row keeps after rows before it were sent; `shard_ranges` returns the places to pass. Each
    row is a dict of all columns of the table `items` except `submission_id`.
    """
    names = [name for (name,) in db.execute("SELECT name FROM pragma_table_info('items')") if name != "submission_id"]
    return [dict(zip(names, row, strict=True)) for row in db.execute(_ROWS.format(", ".join(names)), (first, last))]


@sqlite.command
def insert_rows(db: sqlite.Connection, rows: Sequence[dict[str, Any]]) -> None:
    """Insert rows, as returned by `pending_row_dicts`, into `db`, the journal of a shard (a range of rows)."""
    names = list(rows[0])
    statement = f"INSERT INTO items ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"  # noqa: S608 (names of our own columns)
    db.executemany(statement, [tuple(row.values()) for row in rows])


def answered_rows(db: sqlite.Connection) -> list[AnsweredRow]:
    """Return the rows of this journal whose requests were answered. The rows of one request stand together."""
    return [AnsweredRow._make(row) for row in db.execute(_ANSWERED)]


def raw_answer(db: sqlite.Connection, submission_id: int) -> bytes:
    """Return the answer to request number `submission_id` as the journal stores it: bytes compressed with zstd."""
    return bytes(db.execute("SELECT raw FROM answers WHERE submission_id = ?", (submission_id,)).get)
