"""Commands that change a journal: each returns a function of the connection, to be passed to `Journal.write`.

A hold, its settlement and the running totals of credits are always written in one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lightmeter import sqlite
from lightmeter.errors import BudgetReached, InvalidTransition
from lightmeter.journal.compression import compress
from lightmeter.journal.outcome import AnswerOutcome, ReceivedAnswer, Refusal, RowResult
from lightmeter.journal.queries.charges import credit_totals
from lightmeter.journal.submission_states import HOLDING, Event, State, step


def put_meta(values: dict[str, str]) -> Callable[[sqlite.Connection], None]:
    """Write values of the run to the table `meta`."""

    def change(db: sqlite.Connection) -> None:
        db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", list(values.items()))

    return change


def get_meta(db: sqlite.Connection) -> dict[str, str]:
    """Return the values of the table `meta`."""
    return dict(db.execute("SELECT key, value FROM meta"))


def apply_event(db: sqlite.Connection, submission_id: int, event: Event, at: float, detail: str | None = None) -> State:
    """Change the state of a submission, record the transition, and update the sum of holds; for use inside a change.

    Args:
        db: The connection of the transaction.
        submission_id: The submission.
        event: The event that happened to it.
        at: Seconds since the epoch.
        detail: A sentence to store with the transition.

    Raises:
        InvalidTransition: the submission's state does not allow the event.
    """
    ((state, hold),) = db.execute("SELECT state, hold FROM submissions WHERE submission_id = ?", (submission_id,))
    before = State(state)
    after = step(before, event)
    db.execute("UPDATE submissions SET state = ? WHERE submission_id = ?", (after, submission_id))
    db.execute("INSERT INTO transitions VALUES (?, ?, ?, ?, ?)", (submission_id, event, after, at, detail))
    change = ((after in HOLDING) - (before in HOLDING)) * hold
    if change:
        db.execute("UPDATE money SET held = held + ?", (change,))
    return after


def last_transition_id(db: sqlite.Connection) -> int:
    """Return the id of the newest transition; 0 before the first. Ids only grow, so they order everything in a run."""
    ((last,),) = db.execute("SELECT coalesce(max(rowid), 0) FROM transitions")
    return int(last)


@dataclass(slots=True)
class _HoldAndSend:
    """The change that `hold_and_send` returns."""

    rows: Sequence[int]
    hold: int
    budget: int | None
    at: float
    retry: bool

    def __call__(self, db: sqlite.Connection) -> int:
        return self.apply_all(db, [self])[0]

    @staticmethod
    def apply_all(db: sqlite.Connection, holds: Sequence[_HoldAndSend]) -> list[int]:
        """Write all holds or none: if the budget is too small for their sum, write none."""
        held = step(State.PLANNED, Event.HOLD)
        sent = step(held, Event.SEND)
        total = sum(one.hold for one in holds)
        budget = min((one.budget for one in holds if one.budget is not None), default=None)
        db.execute("UPDATE money SET held = held + ?1 WHERE ?2 IS NULL OR paid + held + ?1 <= ?2", (total, budget))
        if not db.changes():
            paid, held_ = credit_totals(db)
            raise BudgetReached(
                f"{total} more credits could exceed the budget: {paid} paid, {held_} held, of {budget}."
            )
        ((first,),) = db.execute("SELECT coalesce(max(submission_id), 0) + 1 FROM submissions")
        numbered = list(enumerate(holds, first))
        db.executemany(
            "INSERT INTO submissions (submission_id, state, hold, assets, sent_at, attempts) VALUES (?, ?, ?, ?, ?, 1)",
            [(number, sent, one.hold, len(one.rows), one.at) for number, one in numbered],
        )
        db.executemany(
            "INSERT INTO transitions VALUES (?1, ?2, ?3, ?4, NULL), (?1, ?5, ?6, ?4, NULL)",
            [(number, Event.HOLD, held, one.at, Event.SEND, sent) for number, one in numbered],
        )
        db.executemany(
            "UPDATE items SET submission_id = ? WHERE seq = ?",
            [(number, seq) for number, one in numbered if not one.retry for seq in one.rows],
        )
        for number, seq in ((number, seq) for number, one in numbered if one.retry for seq in one.rows):
            _link_retry(db, number, seq)
        return [number for number, _ in numbered]


def _link_retry(db: sqlite.Connection, submission_id: int, seq: int) -> None:
    db.execute(
        "UPDATE answer_retries SET submission_id = ?, reason = NULL WHERE seq = ? AND submission_id IS NULL",
        (submission_id, seq),
    )
    if not db.changes():
        raise InvalidTransition(f"Row {seq} does not wait for a second request: each row gets at most one.")


def hold_and_send(
    rows: Sequence[int], hold: int, budget: int | None, at: float, *, retry: bool = False
) -> Callable[[sqlite.Connection], int]:
    """Hold the price of a request and record that it is about to be sent; the change returns the submission's id.

    Args:
        rows: Numbers of its rows.
        hold: The most that it can cost, in whole credits.
        budget: The run's budget in credits; None without one.
        at: Seconds since the epoch.
        retry: Whether it is the second request for its row: the row keeps its first answer and its status.

    Raises (from the write):
        BudgetReached: paid + held + this hold would exceed `budget`; nothing was written.
        InvalidTransition: the row already had a second request.
    """
    return _HoldAndSend(rows, hold, budget, at, retry)


def record_answer(submission_id: int, received: ReceivedAnswer, event: Event) -> Callable[[sqlite.Connection], None]:
    """Store the bytes of an answer before any code interprets them.

    Args:
        submission_id: The submission that it answers.
        received: The answer.
        event: `ANSWER` if it answered the POST, `COLLECT` if it answered a poll.
    """
    packed = compress(received.raw)

    def change(db: sqlite.Connection) -> None:
        db.execute("INSERT OR REPLACE INTO answers VALUES (?, ?)", (submission_id, packed))
        db.execute(
            "UPDATE submissions SET http_status = ?, answered_at = ?, polls = polls + ? WHERE submission_id = ?",
            (received.http_status, received.at, received.polls, submission_id),
        )
        apply_event(db, submission_id, event, received.at)

    return change


def store_raw_answer(submission_id: int, received: ReceivedAnswer) -> Callable[[sqlite.Connection], None]:
    """Store the bytes of an answer that is not valid JSON, without changing the state of its submission."""
    packed = compress(received.raw)

    def change(db: sqlite.Connection) -> None:
        db.execute("INSERT OR REPLACE INTO answers VALUES (?, ?)", (submission_id, packed))
        db.execute(
            "UPDATE submissions SET http_status = ? WHERE submission_id = ?", (received.http_status, submission_id)
        )

    return change


def acknowledge(submission_id: int, request_id: str, at: float) -> Callable[[sqlite.Connection], None]:
    """Record that the service accepted the request; its answer can be polled under `request_id`.

    Args:
        submission_id: The submission.
        request_id: The service's id of the request.
        at: Seconds since the epoch.
    """

    def change(db: sqlite.Connection) -> None:
        db.execute(
            "UPDATE submissions SET request_id = ?, acked_at = ? WHERE submission_id = ?",
            (request_id, at, submission_id),
        )
        apply_event(db, submission_id, Event.ACKNOWLEDGE, at)

    return change


def settle(
    submission_id: int, outcome: AnswerOutcome, at: float, note: str | None = None
) -> Callable[[sqlite.Connection], None]:
    """Replace the hold by the charge, and write the result of every row.

    Args:
        submission_id: The submission; its answer is recorded.
        outcome: The charge and the rows' results.
        at: Seconds since the epoch.
        note: What was unexpected about the charge; stored with the transition.
    """

    def change(db: sqlite.Connection) -> None:
        db.execute(
            "UPDATE submissions SET paid = ?, remaining = ?, said = ?, request_id = coalesce(?, request_id) "
            "WHERE submission_id = ?",
            (outcome.known_paid, outcome.remaining, outcome.charge_evidence, outcome.request_id, submission_id),
        )
        db.execute("UPDATE money SET paid = paid + ?", (outcome.known_paid or 0,))
        apply_event(db, submission_id, outcome.event, at, note)
        db.executemany(
            "UPDATE items SET status = ?, reason = ?, error = ?, asset = ?, name = ? WHERE seq = ?",
            [row_values(result, outcome.reason) for result in outcome.rows],
        )

    return change


def row_values(result: RowResult, reason: str) -> tuple[str | int | None, ...]:
    """Return (status, reason, error, asset, name, seq) of a row; `reason` applies to rows without an asset."""
    if result.error is None:
        return ("ok", None, None, result.asset, result.name, result.seq)
    return ("failed", reason, result.error, result.asset, result.name, result.seq)


def record_refusal(submission_id: int, refusal: Refusal, at: float) -> Callable[[sqlite.Connection], None]:
    """Record a refusal: release the hold; the rows fail with its reason, or become pending again.

    Args:
        submission_id: The submission.
        refusal: Why it was refused.
        at: Seconds since the epoch.
    """

    def change(db: sqlite.Connection) -> None:
        if refusal.received is not None:
            db.execute("INSERT OR REPLACE INTO answers VALUES (?, ?)", (submission_id, compress(refusal.received.raw)))
        http_status = refusal.received.http_status if refusal.received else None
        db.execute(
            "UPDATE submissions SET error = ?, http_status = ?, answered_at = ?, paid = 0 WHERE submission_id = ?",
            (refusal.error, http_status, at, submission_id),
        )
        apply_event(db, submission_id, Event.REFUSE, at, refusal.error)
        apply_event(db, submission_id, Event.VOID, at)
        if refusal.rows_retryable:
            requeue_rows(db, submission_id)
        else:
            db.execute(
                "UPDATE items SET status = 'failed', reason = ?, error = ? WHERE submission_id = ?",
                (refusal.reason, refusal.error, submission_id),
            )

    return change


def requeue_rows(db: sqlite.Connection, submission_id: int) -> None:
    """Make the rows of a submission pending again, to be sent in another one; for use inside a change.

    `db.changes()` then returns the number of rows of the manifest.
    """
    db.execute("UPDATE answer_retries SET submission_id = NULL WHERE submission_id = ?", (submission_id,))
    db.execute(
        "UPDATE items SET submission_id = NULL, status = 'pending', reason = NULL, error = NULL "
        "WHERE submission_id = ?",
        (submission_id,),
    )


def fail_row(seq: int, reason: str, error: str) -> Callable[[sqlite.Connection], None]:
    """Mark a row as failed that could not be sent, for example because its file is gone.

    Args:
        seq: Number of the row.
        reason: Code to group failures by.
        error: A sentence for the user.
    """

    def change(db: sqlite.Connection) -> None:
        db.execute("UPDATE items SET status = 'failed', reason = ?, error = ? WHERE seq = ?", (reason, error, seq))

    return change


def revert_to_planned(submission_id: int, event: Event, why: str, at: float) -> Callable[[sqlite.Connection], None]:
    """Release the hold of a submission that the service never processed; its rows become pending again.

    Args:
        submission_id: The submission.
        event: `UNREACHED` or `THROTTLE`.
        why: What happened, as a sentence.
        at: Seconds since the epoch.
    """

    def change(db: sqlite.Connection) -> None:
        apply_event(db, submission_id, event, at, why)
        db.execute("UPDATE submissions SET error = ? WHERE submission_id = ?", (why, submission_id))
        requeue_rows(db, submission_id)

    return change


def mark_uncertain(
    submission_id: int, why: str, at: float, received: ReceivedAnswer | None = None
) -> Callable[[sqlite.Connection], None]:
    """Mark a submission without a usable answer, which may have been charged: its rows are in doubt, its hold stays.

    Args:
        submission_id: The submission.
        why: What happened, as a sentence.
        at: Seconds since the epoch.
        received: The unusable answer, if there was one; its bytes are stored.
    """

    def change(db: sqlite.Connection) -> None:
        if received is not None:
            store_raw_answer(submission_id, received)(db)
        apply_event(db, submission_id, Event.LOSE, at, why)
        db.execute("UPDATE submissions SET error = ? WHERE submission_id = ?", (why, submission_id))
        db.execute(
            "UPDATE items SET status = 'in_doubt', reason = 'no_answer', error = ? WHERE submission_id = ?",
            (why, submission_id),
        )

    return change


def resend(submission_id: int, at: float) -> Callable[[sqlite.Connection], None]:
    """Record that an uncertain submission is sent again under its idempotency key, so that it is charged once.

    Its hold stays.
    """

    def change(db: sqlite.Connection) -> None:
        apply_event(db, submission_id, Event.ASK_AGAIN, at, "same idempotency key")
        db.execute(
            "UPDATE submissions SET attempts = attempts + 1, sent_at = ?, error = NULL WHERE submission_id = ?",
            (at, submission_id),
        )
        db.execute(
            "UPDATE items SET status = 'pending', reason = NULL, error = NULL WHERE submission_id = ?",
            (submission_id,),
        )

    return change


def mark_over_budget(reason: str, first: int, last: int) -> Callable[[sqlite.Connection], int]:
    """Mark the pending rows first ≤ seq ≤ last as over budget; the change returns their number.

    Args:
        reason: Code of the limit that was reached.
        first: First row.
        last: Last row.
    """

    def change(db: sqlite.Connection) -> int:
        db.execute(
            "UPDATE items SET status = 'over_budget', reason = ? "
            "WHERE status = 'pending' AND submission_id IS NULL AND seq BETWEEN ? AND ?",
            (reason, first, last),
        )
        return db.changes()

    return change


def clear_over_budget(first: int, last: int) -> Callable[[sqlite.Connection], None]:
    """Make the rows first ≤ seq ≤ last that were over budget pending again."""

    def change(db: sqlite.Connection) -> None:
        db.execute(
            "UPDATE items SET status = 'pending', reason = NULL WHERE status = 'over_budget' AND seq BETWEEN ? AND ?",
            (first, last),
        )

    return change
