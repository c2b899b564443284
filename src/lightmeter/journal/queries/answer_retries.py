"""Queries on second requests for rows whose first answer to the user's question (`--ask`) is invalid.

The row keeps its first answer, even if the second answer is valid. The second request is a submission (POST) with its
own charge and states; only the table `answer_retries` links it to the row. Each row gets at most one second request:
`hold_and_send` raises an error for a third. If the service did not process the second request, the row waits for it to
be sent again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from lightmeter import sqlite
from lightmeter.journal.frame_rows import SEND_ORDER
from lightmeter.journal.queries.pending_rows import CHUNK_ROWS, AnswerRetry, PendingRow


@dataclass(frozen=True, slots=True)
class RetryRow:
    """A manifest row (number `seq`) with an invalid answer to the user's question (`--ask`).

    `retry` says how to ask the question again.
    """

    seq: int
    retry: AnswerRetry


@dataclass(frozen=True, slots=True)
class RetryTotals:
    """Totals of asking the user's question (`--ask`) again about rows whose first answer is invalid.

    They are part of a run's credit statement.

    Attributes:
        rows: Number of rows whose first answer is invalid.
        waiting: Number of these rows that have no second request yet.
        requests: Number of second requests that were sent.
        paid: Credits charged for the second requests.
    """

    rows: int = 0
    waiting: int = 0
    requests: int = 0
    paid: int = 0


def first_answers(db: sqlite.Connection, first: int, last: int) -> Iterator[tuple[int, int, int, bytes]]:
    """Yield the stored answers of some rows, so that their answers to the user's question (`--ask`) can be checked.

    The rows are those in places `first` to `last` (included) of the send order. Each result is a tuple (row number, id
    of the submission (POST) that was answered, position of the row's image or video in the answer, compressed answer),
    ordered by submission. Left out are rows with cached answers, and rows about which the question was or will be asked
    again.
    """
    yield from db.execute(
        "SELECT i.seq, i.submission_id, i.asset, a.raw FROM items i JOIN answers a USING (submission_id) "  # noqa: S608
        f"WHERE i.status = 'ok' AND i.asset IS NOT NULL AND {SEND_ORDER} BETWEEN ? AND ? "
        "AND NOT EXISTS (SELECT 1 FROM answer_retries r WHERE r.seq = i.seq) ORDER BY i.submission_id, i.seq",
        (first, last),
    )


_RETRIES: Final = f"""
SELECT {SEND_ORDER} AS place, i.seq, i.url, i.path, i.kind, i.frames_high, r.error, r.backends
FROM answer_retries r JOIN items i USING (seq)
"""  # noqa: S608 (a constant expression)
_WAITING: Final = (
    _RETRIES + "WHERE r.submission_id IS NULL AND r.reason IS NULL AND place BETWEEN ?1 AND ?2 "
    "AND (place > ?1 OR i.seq > ?3) ORDER BY place, i.seq LIMIT ?4"
)


def waiting_retries(db: sqlite.Connection, first: int, last: int) -> Iterator[PendingRow]:
    """Yield the rows about which the question (`--ask`) is to be asked again, in the send order.

    Only rows in places `first` to `last` (included) of the send order are returned. Rows that cannot be sent, for
    example because of the budget, are left out.
    """
    after = -1
    while rows := list(db.execute(_WAITING, (first, last, after, CHUNK_ROWS))):
        yield from map(_to_pending_row, rows)
        first, after = rows[-1][:2]


def retried_row(db: sqlite.Connection, submission_id: int) -> PendingRow | None:
    """Return the row about which a submission (POST) asks the user's question (`--ask`) again.

    Return None if the submission does not repeat a question.
    """
    row = db.execute(_RETRIES + "WHERE r.submission_id = ?", (submission_id,)).fetchone()
    return None if row is None else _to_pending_row(row)


def _to_pending_row(row: Sequence[Any]) -> PendingRow:
    place, seq, url, path, kind, frames_high, error, backends = row
    return PendingRow(seq, url, path, kind, frames_high, AnswerRetry(error, tuple(orjson.loads(backends))), place)


def retry_totals(db: sqlite.Connection) -> RetryTotals:
    """Return how many rows had an invalid answer to the question (`--ask`), and what the second requests have cost."""
    sums = db.execute(
        "SELECT count(*), coalesce(sum(r.submission_id IS NULL), 0), count(s.submission_id), coalesce(sum(s.paid), 0) "
        "FROM answer_retries r LEFT JOIN submissions s USING (submission_id)"
    ).get
    return RetryTotals(*sums)
