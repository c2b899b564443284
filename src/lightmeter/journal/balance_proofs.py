"""Balance readings, and proofs from them: what was charged for requests without an answer.

A proof covers a *window* of the journal: it begins at a balance reading without open submissions, and ends at a later
reading without requests in flight. The proof document lists every number and every assumption. The transaction that
applies the proof's resolutions also stores its document.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from lightmeter import sqlite
from lightmeter.journal.commands.submissions import apply_event, last_transition_id, requeue_rows
from lightmeter.journal.submission_states import Event, State

_OPEN: Final = tuple(
    sorted({State.HELD, State.SENT, State.ANSWERED, State.ACKED, State.POLLED, State.REFUSED, State.UNCERTAIN})
)
"""States of a submission that may still be charged, or whose charge is not recorded yet."""


@dataclass(frozen=True, slots=True)
class BalanceReading:
    """The account's balance, read while no request was in flight. Proof documents contain its fields.

    Attributes:
        reading_id: Number in order of time.
        at: Seconds since the epoch.
        balance: Credits.
        place: Id of the last transition before the reading.
    """

    reading_id: int
    at: float
    balance: int
    place: int


@dataclass(frozen=True, slots=True)
class WindowSubmission:
    """What the journal knows about the charge of a submission that was sent in a window.

    Attributes:
        submission_id: The submission.
        state: Its state.
        hold: The most that it can have cost, in credits.
        paid: Credits charged; None while unknown.
        remaining: The balance that its answer reported; None without one.
        charge_reported: Whether the answer reported the charge; otherwise the hold counts as the charge.
        sent: Id of the transition that sent it.
        answered: Id of the transition that recorded its answer; None without one.
        throttled: Whether it was answered with "too many requests", which is assumed to cost nothing.
    """

    submission_id: int
    state: State
    hold: int
    paid: int | None
    remaining: int | None
    charge_reported: bool
    sent: int
    answered: int | None
    throttled: bool


@dataclass(frozen=True, slots=True)
class SubmissionResolution:
    """The event that a proof decides on for one submission.

    Attributes:
        submission_id: The submission.
        event: `PROVE_UNPAID`, `PROVE_PAID` or `GIVE_UP`.
        proof: The reason, as a sentence.
        paid: Credits that count as paid; only for `PROVE_PAID`.
    """

    submission_id: int
    event: Event
    proof: str
    paid: int = 0


def record_balance(balance: int, at: float, *, opens: bool) -> Callable[[sqlite.Connection], BalanceReading]:
    """Record a balance reading; the change returns it.

    Args:
        balance: Credits.
        at: Seconds since the epoch.
        opens: Whether a new window begins with this reading.
    """

    def change(db: sqlite.Connection) -> BalanceReading:
        here = last_transition_id(db)
        db.execute(
            "INSERT INTO readings (at, balance, place, opens) VALUES (?, ?, ?, ?)", (at, balance, here, int(opens))
        )
        return BalanceReading(db.last_insert_rowid(), at, balance, here)

    return change


def opening_reading(db: sqlite.Connection) -> BalanceReading | None:
    """Return the reading that opened the current window; None before the first."""
    row = db.execute(
        "SELECT reading_id, at, balance, place FROM readings WHERE opens ORDER BY reading_id DESC LIMIT 1"
    ).fetchone()
    return None if row is None else BalanceReading(*row)


def open_submissions(db: sqlite.Connection) -> int:
    """Return the number of submissions that may still be charged, or whose charge is not recorded yet."""
    marks = ", ".join("?" * len(_OPEN))
    ((count,),) = db.execute(f"SELECT count(*) FROM submissions WHERE state IN ({marks})", _OPEN)  # noqa: S608 (marks are ?, ?, …)
    return int(count)


_SENT_BETWEEN: Final = """
SELECT s.submission_id, s.state, s.hold, s.paid, s.remaining, s.said, t.sent, t.answered, t.throttled
FROM submissions s JOIN (
    SELECT submission_id, min(CASE WHEN event = 'send' THEN rowid END) AS sent,
           max(CASE WHEN event IN ('answer', 'collect') THEN rowid END) AS answered,
           max(event = 'throttle') AS throttled
    FROM transitions WHERE rowid > ?1 GROUP BY submission_id
) t USING (submission_id)
WHERE t.sent <= ?2 ORDER BY s.submission_id
"""


def submissions_sent_between(db: sqlite.Connection, after: int, until: int) -> list[WindowSubmission]:
    """Return the submissions that were first sent between two transitions.

    Args:
        db: The journal.
        after: Id of a transition before the first one.
        until: Id of the last transition.
    """
    return [
        WindowSubmission(key, State(state), hold, paid, remaining, bool(said), sent, answered, bool(throttled))
        for key, state, hold, paid, remaining, said, sent, answered, throttled in db.execute(
            _SENT_BETWEEN, (after, until)
        )
    ]


_THROTTLED_SINCE: Final = """
SELECT EXISTS (
    SELECT 1 FROM transitions t WHERE t.rowid > ?1 AND t.event = 'throttle' AND EXISTS (
        SELECT 1 FROM transitions s WHERE s.rowid > ?1 AND s.submission_id = t.submission_id AND s.event = 'send'
    )
)
"""


def throttled_since(db: sqlite.Connection, after: int) -> bool:
    """Return whether any submission that was first sent after a transition was throttled.

    The query stops at the first throttled submission, because a run may have millions of transitions.
    """
    ((exists,),) = db.execute(_THROTTLED_SINCE, (after,))
    return bool(exists)


_UNKNOWN_CHARGES: Final = """
SELECT s.submission_id, s.sent_at FROM submissions s WHERE s.state = 'charge_unknown' AND EXISTS (
    SELECT 1 FROM transitions t WHERE t.rowid > ?1 AND t.event = 'send' AND t.submission_id = s.submission_id
)
"""


def unknown_charges_since(db: sqlite.Connection, after: int) -> dict[int, float]:
    """Return the send times of requests that failed with an unknown charge: seconds since the epoch, by submission id.

    Only submissions that were sent after the transition `after` count.
    """
    return dict(db.execute(_UNKNOWN_CHARGES, (after,)))


def windows_in_doubt(db: sqlite.Connection) -> list[tuple[BalanceReading, BalanceReading]]:
    """Return the (opening, closing) readings of proofs that left a charge undecided, one pair for each window.

    A new proof may decide it if it assumes that nobody else spends from the account.
    """
    windows = db.execute(
        "SELECT o.reading_id, o.at, o.balance, o.place, c.reading_id, c.at, c.balance, c.place "
        "FROM proofs p JOIN readings o ON o.reading_id = p.opening JOIN readings c ON c.reading_id = p.closing "
        "WHERE EXISTS (SELECT 1 FROM submissions s JOIN transitions t USING (submission_id) "
        "WHERE s.state IN ('ambiguous', 'charge_unknown') "
        "AND t.event = 'send' AND t.rowid > o.place AND t.rowid <= c.place) "
        "GROUP BY p.opening HAVING p.proof_id = max(p.proof_id) ORDER BY p.proof_id"
    )
    return [(BalanceReading(*row[:4]), BalanceReading(*row[4:])) for row in windows]


def apply_resolutions(
    opening: BalanceReading,
    closing: BalanceReading,
    document: dict[str, Any],
    resolutions: Sequence[SubmissionResolution],
) -> Callable[[sqlite.Connection], None]:
    """Store a proof and apply its resolutions.

    Rows proven unpaid become pending, rows proven paid fail, and all others stay in doubt.

    Args:
        opening: First reading of the window.
        closing: Last reading of the window.
        document: The proof, with every number that it uses; stored as JSON.
        resolutions: One for each submission that the proof decides.
    """

    def change(db: sqlite.Connection) -> None:
        db.execute(
            "INSERT INTO proofs (at, opening, closing, document) VALUES (?, ?, ?, ?)",
            (closing.at, opening.reading_id, closing.reading_id, orjson.dumps(document).decode()),
        )
        for resolution in resolutions:
            _apply_resolution(db, resolution, closing.at)

    return change


def _apply_resolution(db: sqlite.Connection, resolution: SubmissionResolution, at: float) -> None:
    key = resolution.submission_id
    ((state,),) = db.execute("SELECT state FROM submissions WHERE submission_id = ?", (key,))
    if state == State.CHARGE_UNKNOWN:  # its rows have failed already, whatever it cost
        apply_event(db, key, resolution.event, at, resolution.proof)
        db.execute("UPDATE submissions SET paid = ?, said = 1 WHERE submission_id = ?", (resolution.paid, key))
        db.execute("UPDATE money SET paid = paid + ?", (resolution.paid,))
        return
    apply_event(db, key, resolution.event, at, resolution.proof)
    db.execute("UPDATE submissions SET error = ? WHERE submission_id = ?", (resolution.proof, key))
    if resolution.event is Event.PROVE_UNPAID:
        requeue_rows(db, key)
    elif resolution.event is Event.PROVE_PAID:
        db.execute("UPDATE submissions SET paid = ? WHERE submission_id = ?", (resolution.paid, key))
        db.execute("UPDATE money SET paid = paid + ?", (resolution.paid,))
        _update_rows(db, key, "failed", "paid_and_lost", resolution.proof)
    else:
        _update_rows(db, key, "in_doubt", "ambiguous", resolution.proof)


def _update_rows(db: sqlite.Connection, submission_id: int, status: str, reason: str, error: str) -> None:
    db.execute(
        "UPDATE items SET status = ?, reason = ?, error = ? WHERE submission_id = ?",
        (status, reason, error, submission_id),
    )


def requeue_unanswered_rows(allowance: int, at: float) -> Callable[[sqlite.Connection], tuple[int, int]]:
    """Make rows of unanswered requests pending again although they may have been charged, oldest first.

    The holds of those requests stay counted. The change returns (sum of those holds in credits, number of rows).

    Args:
        allowance: Most credits that sending them again may cost; it limits the sum of their holds.
        at: Seconds since the epoch.
    """

    def change(db: sqlite.Connection) -> tuple[int, int]:
        left, rows = allowance, 0
        unanswered = list(
            db.execute(
                "SELECT submission_id, hold FROM submissions s WHERE state IN (?, ?) "
                "AND EXISTS (SELECT 1 FROM items i WHERE i.submission_id = s.submission_id) ORDER BY submission_id",
                (State.AMBIGUOUS, State.PROVEN_PAID_LOST),
            )
        )
        for submission_id, hold in unanswered:
            if hold <= left:
                left -= hold
                apply_event(db, submission_id, Event.PAY_AGAIN, at, "the user allowed it")
                requeue_rows(db, submission_id)
                rows += db.changes()
        return allowance - left, rows

    return change


def read_proofs(db: sqlite.Connection) -> list[dict[str, Any]]:
    """Return all proof documents, oldest first."""
    return [orjson.loads(document) for (document,) in db.execute("SELECT document FROM proofs ORDER BY proof_id")]
