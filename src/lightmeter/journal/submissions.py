"""Submissions in the journal, read back: what a restart must collect, resolve and report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import apsw

from lightmeter.journal.raw import unpack
from lightmeter.journal.state import State

__all__ = ["Submitted", "answer_of", "requests_sent", "submissions_in"]


@dataclass(frozen=True, slots=True)
class Submitted:
    """A submission and its rows, as (seq, url, path), in the order they were sent."""

    submission_id: int
    state: State
    hold: int
    request_id: str | None
    acked_at: float | None
    rows: tuple[tuple[int, str, str | None], ...]


def submissions_in(db: apsw.Connection, states: Iterable[State]) -> Iterator[Submitted]:
    """All submissions in one of these states, oldest first."""
    wanted = sorted(states)
    marks = ", ".join("?" * len(wanted))
    found = list(
        db.execute(
            "SELECT submission_id, state, hold, request_id, acked_at FROM submissions "  # noqa: S608 (marks are ?, ?, …)
            f"WHERE state IN ({marks}) ORDER BY submission_id",
            wanted,
        )
    )
    for submission_id, state, hold, request_id, acked_at in found:
        rows = tuple(
            db.execute("SELECT seq, url, path FROM items WHERE submission_id = ? ORDER BY seq", (submission_id,))
        )
        yield Submitted(submission_id, State(state), hold, request_id, acked_at, rows)


def answer_of(db: apsw.Connection, submission_id: int) -> bytes | None:
    """The bytes of its answer, as they came."""
    row = db.execute("SELECT raw FROM answers WHERE submission_id = ?", (submission_id,)).fetchone()
    return unpack(row[0]) if row else None


def requests_sent(db: apsw.Connection) -> int:
    """How many POSTs were ever sent."""
    ((sent,),) = db.execute("SELECT coalesce(sum(attempts), 0) FROM submissions")
    return int(sent)
