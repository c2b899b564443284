"""Answers that are asked for once more: which rows, why, and the one request that each of them gets.

A row has one first answer, which stays its own whatever becomes of the second. The second is a submission like any
other, with its own hold, charge and transitions; `answer_retries` alone links it to the row. A row gets at most one:
`hold_and_send` refuses another. Only a submission that never counted (not reached, throttled, proven unpaid) lets its
row wait again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from lightmeter import sqlite
from lightmeter.journal.items import AnswerRetry, PendingRow

__all__ = [
    "RetryRow",
    "RetryTotals",
    "add_retries",
    "clear_not_retried",
    "first_answers",
    "not_retried",
    "pending_retry",
    "retry_totals",
    "waiting_retries",
]


@dataclass(frozen=True, slots=True)
class RetryRow:
    """A row whose first answer is not valid."""

    seq: int
    retry: AnswerRetry


@dataclass(frozen=True, slots=True)
class RetryTotals:
    """What became of second questions.

    Attributes:
        rows: Rows whose first answer is not valid.
        waiting: Of those, rows that were not asked again yet.
        requests: Requests that were sent for the others.
        paid: Credits that those cost.
    """

    rows: int = 0
    waiting: int = 0
    requests: int = 0
    paid: int = 0


def first_answers(db: sqlite.Connection, first: int, last: int) -> Iterator[tuple[int, int, int, bytes]]:
    """(seq, submission, asset, packed answer) of rows first ≤ seq ≤ last that were answered and wait for no second one.

    Rows that an earlier run's answer answers are not among them. Rows of one submission stand together.
    """
    yield from db.execute(
        "SELECT i.seq, i.submission_id, i.asset, a.raw FROM items i JOIN answers a USING (submission_id) "
        "WHERE i.status = 'ok' AND i.asset IS NOT NULL AND i.seq BETWEEN ? AND ? "
        "AND NOT EXISTS (SELECT 1 FROM answer_retries r WHERE r.seq = i.seq) ORDER BY i.submission_id, i.seq",
        (first, last),
    )


def add_retries(rows: Sequence[RetryRow]) -> Callable[[sqlite.Connection], None]:
    """Let these rows wait to be asked about again; those that were asked about again stay as they are."""

    def change(db: sqlite.Connection) -> None:
        db.executemany(
            "INSERT INTO answer_retries (seq, error, backends) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
            [(row.seq, row.retry.error, orjson.dumps(row.retry.backends).decode()) for row in rows],
        )

    return change


_WAITING: Final = """
SELECT i.seq, i.url, i.path, i.kind, i.frames_high, r.error, r.backends FROM answer_retries r JOIN items i USING (seq)
WHERE r.submission_id IS NULL AND r.reason IS NULL AND r.seq BETWEEN ? AND ? ORDER BY r.seq LIMIT ?
"""


def waiting_retries(db: sqlite.Connection, first: int, last: int, chunk: int = 512) -> Iterator[PendingRow]:
    """Rows first ≤ seq ≤ last that wait to be asked about again, in order; each chunk is read when it is needed."""
    at = first
    while rows := list(db.execute(_WAITING, (at, last, chunk))):
        for *row, error, backends in rows:
            yield pending_retry(*row, error, backends)
        at = rows[-1][0] + 1


def pending_retry(*row: Any) -> PendingRow:
    """A row of (seq, url, path, kind, frames_high, error, backends as JSON)."""
    seq, url, path, kind, frames_high, error, backends = row
    return PendingRow(seq, url, path, kind, frames_high, AnswerRetry(error, tuple(orjson.loads(backends))))


def not_retried(reason: str, first: int, last: int) -> Callable[[sqlite.Connection], int]:
    """Say why rows first ≤ seq ≤ last that wait are not asked about again for now; returns how many."""

    def change(db: sqlite.Connection) -> int:
        db.execute(
            "UPDATE answer_retries SET reason = ? "
            "WHERE submission_id IS NULL AND reason IS NULL AND seq BETWEEN ? AND ?",
            (reason, first, last),
        )
        return db.changes()

    return change


def clear_not_retried(first: int, last: int) -> Callable[[sqlite.Connection], None]:
    """Let rows first ≤ seq ≤ last that were not asked about again wait once more: there may be more to spend now."""

    def change(db: sqlite.Connection) -> None:
        db.execute(
            "UPDATE answer_retries SET reason = NULL WHERE submission_id IS NULL AND seq BETWEEN ? AND ?", (first, last)
        )

    return change


def retry_totals(db: sqlite.Connection) -> RetryTotals:
    """How many rows were asked about again, and for how much."""
    ((rows, waiting, requests, paid),) = db.execute(
        "SELECT count(*), coalesce(sum(r.submission_id IS NULL), 0), count(s.submission_id), coalesce(sum(s.paid), 0) "
        "FROM answer_retries r LEFT JOIN submissions s USING (submission_id)"
    )
    return RetryTotals(rows, waiting, requests, paid)
