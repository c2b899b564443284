"""Store the bytes of an answer, then record its charge and the results of its rows.

Nothing reads an answer before its bytes are stored. The thread that writes the journal can store or record many answers
together, which is faster than one by one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from lightmeter import sqlite
from lightmeter.journal.commands.submissions import requeue_rows, write_row_results
from lightmeter.journal.compression import compress
from lightmeter.journal.outcome import AnswerOutcome, ReceivedAnswer
from lightmeter.journal.submission_states import HOLDING, Event, State, step


@dataclass(slots=True)
class _StoreAnswer:
    """The function for `Journal.write` that `store_answer` returns; `apply_all` stores several answers together."""

    submission_id: int
    received: ReceivedAnswer

    def __call__(self, db: sqlite.Connection) -> None:
        self.apply_all(db, [self])

    @staticmethod
    def apply_all(db: sqlite.Connection, stored: Sequence[_StoreAnswer]) -> list[None]:
        """Store each answer in `stored`. The list that is returned has one None for each."""
        db.executemany(
            "INSERT OR REPLACE INTO answers VALUES (?, ?)",
            [(one.submission_id, compress(one.received.raw)) for one in stored],
        )
        db.executemany(
            "UPDATE submissions SET http_status = ? WHERE submission_id = ?",
            [(one.received.http_status, one.submission_id) for one in stored],
        )
        return [None] * len(stored)


def store_answer(submission_id: int, received: ReceivedAnswer) -> sqlite.Change[None]:
    """Return a function for `Journal.write` that stores the bytes of an answer, before any code reads them.

    They replace those of an earlier answer to the same submission (POST), whose state stays unchanged.
    """
    return _StoreAnswer(submission_id, received)


@dataclass(slots=True)
class _ReceiveAndSettle:
    """A function for `Journal.write` that records one answer and its charge; `apply_all` records several together.

    Attributes:
        submission_id: The submission (POST) that was answered.
        received: The answer.
        event: `ANSWER` if the answer was the response to the POST, `COLLECT` if it was the response to a poll.
        outcome: The charge and the rows' results. Its own `event` records the charge, after `event`.
        note: What was unexpected about the charge, to be stored with the change of state; None if nothing was.
    """

    submission_id: int
    received: ReceivedAnswer
    event: Event
    outcome: AnswerOutcome
    note: str | None

    def __call__(self, db: sqlite.Connection) -> None:
        self.apply_all(db, [self])

    @staticmethod
    def apply_all(db: sqlite.Connection, settled: Sequence[_ReceiveAndSettle]) -> list[None]:
        """Record the answer and the charge of each object in `settled`; if one fails, raise and record none.

        The list that is returned has one None for each object.
        """
        steps = _steps(db, settled)
        db.executemany(
            "UPDATE submissions SET state = ?, http_status = ?, answered_at = ?, polls = polls + ?, paid = ?, "
            "remaining = ?, said = ?, request_id = coalesce(?, request_id) WHERE submission_id = ?",
            [
                (
                    *(after, one.received.http_status, one.received.at, one.received.polls, one.outcome.known_paid),
                    *(one.outcome.remaining, one.outcome.charge_evidence, one.outcome.request_id, one.submission_id),
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
                (one.submission_id, one.event, answered, one.received.at, one.outcome.event, after, one.note)
                for one, (answered, after, _) in zip(settled, steps, strict=True)
            ],
        )
        write_row_results(db, [one.outcome for one in settled])
        return [None] * len(settled)


def _steps(db: sqlite.Connection, settled: Sequence[_ReceiveAndSettle]) -> list[tuple[State, State, int]]:
    """Return (first state, second state, freed credits) for each submission (POST) in `settled`.

    The first state is the state after the answer came. The second is the state after the charge is recorded. The
    freed credits were reserved for the submission, and are no longer reserved in the second state.

    Raises:
        InvalidTransition: a submission already had its answer.
        KeyError: a submission does not exist, or occurs twice.
    """
    rows = db.execute(
        "SELECT submission_id, state, hold FROM submissions WHERE submission_id IN (SELECT value FROM json_each(?))",
        (json.dumps([one.submission_id for one in settled]),),
    )
    states = {submission_id: (State(state), hold) for submission_id, state, hold in rows}
    steps = []
    for one in settled:
        before, hold = states.pop(one.submission_id)
        answered = step(before, one.event)
        after = step(answered, one.outcome.event)
        steps.append((answered, after, ((before in HOLDING) - (after in HOLDING)) * hold))
    return steps


def receive_and_settle(
    submission_id: int, received: ReceivedAnswer, event: Event, outcome: AnswerOutcome, note: str | None = None
) -> sqlite.Change[None]:
    """Return a function for `Journal.write` that records an answer, its charge and the results of its rows.

    The charge replaces the credits that were reserved for the request.

    Args:
        submission_id: The submission (POST) that was answered.
        received: The answer, which `store_answer` has stored.
        event: `ANSWER` if the answer was the response to the POST, `COLLECT` if it was the response to a poll.
        outcome: The charge and the rows' results.
        note: What was unexpected about the charge, to be stored with the change of state; None if nothing was.
    """
    return _ReceiveAndSettle(submission_id, received, event, outcome, note)


@sqlite.command
def receive_and_release(
    db: sqlite.Connection, submission_id: int, received: ReceivedAnswer, event: Event, outcome: AnswerOutcome
) -> None:
    """Record an answer that has no results and cost nothing; the request's rows become pending, to be sent again.

    Args:
        db: The journal, in a transaction.
        submission_id: The submission (POST) that was answered.
        received: The answer, which `store_answer` has stored.
        event: `ANSWER` if the answer was the response to the POST, `COLLECT` if it was the response to a poll.
        outcome: The charge that the answer reports, which is 0; `outcome.rows` is ignored.
    """
    receive_and_settle(submission_id, received, event, replace(outcome, rows=()), "nothing was charged")(db)
    requeue_rows(db, submission_id)
