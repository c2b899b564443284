"""Second requests for rows whose first answer to the user's question is invalid.

A row keeps its first answer, whatever the second one is. The second request is a submission with its own hold, charge
and transitions; only the table `answer_retries` links it to the row. Each row gets at most one: `hold_and_send` raises
for another. If the service did not process the submission (unreached, throttled, proven unpaid), the row waits again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import orjson

from lightmeter import sqlite
from lightmeter.journal.queries.items import AnswerRetry, PendingRow


@dataclass(frozen=True, slots=True)
class RetryRow:
    """A row whose first answer is invalid."""

    seq: int
    retry: AnswerRetry


@dataclass(frozen=True, slots=True)
class RetryTotals:
    """Sums over second requests. The statement's JSON contains its fields.

    Attributes:
        rows: Rows whose first answer is invalid.
        waiting: Number of those rows that have no second request yet.
        requests: Second requests that were sent.
        paid: Credits charged for them.
    """

    rows: int = 0
    waiting: int = 0
    requests: int = 0
    paid: int = 0


def first_answers(db: sqlite.Connection, first: int, last: int) -> Iterator[tuple[int, int, int, bytes]]:
    """Yield (seq, submission id, asset, compressed answer) of answered rows without a second request.

    Rows with an answer of an earlier run are not included. Rows of one submission follow one another.

    Args:
        db: The journal.
        first: First row.
        last: Last row.
    """
    yield from db.execute(
        "SELECT i.seq, i.submission_id, i.asset, a.raw FROM items i JOIN answers a USING (submission_id) "
        "WHERE i.status = 'ok' AND i.asset IS NOT NULL AND i.seq BETWEEN ? AND ? "
        "AND NOT EXISTS (SELECT 1 FROM answer_retries r WHERE r.seq = i.seq) ORDER BY i.submission_id, i.seq",
        (first, last),
    )


_WAITING: Final = """
SELECT i.seq, i.url, i.path, i.kind, i.frames_high, r.error, r.backends FROM answer_retries r JOIN items i USING (seq)
WHERE r.submission_id IS NULL AND r.reason IS NULL AND r.seq BETWEEN ? AND ? ORDER BY r.seq LIMIT ?
"""


def waiting_retries(db: sqlite.Connection, first: int, last: int, chunk: int = 512) -> Iterator[PendingRow]:
    """Yield the rows with first ≤ seq ≤ last that wait for a second request, in order; read in chunks, as needed.

    Args:
        db: The journal.
        first: First row.
        last: Last row.
        chunk: Rows to read at a time.
    """
    at = first
    while rows := list(db.execute(_WAITING, (at, last, chunk))):
        for *row, error, backends in rows:
            yield pending_retry(*row, error, backends)
        at = rows[-1][0] + 1


def pending_retry(*row: Any) -> PendingRow:
    """Return a row from the columns (seq, url, path, kind, frames_high, error, back ends as JSON)."""
    seq, url, path, kind, frames_high, error, backends = row
    return PendingRow(seq, url, path, kind, frames_high, AnswerRetry(error, tuple(orjson.loads(backends))))


def retry_totals(db: sqlite.Connection) -> RetryTotals:
    """Return the sums over second requests."""
    ((rows, waiting, requests, paid),) = db.execute(
        "SELECT count(*), coalesce(sum(r.submission_id IS NULL), 0), count(s.submission_id), coalesce(sum(s.paid), 0) "
        "FROM answer_retries r LEFT JOIN submissions s USING (submission_id)"
    )
    return RetryTotals(rows, waiting, requests, paid)
