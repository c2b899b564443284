"""Store balances of the account, and prove with them whether requests that got no answer were charged.

A proof compares two balances of the account: an opening balance, read when no sent request could still be charged, and
a later balance, read while no request was in flight. It decides which of the requests sent between the two balances
were charged. The proof is stored as a JSON document with every number and assumption, in the transaction that applies
its decisions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from lightmeter import sqlite
from lightmeter.journal.commands.submissions import apply_event, last_transition_id, mark_rows, requeue_rows
from lightmeter.journal.submission_states import Event, State

_OPEN_STATES: Final = tuple(
    sorted({State.HELD, State.SENT, State.ANSWERED, State.ACKED, State.POLLED, State.REFUSED, State.UNCERTAIN})
)
"""States of a submission that may still be charged, or whose charge is not recorded yet."""


@dataclass(frozen=True, slots=True)
class BalanceReading:
    """A balance of the account in credits, read while no request was in flight.

    The difference of two balances may prove what the requests sent between the two readings cost.

    Attributes:
        reading_id: Id of the balance in the journal; later balances have larger ids.
        at: When the balance was read, in seconds since the epoch.
        balance: The balance, in credits.
        last_transition_id: Id of the last transition (change of state of a submission) before the balance was read.
    """

    reading_id: int
    at: float
    balance: int
    last_transition_id: int


@dataclass(frozen=True, slots=True)
class WindowSubmission:
    """What the journal knows about the charge of one submission (POST).

    It serves to find out, from two balances of the account, whether the submission was charged. The submission was sent
    after the first balance was read and before the second balance was read.

    Attributes:
        submission_id: Id of the submission.
        state: State of the submission, such as `uncertain`.
        hold: Credits reserved for the submission: the most that it can have cost.
        paid: Credits recorded as the charge; None while no charge is recorded, such as before an answer.
        remaining: The balance that the answer reported; None if it reported none or there is no answer.
        charge_reported: False if the answer did not report the charge in whole credits, and no balance has proven it.
            Then the charge is only known to be at most `hold`, whatever `paid` is. True without an answer: then only
            `paid` tells whether the charge is known.
        sent: Id of the transition (change of state) that sent the submission.
        answered: Id of the transition that recorded the answer; None without an answer.
        throttled: Whether the service answered "too many requests", which is assumed to cost nothing.
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
    """Whether a request without an answer was charged, as decided by comparing two balances of the account.

    Attributes:
        submission_id: Id of the request.
        event: The event that changes the state of the request: `PROVE_UNPAID` (not charged), `PROVE_PAID` (charged) or
            `GIVE_UP` (not known).
        proof: The reason for the decision, as a sentence.
        paid: Credits that count as paid for the request; 0 unless the event is `PROVE_PAID`.
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
        balance: The balance, in credits.
        at: When the balance was read, in seconds since the epoch.
        opens: Whether this balance becomes the opening balance: later balances are compared with it, to prove what
            requests cost that were sent in between.
    """
    last = last_transition_id(db)
    db.execute("INSERT INTO readings (at, balance, place, opens) VALUES (?, ?, ?, ?)", (at, balance, last, int(opens)))
    return BalanceReading(db.last_insert_rowid(), at, balance, last)


def opening_reading(db: sqlite.Connection) -> BalanceReading | None:
    """Return the newest opening balance, with which later balances are compared; None if none is stored.

    The comparison may prove what the requests cost that were sent between the two balances.
    """
    row = db.execute(
        "SELECT reading_id, at, balance, place FROM readings WHERE opens ORDER BY reading_id DESC LIMIT 1"
    ).fetchone()
    return None if row is None else BalanceReading(*row)


def open_submissions(db: sqlite.Connection) -> int:
    """Return the number of requests (POSTs) that are still in flight, unanswered, or without a recorded charge."""
    marks = ", ".join("?" * len(_OPEN_STATES))
    return int(db.execute(f"SELECT count(*) FROM submissions WHERE state IN ({marks})", _OPEN_STATES).get)  # noqa: S608 (marks are ?, ?, …)


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
    """Return the submissions (POSTs) that were first sent after the state change `after` and not after `until`.

    The journal numbers all state changes of all submissions, such as "sent", in order of time. A submission is returned
    if the number of the change that first sent it is greater than `after` and at most `until`.
    """
    rows = db.execute(_SENT_BETWEEN, (after, until))
    return [
        WindowSubmission(key, State(state), hold, paid, remaining, said in {1, 2}, sent, answered, bool(throttled))
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
    """Return whether the service answered HTTP 429 to a request that was first sent after a given state change.

    `after` is the id of the state change in the journal.
    """
    return bool(db.execute(_THROTTLED_SINCE, (after,)).get)


_UNKNOWN_CHARGES: Final = """
SELECT s.submission_id, s.sent_at FROM submissions s WHERE s.state = 'charge_unknown' AND EXISTS (
    SELECT 1 FROM transitions t WHERE t.rowid > ?1 AND t.event = 'send' AND t.submission_id = s.submission_id
)
"""


def unknown_charges_since(db: sqlite.Connection, after: int) -> dict[int, float]:
    """Return the failed requests whose charge is unknown, as submission id → time of sending (seconds since the epoch).

    Only requests that were sent after the state change with id `after` are returned.
    """
    return dict(db.execute(_UNKNOWN_CHARGES, (after,)))


def windows_in_doubt(db: sqlite.Connection) -> list[tuple[BalanceReading, BalanceReading]]:
    """Return pairs of (earlier, later) balances that could not prove whether each request between them was charged.

    If an earlier balance was compared with several later ones, only the pair compared most recently is returned. A pair
    may prove more once the user says that nobody else spends from the account.
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
    """Store what two balances of the account prove about unanswered requests, and update the rows of these requests.

    If a request was not charged, its rows become pending. If it was charged, its rows fail. If it may have been
    charged, its rows get the status `in_doubt`. If its rows failed earlier, they stay failed.

    Args:
        db: The journal, in a transaction.
        opening: The balance read before the requests were sent.
        closing: The balance read after they were sent.
        document: The proof, a dict from `build_proof` or `unprovable_document`; stored as JSON.
        resolutions: The decision about each request.
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
    """Make rows of unanswered requests pending again, although these requests were charged, or may have been charged.

    These are requests in the states `proven_paid_lost` and `ambiguous`, in the order in which they were first sent.
    What is paid or reserved for them stays so. Return (credits used up of `allowance`, number of these rows).

    Args:
        db: The journal, in a transaction.
        allowance: Most credits that may be paid twice. A request whose rows become pending uses up as many credits as
            were reserved for it when it was sent. A request that needs more credits than are left is passed over.
        at: The present time, in seconds since the epoch; stored with the change of state of each request.
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
    """Return the stored proofs, oldest first, each as the JSON object that `build_proof` or `unprovable_document` made.

    A proof says what two balances of the account prove about the requests between them that got no answer.
    """
    return [orjson.loads(document) for (document,) in db.execute("SELECT document FROM proofs ORDER BY proof_id")]
