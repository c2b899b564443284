"""Balances of the account, and proofs from them of what was charged for requests that got no answer.

A proof compares two balances: an opening one without submissions that may still be charged, and a later one without
requests in flight. The submissions sent between them are the proof's window. The proof document lists every number and
every assumption. It is stored in the transaction that applies what the proof decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from lightmeter import sqlite
from lightmeter.journal.commands.submissions import apply_event, last_transition_id, mark_rows, requeue_rows
from lightmeter.journal.submission_states import Event, State

_OPEN: Final = tuple(
    sorted({State.HELD, State.SENT, State.ANSWERED, State.ACKED, State.POLLED, State.REFUSED, State.UNCERTAIN})
)
"""States of a submission that may still be charged, or whose charge is not recorded yet."""


@dataclass(frozen=True, slots=True)
class BalanceReading:
    """A balance of the account, read while no request was in flight. Stored proofs contain its fields.

    Attributes:
        reading_id: Number in order of time.
        at: When it was read, in seconds since the epoch.
        balance: Credits.
        place: Id of the last transition (change of state of a submission) before it was read.
    """

    reading_id: int
    at: float
    balance: int
    place: int


@dataclass(frozen=True, slots=True)
class WindowSubmission:
    """What the journal knows about the charge of a submission that was sent between two balances.

    Attributes:
        submission_id: The submission.
        state: Its state.
        hold: Credits reserved for it: the most that it can have cost.
        paid: Credits charged; None while unknown.
        remaining: The balance that its answer reported; None without one.
        charge_reported: Whether the answer reported the charge; otherwise `hold` counts as the charge.
        sent: Id of the transition (change of state) that sent it.
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
    """What a proof decides about one submission (one POST): the event that changes its state, and why.

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


@sqlite.command
def record_balance(db: sqlite.Connection, balance: int, at: float, *, opens: bool) -> BalanceReading:
    """Record a balance of the account and return it with its id.

    Args:
        db: The journal, in a transaction.
        balance: Credits.
        at: When it was read, in seconds since the epoch.
        opens: Whether the next proof begins with this balance.
    """
    last = last_transition_id(db)
    db.execute("INSERT INTO readings (at, balance, place, opens) VALUES (?, ?, ?, ?)", (at, balance, last, int(opens)))
    return BalanceReading(db.last_insert_rowid(), at, balance, last)


def opening_reading(db: sqlite.Connection) -> BalanceReading | None:
    """Return the balance with which the next proof begins; None before the first."""
    row = db.execute(
        "SELECT reading_id, at, balance, place FROM readings WHERE opens ORDER BY reading_id DESC LIMIT 1"
    ).fetchone()
    return None if row is None else BalanceReading(*row)


def open_submissions(db: sqlite.Connection) -> int:
    """Return the number of requests that may still be charged, or whose charge is not recorded yet."""
    marks = ", ".join("?" * len(_OPEN))
    return int(db.execute(f"SELECT count(*) FROM submissions WHERE state IN ({marks})", _OPEN).get)  # noqa: S608 (marks are ?, ?, …)


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
    """Return the submissions (POSTs) first sent after the state change with id `after`, at the latest by `until`.

    The journal numbers all changes of state of submissions in order of time.
    """
    rows = db.execute(_SENT_BETWEEN, (after, until))
    return [
        WindowSubmission(key, State(state), hold, paid, remaining, bool(said), sent, answered, bool(throttled))
        for key, state, hold, paid, remaining, said, sent, answered, throttled in rows
    ]


_THROTTLED_SINCE: Final = """
SELECT EXISTS (
    SELECT 1 FROM transitions t WHERE t.rowid > ?1 AND t.event = 'throttle' AND EXISTS (
        SELECT 1 FROM transitions s WHERE s.rowid > ?1 AND s.submission_id = t.submission_id AND s.event = 'send'
    )
)
"""


def throttled_since(db: sqlite.Connection, after: int) -> bool:
    """Return whether the service answered HTTP 429 to a request first sent after the state change with id `after`."""
    return bool(db.execute(_THROTTLED_SINCE, (after,)).get)


_UNKNOWN_CHARGES: Final = """
SELECT s.submission_id, s.sent_at FROM submissions s WHERE s.state = 'charge_unknown' AND EXISTS (
    SELECT 1 FROM transitions t WHERE t.rowid > ?1 AND t.event = 'send' AND t.submission_id = s.submission_id
)
"""


def unknown_charges_since(db: sqlite.Connection, after: int) -> dict[int, float]:
    """Return when each request was sent that failed with an unknown charge: submission id → seconds since the epoch.

    Only requests sent after the state change with id `after` count.
    """
    return dict(db.execute(_UNKNOWN_CHARGES, (after,)))


def windows_in_doubt(db: sqlite.Connection) -> list[tuple[BalanceReading, BalanceReading]]:
    """Return the (opening, closing) balances of proofs that left a charge undecided, one pair for each opening balance.

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


@sqlite.command
def apply_resolutions(
    db: sqlite.Connection,
    opening: BalanceReading,
    closing: BalanceReading,
    document: dict[str, Any],
    resolutions: Sequence[SubmissionResolution],
) -> None:
    """Store a proof and write what it decides.

    Rows proven unpaid become pending, rows proven paid fail, and all others get the status `in_doubt`.

    Args:
        db: The journal, in a transaction.
        opening: The balance before the submissions.
        closing: The balance after them.
        document: The proof, with every number that it uses; stored as JSON.
        resolutions: One for each submission that the proof decides.
    """
    db.execute(
        "INSERT INTO proofs (at, opening, closing, document) VALUES (?, ?, ?, ?)",
        (closing.at, opening.reading_id, closing.reading_id, orjson.dumps(document).decode()),
    )
    for resolution in resolutions:
        _apply_resolution(db, resolution, closing.at)


def _apply_resolution(db: sqlite.Connection, resolution: SubmissionResolution, at: float) -> None:
    key, proof = resolution.submission_id, resolution.proof
    state = db.execute("SELECT state FROM submissions WHERE submission_id = ?", (key,)).get
    apply_event(db, key, resolution.event, at, proof)
    db.execute("UPDATE money SET paid = paid + ?", (resolution.paid,))
    if state == State.CHARGE_UNKNOWN:  # its rows have failed already, whatever it cost
        db.execute("UPDATE submissions SET paid = ?, said = 1 WHERE submission_id = ?", (resolution.paid, key))
        return
    db.execute("UPDATE submissions SET error = ? WHERE submission_id = ?", (proof, key))
    if resolution.event is Event.PROVE_UNPAID:
        requeue_rows(db, key)
    elif resolution.event is Event.PROVE_PAID:
        db.execute("UPDATE submissions SET paid = ? WHERE submission_id = ?", (resolution.paid, key))
        mark_rows(db, key, "failed", "paid_and_lost", proof)
    else:
        mark_rows(db, key, "in_doubt", "ambiguous", proof)


@sqlite.command
def requeue_unanswered_rows(db: sqlite.Connection, allowance: int, at: float) -> tuple[int, int]:
    """Make rows of unanswered requests pending again although they may have been charged, oldest first.

    The credits of those requests stay reserved. Return (sum of those credits, number of rows).

    Args:
        db: The journal, in a transaction.
        allowance: Most credits that sending them again may cost; it limits the sum of their reserved credits.
        at: Seconds since the epoch.
    """
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


def read_proofs(db: sqlite.Connection) -> list[dict[str, Any]]:
    """Return all proof documents, oldest first."""
    return [orjson.loads(document) for (document,) in db.execute("SELECT document FROM proofs ORDER BY proof_id")]
