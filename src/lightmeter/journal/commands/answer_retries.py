"""Commands on second requests for rows whose first answer to the user's question is invalid."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import orjson

from lightmeter import sqlite
from lightmeter.journal.queries.answer_retries import RetryRow


def add_retries(rows: Sequence[RetryRow]) -> Callable[[sqlite.Connection], None]:
    """Return a change that makes rows wait for a second request; rows that have one already do not change."""

    def change(db: sqlite.Connection) -> None:
        db.executemany(
            "INSERT INTO answer_retries (seq, error, backends) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
            [(row.seq, row.retry.error, orjson.dumps(row.retry.backends).decode()) for row in rows],
        )

    return change


def mark_not_retried(reason: str, first: int, last: int) -> Callable[[sqlite.Connection], int]:
    """Record why waiting rows with first ≤ seq ≤ last get no second request now; the change returns their number.

    Args:
        reason: Code of the limit that was reached.
        first: First row.
        last: Last row.
    """

    def change(db: sqlite.Connection) -> int:
        db.execute(
            "UPDATE answer_retries SET reason = ? "
            "WHERE submission_id IS NULL AND reason IS NULL AND seq BETWEEN ? AND ?",
            (reason, first, last),
        )
        return db.changes()

    return change


def clear_not_retried(first: int, last: int) -> Callable[[sqlite.Connection], None]:
    """Make the rows with first ≤ seq ≤ last that got no second request wait for one again."""

    def change(db: sqlite.Connection) -> None:
        db.execute(
            "UPDATE answer_retries SET reason = NULL WHERE submission_id IS NULL AND seq BETWEEN ? AND ?", (first, last)
        )

    return change
