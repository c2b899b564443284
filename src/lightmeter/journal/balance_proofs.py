"""What balances prove of requests without an answer: the readings, the rulings, and the proof they rest on.

A proof covers a window of the journal: from a reading of the balance at which nothing was open to a later one at which
nothing was in flight. The whole of it, every number and what was taken for granted, is written in the transaction that
acts on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from lightmeter import sqlite
from lightmeter.journal.commands import apply_event, last_transition_id, requeue_rows
from lightmeter.journal.state import Event, State

__all__ = [
    "BalanceReading",
    "SubmissionResolution",
    "WindowSubmission",
    "apply_resolutions",
    "open_submissions",
    "opening_reading",
    "proofs_of",
    "record_balance",
    "release",
    "submissions_sent_between",
    "throttled_since",
    "unknown_charges_since",
    "windows_in_doubt",
]

_OPEN: Final = tuple(
    sorted({State.HELD, State.SENT, State.ANSWERED, State.ACKED, State.POLLED, State.REFUSED, State.UNCERTAIN})
)
"""States of a submission that may still be charged, or whose charge is not yet written down."""


@dataclass(frozen=True, slots=True)
class BalanceReading:
    """The balance at a moment at which nothing was in flight.

    Attributes:
        reading_id: Its number, in the order they were made.
        at: Seconds since the epoch.
        balance: Credits.
        place: Position of the last transition before it.
    """

    reading_id: int
    at: float
    balance: int
    place: int


@dataclass(frozen=True, slots=True)
class WindowSubmission:
    """A submission of a window, as far as money goes.

    Attributes:
        submission_id: It.
        state: Where it stands.
        hold: Most it can have cost, in credits.
        paid: Charged, or None while that is not known.
        remaining: The balance its answer named, if any.
        said: Whether the answer named its charge; False: the hold was taken for it.
        sent: Position of the step that sent it.
        answered: Position of the step that brought its answer, or None.
        throttled: It was answered with "too many requests", which is presumed to cost nothing.
    """

    submission_id: int
    state: State
    hold: int
    paid: int | None
    remaining: int | None
    said: bool
    sent: int
    answered: int | None
    throttled: bool


@dataclass(frozen=True, slots=True)
class SubmissionResolution:
    """What is to be done with one submission.

    Attributes:
        submission_id: It.
        event: `PROVE_UNPAID`, `PROVE_PAID` or `GIVE_UP`.
        proof: Why, as a sentence.
        paid: Credits counted as paid; only for `PROVE_PAID`.
    """

    submission_id: int
    event: Event
    proof: str
    paid: int = 0


def record_balance(balance: int, at: float, *, opens: bool) -> Callable[[sqlite.Connection], BalanceReading]:
    """Write down a balance; `opens` begins a new window with it."""

    def change(db: sqlite.Connection) -> BalanceReading:
        here = last_transition_id(db)
        db.execute(
            "INSERT INTO readings (at, balance, place, opens) VALUES (?, ?, ?, ?)", (at, balance, here, int(opens))
        )
        return BalanceReading(db.last_insert_rowid(), at, balance, here)

    return change


def opening_reading(db: sqlite.Connection) -> BalanceReading | None:
    """The reading that the window of today began with."""
    row = db.execute(
        "SELECT reading_id, at, balance, place FROM readings WHERE opens ORDER BY reading_id DESC LIMIT 1"
    ).fetchone()
    return None if row is None else BalanceReading(*row)


def open_submissions(db: sqlite.Connection) -> int:
    """How many submissions may still be charged, or have a charge that is not written down yet."""
    marks = ", ".join("?" * len(_OPEN))
    ((found,),) = db.execute(f"SELECT count(*) FROM submissions WHERE state IN ({marks})", _OPEN)  # noqa: S608 (marks are ?, ?, …)
    return int(found)


_SEEN: Final = """
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
    """The submissions that were first sent after one position of the journal and not after another."""
    return [
        WindowSubmission(key, State(state), hold, paid, remaining, bool(said), sent, answered, bool(throttled))
        for key, state, hold, paid, remaining, said, sent, answered, throttled in db.execute(_SEEN, (after, until))
    ]


_THROTTLED: Final = """
SELECT EXISTS (
    SELECT 1 FROM transitions t WHERE t.rowid > ?1 AND t.event = 'throttle' AND EXISTS (
        SELECT 1 FROM transitions s WHERE s.rowid > ?1 AND s.submission_id = t.submission_id AND s.event = 'send'
    )
)
"""


def throttled_since(db: sqlite.Connection, after: int) -> bool:
    """Whether any of the submissions that were first sent after a position of the journal was throttled.

    Nothing is read into memory for it: most runs have millions of steps and none of this kind.
    """
    ((found,),) = db.execute(_THROTTLED, (after,))
    return bool(found)


_UNKNOWN: Final = """
SELECT s.submission_id, s.sent_at FROM submissions s WHERE s.state = 'charge_unknown' AND EXISTS (
    SELECT 1 FROM transitions t WHERE t.rowid > ?1 AND t.event = 'send' AND t.submission_id = s.submission_id
)
"""


def unknown_charges_since(db: sqlite.Connection, after: int) -> dict[int, float]:
    """When the requests left (epoch seconds, by submission) that failed with an unknown charge.

    Only those that were first sent after this position of the journal.
    """
    return dict(db.execute(_UNKNOWN, (after,)))


def windows_in_doubt(db: sqlite.Connection) -> list[tuple[BalanceReading, BalanceReading]]:
    """(opening, closing) of earlier proofs that left something ambiguous: more trust may decide it."""
    found = db.execute(
        "SELECT o.reading_id, o.at, o.balance, o.place, c.reading_id, c.at, c.balance, c.place "
        "FROM proofs p JOIN readings o ON o.reading_id = p.opening JOIN readings c ON c.reading_id = p.closing "
        "WHERE EXISTS (SELECT 1 FROM submissions s JOIN transitions t USING (submission_id) "
        "WHERE s.state IN ('ambiguous', 'charge_unknown') "
        "AND t.event = 'send' AND t.rowid > o.place AND t.rowid <= c.place) "
        "GROUP BY p.opening HAVING p.proof_id = max(p.proof_id) ORDER BY p.proof_id"
    )
    return [(BalanceReading(*row[:4]), BalanceReading(*row[4:])) for row in found]


def apply_resolutions(
    opening: BalanceReading, closing: BalanceReading, document: dict[str, Any], rulings: Sequence[SubmissionResolution]
) -> Callable[[sqlite.Connection], None]:
    """Write a proof down and act on it: unpaid rows wait again, lost ones have failed, the rest stays in doubt."""

    def change(db: sqlite.Connection) -> None:
        db.execute(
            "INSERT INTO proofs (at, opening, closing, document) VALUES (?, ?, ?, ?)",
            (closing.at, opening.reading_id, closing.reading_id, orjson.dumps(document).decode()),
        )
        for ruling in rulings:
            _act(db, ruling, closing.at)

    return change


def _act(db: sqlite.Connection, ruling: SubmissionResolution, at: float) -> None:
    key = ruling.submission_id
    ((state,),) = db.execute("SELECT state FROM submissions WHERE submission_id = ?", (key,))
    if state == State.CHARGE_UNKNOWN:  # its rows have failed, whatever it cost
        apply_event(db, key, ruling.event, at, ruling.proof)
        db.execute("UPDATE submissions SET paid = ?, said = 1 WHERE submission_id = ?", (ruling.paid, key))
        db.execute("UPDATE money SET paid = paid + ?", (ruling.paid,))
        return
    apply_event(db, key, ruling.event, at, ruling.proof)
    db.execute("UPDATE submissions SET error = ? WHERE submission_id = ?", (ruling.proof, key))
    if ruling.event is Event.PROVE_UNPAID:
        requeue_rows(db, key)
    elif ruling.event is Event.PROVE_PAID:
        db.execute("UPDATE submissions SET paid = ? WHERE submission_id = ?", (ruling.paid, key))
        db.execute("UPDATE money SET paid = paid + ?", (ruling.paid,))
        _tell_rows(db, key, "failed", "paid_and_lost", ruling.proof)
    else:
        _tell_rows(db, key, "in_doubt", "ambiguous", ruling.proof)


def _tell_rows(db: sqlite.Connection, submission_id: int, status: str, reason: str, error: str) -> None:
    db.execute(
        "UPDATE items SET status = ?, reason = ?, error = ? WHERE submission_id = ?",
        (status, reason, error, submission_id),
    )


def release(allowance: int, at: float) -> Callable[[sqlite.Connection], tuple[int, int]]:
    """Let rows of unanswered requests wait again although they may have been paid for, oldest first.

    What the requests may have cost stays counted. `allowance` bounds what sending them again costs: whole credits, the
    sum of their holds. Returns (credits, rows) released.
    """

    def change(db: sqlite.Connection) -> tuple[int, int]:
        left, rows = allowance, 0
        waiting = list(
            db.execute(
                "SELECT submission_id, hold FROM submissions s WHERE state IN (?, ?) "
                "AND EXISTS (SELECT 1 FROM items i WHERE i.submission_id = s.submission_id) ORDER BY submission_id",
                (State.AMBIGUOUS, State.PROVEN_PAID_LOST),
            )
        )
        for submission_id, hold in waiting:
            if hold <= left:
                left -= hold
                apply_event(db, submission_id, Event.PAY_AGAIN, at, "the user allowed it")
                requeue_rows(db, submission_id)
                rows += db.changes()
        return allowance - left, rows

    return change


def proofs_of(db: sqlite.Connection) -> list[dict[str, Any]]:
    """Every proof, oldest first, as it was written down."""
    return [orjson.loads(document) for (document,) in db.execute("SELECT document FROM proofs ORDER BY proof_id")]
