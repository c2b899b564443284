"""An answer and what it cost, written down together: the bytes, the money and the rows, in six statements.

Most requests are answered at once and read without trouble: for them, what `changes.receive` and `changes.settle` do
one after the other is one change. The bytes, the steps and the order of the steps are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import apsw

from lightmeter.journal.changes import Outcome, Received, let_wait, status_of
from lightmeter.journal.raw import pack
from lightmeter.journal.state import HOLDING, Event, State, step

__all__ = ["receive_and_release", "receive_and_settle"]


def receive_and_settle(
    submission_id: int, received: Received, event: Event, outcome: Outcome, note: str | None = None
) -> Callable[[apsw.Connection], None]:
    """Keep an answer's bytes, count what was paid, and give every row its place; arguments as in `changes`.

    The bytes are compressed by the writer, not by who waits for it.
    """

    def change(db: apsw.Connection) -> None:
        ((state, hold),) = db.execute("SELECT state, hold FROM submissions WHERE submission_id = ?", (submission_id,))
        arrived = step(State(state), event)
        settled = step(arrived, Event.SETTLE)
        freed = ((State(state) in HOLDING) - (settled in HOLDING)) * hold
        at = received.at
        db.execute("INSERT OR REPLACE INTO answers VALUES (?, ?)", (submission_id, pack(received.raw)))
        db.execute(
            "UPDATE submissions SET state = ?, http_status = ?, answered_at = ?, polls = polls + ?, paid = ?, "
            "remaining = ?, said = ?, request_id = coalesce(?, request_id) WHERE submission_id = ?",
            (
                *(settled, received.http_status, at, received.polls, outcome.paid),
                *(outcome.remaining, outcome.worth, outcome.request_id, submission_id),
            ),
        )
        db.execute("UPDATE money SET paid = paid + ?, held = held - ?", (outcome.paid, freed))
        db.execute(
            "INSERT INTO transitions VALUES (?1, ?2, ?3, ?4, NULL), (?1, ?5, ?6, ?4, ?7)",
            (submission_id, event, arrived, at, Event.SETTLE, settled, note),
        )
        db.executemany(
            "UPDATE items SET status = ?, reason = ?, error = ?, asset = ?, name = ? WHERE seq = ?",
            [status_of(placed, outcome.reason) for placed in outcome.rows],
        )

    return change


def receive_and_release(
    submission_id: int, received: Received, event: Event, outcome: Outcome
) -> Callable[[apsw.Connection], None]:
    """Keep an answer that brought nothing and cost nothing: its rows wait to be sent in another request."""
    settle = receive_and_settle(submission_id, received, event, replace(outcome, rows=()), "nothing was charged")

    def change(db: apsw.Connection) -> None:
        settle(db)
        let_wait(db, submission_id)

    return change
