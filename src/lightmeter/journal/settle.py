"""An answer and what it cost, written down together: the bytes, the money and the rows, in six statements.

Most requests are answered at once and read without trouble: for them, what `changes.receive` and `changes.settle` do
one after the other is one change. The bytes, the steps and the order of the steps are the same. Those that wait for the
writer at the same time are written by the same six statements.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from lightmeter import sqlite
from lightmeter.journal.commands import requeue_rows, status_of
from lightmeter.journal.compression import compress
from lightmeter.journal.outcome import AnswerOutcome, ReceivedAnswer
from lightmeter.journal.state import HOLDING, Event, State, step

__all__ = ["receive_and_release", "receive_and_settle"]


@dataclass(slots=True)
class _ReceiveAndSettle:
    """As `receive_and_settle`."""

    submission_id: int
    received: ReceivedAnswer
    event: Event
    outcome: AnswerOutcome
    note: str | None

    def __call__(self, db: sqlite.Connection) -> None:
        self.apply_all(db, [self])

    @staticmethod
    def apply_all(db: sqlite.Connection, settled: Sequence[_ReceiveAndSettle]) -> list[None]:
        """All of them or none, each statement once for all; the bytes are compressed here, by the writer's thread."""
        steps = _steps(db, settled)
        db.executemany(
            "INSERT OR REPLACE INTO answers VALUES (?, ?)",
            [(one.submission_id, compress(one.received.raw)) for one in settled],
        )
        db.executemany(
            "UPDATE submissions SET state = ?, http_status = ?, answered_at = ?, polls = polls + ?, paid = ?, "
            "remaining = ?, said = ?, request_id = coalesce(?, request_id) WHERE submission_id = ?",
            [
                (
                    *(after, one.received.http_status, one.received.at, one.received.polls, one.outcome.known_paid),
                    *(one.outcome.remaining, one.outcome.worth, one.outcome.request_id, one.submission_id),
                )
                for one, (_, after, _) in zip(settled, steps, strict=True)
            ],
        )
        db.execute(
            "UPDATE money SET paid = paid + ?, held = held - ?",
            (sum(one.outcome.known_paid or 0 for one in settled), sum(freed for _, _, freed in steps)),
        )
        db.executemany(
            "INSERT INTO transitions VALUES (?1, ?2, ?3, ?4, NULL), (?1, ?5, ?6, ?4, ?7)",
            [
                (one.submission_id, one.event, arrived, one.received.at, one.outcome.event, after, one.note)
                for one, (arrived, after, _) in zip(settled, steps, strict=True)
            ],
        )
        db.executemany(
            "UPDATE items SET status = ?, reason = ?, error = ?, asset = ?, name = ? WHERE seq = ?",
            [status_of(placed, one.outcome.reason) for one in settled for placed in one.outcome.rows],
        )
        return [None] * len(settled)


def _steps(db: sqlite.Connection, settled: Sequence[_ReceiveAndSettle]) -> list[tuple[State, State, int]]:
    """For each, the state it arrives in, the one it ends in, and the credits that are no longer held.

    Raises:
        InvalidTransition: one was answered before.
        KeyError: one is not there, or twice among them.
    """
    ids = json.dumps([one.submission_id for one in settled])
    found = {
        submission_id: (State(state), hold)
        for submission_id, state, hold in db.execute(
            "SELECT submission_id, state, hold FROM submissions "
            "WHERE submission_id IN (SELECT value FROM json_each(?))",
            (ids,),
        )
    }
    steps = []
    for one in settled:
        before, hold = found.pop(one.submission_id)
        arrived = step(before, one.event)
        after = step(arrived, one.outcome.event)
        steps.append((arrived, after, ((before in HOLDING) - (after in HOLDING)) * hold))
    return steps


def receive_and_settle(
    submission_id: int, received: ReceivedAnswer, event: Event, outcome: AnswerOutcome, note: str | None = None
) -> Callable[[sqlite.Connection], None]:
    """Keep an answer's bytes, count what was paid, and give every row its place; arguments as in `changes`."""
    return _ReceiveAndSettle(submission_id, received, event, outcome, note)


def receive_and_release(
    submission_id: int, received: ReceivedAnswer, event: Event, outcome: AnswerOutcome
) -> Callable[[sqlite.Connection], None]:
    """Keep an answer that brought nothing and cost nothing: its rows wait to be sent in another request."""
    settle = receive_and_settle(submission_id, received, event, replace(outcome, rows=()), "nothing was charged")

    def change(db: sqlite.Connection) -> None:
        settle(db)
        requeue_rows(db, submission_id)

    return change
