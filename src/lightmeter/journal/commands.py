"""The changes a journal knows, each a function of the connection to be handed to `Journal.write`.

Money moves only here: a hold, its settlement and the running totals are always written in one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lightmeter import sqlite
from lightmeter.errors import BudgetReached, InvalidTransition
from lightmeter.journal.charges import credit_totals
from lightmeter.journal.compression import compress
from lightmeter.journal.outcome import AnswerOutcome, ReceivedAnswer, Refusal, RowResult
from lightmeter.journal.state import HOLDING, Event, State, step

__all__ = [
    "acknowledge",
    "apply_event",
    "clear_over_budget",
    "fail_row",
    "get_meta",
    "hold_and_send",
    "last_transition_id",
    "lose",
    "mark_over_budget",
    "put_meta",
    "receive",
    "requeue_rows",
    "resend",
    "revert_to_planned",
    "settle",
    "status_of",
    "store_raw_answer",
    "void",
]


def put_meta(values: dict[str, str]) -> Callable[[sqlite.Connection], None]:
    """Remember facts of the run."""

    def change(db: sqlite.Connection) -> None:
        db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", list(values.items()))

    return change


def get_meta(db: sqlite.Connection) -> dict[str, str]:
    """All facts of the run."""
    return dict(db.execute("SELECT key, value FROM meta"))


def apply_event(db: sqlite.Connection, submission_id: int, event: Event, at: float, detail: str | None = None) -> State:
    """Take one step in the life of a submission, and keep the running hold right; for use inside a change."""
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
    """How far the journal has come: the position of its last transition, 0 before the first."""
    ((last,),) = db.execute("SELECT coalesce(max(rowid), 0) FROM transitions")
    return int(last)


@dataclass(slots=True)
class _HoldAndSend:
    """As `hold_and_send`."""

    rows: Sequence[int]
    hold: int
    budget: int | None
    at: float
    retry: bool

    def __call__(self, db: sqlite.Connection) -> int:
        return self.apply_all(db, [self])[0]

    @staticmethod
    def apply_all(db: sqlite.Connection, holds: Sequence[_HoldAndSend]) -> list[int]:
        """All of them or none: a budget that does not hold them all refuses them all."""
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
        raise InvalidTransition(f"Row {seq} does not wait to be asked about again: a second answer is paid for once.")


def hold_and_send(
    rows: Sequence[int], hold: int, budget: int | None, at: float, *, retry: bool = False
) -> Callable[[sqlite.Connection], int]:
    """Set the price aside and write down that the request is about to leave; returns the submission's id.

    Args:
        rows: Its rows.
        hold: Most it can cost, in whole credits.
        budget: The run's cap; None: there is none.
        at: Seconds since the epoch.
        retry: It asks about its row again: the row's first answer, and its status, stay.

    Raises (from the write):
        BudgetReached: paid + held + this hold would exceed `budget`; nothing was written.
        InvalidTransition: the row was asked about again before.
    """
    return _HoldAndSend(rows, hold, budget, at, retry)


def receive(submission_id: int, received: ReceivedAnswer, event: Event) -> Callable[[sqlite.Connection], None]:
    """Keep an answer's bytes; `event` says whether it came at once (answer) or by polling (collect)."""
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
    """Keep the bytes of an answer that is not strictly JSON, before anybody reads it; nothing else changes."""
    packed = compress(received.raw)

    def change(db: sqlite.Connection) -> None:
        db.execute("INSERT OR REPLACE INTO answers VALUES (?, ?)", (submission_id, packed))
        db.execute(
            "UPDATE submissions SET http_status = ? WHERE submission_id = ?", (received.http_status, submission_id)
        )

    return change


def acknowledge(submission_id: int, request_id: str, at: float) -> Callable[[sqlite.Connection], None]:
    """The service took the request and will have its answer under `request_id`."""

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
    """The charge is known: release the hold, count what was paid, and give every row its place.

    `note` stays with the step: what was odd about the charge.
    """

    def change(db: sqlite.Connection) -> None:
        db.execute(
            "UPDATE submissions SET paid = ?, remaining = ?, said = ?, request_id = coalesce(?, request_id) "
            "WHERE submission_id = ?",
            (outcome.known_paid, outcome.remaining, outcome.worth, outcome.request_id, submission_id),
        )
        db.execute("UPDATE money SET paid = paid + ?", (outcome.known_paid or 0,))
        apply_event(db, submission_id, outcome.event, at, note)
        db.executemany(
            "UPDATE items SET status = ?, reason = ?, error = ?, asset = ?, name = ? WHERE seq = ?",
            [status_of(placed, outcome.reason) for placed in outcome.rows],
        )

    return change


def status_of(placed: RowResult, reason: str) -> tuple[str | int | None, ...]:
    """A row's status, reason, error, asset and name, and its seq; `reason` is for rows without an asset."""
    if placed.error is None:
        return ("ok", None, None, placed.asset, placed.name, placed.seq)
    return ("failed", reason, placed.error, placed.asset, placed.name, placed.seq)


def void(submission_id: int, refusal: Refusal, at: float) -> Callable[[sqlite.Connection], None]:
    """Refused, nothing was charged: release the hold; its rows have failed for this reason, or wait again."""

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
    """Let the rows of a submission wait to be sent in another; for use inside a change.

    `db.changes()` is then how many rows of the manifest do.
    """
    db.execute("UPDATE answer_retries SET submission_id = NULL WHERE submission_id = ?", (submission_id,))
    db.execute(
        "UPDATE items SET submission_id = NULL, status = 'pending', reason = NULL, error = NULL "
        "WHERE submission_id = ?",
        (submission_id,),
    )


def fail_row(seq: int, reason: str, error: str) -> Callable[[sqlite.Connection], None]:
    """A row that could not even be sent (its file is gone, say): nothing was spent on it."""

    def change(db: sqlite.Connection) -> None:
        db.execute("UPDATE items SET status = 'failed', reason = ?, error = ? WHERE seq = ?", (reason, error, seq))

    return change


def revert_to_planned(submission_id: int, event: Event, why: str, at: float) -> Callable[[sqlite.Connection], None]:
    """It never counted (unreached, throttled): its rows wait to be sent in a new submission."""

    def change(db: sqlite.Connection) -> None:
        apply_event(db, submission_id, event, at, why)
        db.execute("UPDATE submissions SET error = ? WHERE submission_id = ?", (why, submission_id))
        requeue_rows(db, submission_id)

    return change


def lose(
    submission_id: int, why: str, at: float, received: ReceivedAnswer | None = None
) -> Callable[[sqlite.Connection], None]:
    """No usable answer came, and it may have been charged: its rows are in doubt and the price stays held.

    Args:
        submission_id: The submission.
        why: What happened, as a sentence.
        at: Seconds since the epoch.
        received: What came all the same; its bytes are kept.
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
    """Ask again for a lost submission under its own idempotency key, which the service honours: it is paid once.

    Its price stays held all the while.
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
    """Rows first ≤ seq ≤ last that still wait are beyond what may be spent, for this reason; returns how many."""

    def change(db: sqlite.Connection) -> int:
        db.execute(
            "UPDATE items SET status = 'over_budget', reason = ? "
            "WHERE status = 'pending' AND submission_id IS NULL AND seq BETWEEN ? AND ?",
            (reason, first, last),
        )
        return db.changes()

    return change


def clear_over_budget(first: int, last: int) -> Callable[[sqlite.Connection], None]:
    """Let rows first ≤ seq ≤ last wait again: this run may have more to spend."""

    def change(db: sqlite.Connection) -> None:
        db.execute(
            "UPDATE items SET status = 'pending', reason = NULL WHERE status = 'over_budget' AND seq BETWEEN ? AND ?",
            (first, last),
        )

    return change
