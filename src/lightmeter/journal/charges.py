"""What requests were charged, read from the journal: the input of prices, balances and cost breakdowns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from lightmeter.journal.state import State
from lightmeter.sqlite import Connection

__all__ = [
    "ChargedFrames",
    "PaidFrames",
    "SubmissionCharge",
    "charged_frames",
    "credit_totals",
    "paid_frames",
    "spent_since",
    "submission_charges",
]


class ChargedFrames(NamedTuple):
    """What one settled request was charged, and for how many pictures.

    Attributes:
        paid: Credits.
        frames_low: Pictures of its rows, at least.
        frames_high: Pictures at most; None: no bound is known.
        first_kind: The alphabetically first kind of its rows; empty where it is unknown.
        last_kind: The alphabetically last kind of its rows.
    """

    paid: int
    frames_low: int
    frames_high: int | None
    first_kind: str
    last_kind: str


class PaidFrames(NamedTuple):
    """Sums over all settled requests.

    Attributes:
        frames_low: Pictures at least.
        frames_high: Pictures at most, of requests with a bound.
        unbounded: Requests without a bound.
        paid: Credits.
        incomplete: Requests that were charged though a row has no result, or whose charge the answer does not name.
    """

    frames_low: int
    frames_high: int
    unbounded: int
    paid: int
    incomplete: int


class SubmissionCharge(NamedTuple):
    """One submission in the chain of balances.

    Attributes:
        submission_id: Its number.
        state: Its state.
        hold: Credits it costs at most.
        paid: Credits charged; None while that is unknown.
        remaining: Balance after it, as answered.
        sent: Id of the transition that sent it first.
        answered: Id of the transition that brought its answer; None without one.
    """

    submission_id: int
    state: State
    hold: int
    paid: int | None
    remaining: int | None
    sent: int | None
    answered: int | None


_CHARGED_FRAMES: Final = """
SELECT s.paid, sum(i.frames_low), CASE WHEN count(i.frames_high) = count(*) THEN sum(i.frames_high) END,
       min(coalesce(i.kind, '')), max(coalesce(i.kind, ''))
FROM (
    SELECT submission_id, paid FROM submissions WHERE state = 'settled' AND said = 2 AND paid > 0
    ORDER BY submission_id DESC LIMIT ?
) s JOIN items i USING (submission_id)
GROUP BY s.submission_id HAVING min(i.status = 'ok') ORDER BY s.submission_id
"""

_PAID_FRAMES: Final = """
SELECT coalesce(sum(low), 0), coalesce(sum(high), 0), count(*) - count(high), coalesce(sum(paid), 0),
       coalesce(sum(NOT whole), 0)
FROM (SELECT s.paid AS paid, sum(i.frames_low) AS low, min(i.status = 'ok' AND s.said > 0) AS whole,
             CASE WHEN count(i.frames_high) = count(*) THEN sum(i.frames_high) END AS high
      FROM submissions s JOIN items i USING (submission_id) WHERE s.state = 'settled' GROUP BY s.submission_id)
"""

_SUBMISSION_CHARGES: Final = """
SELECT s.submission_id, s.state, s.hold, s.paid, s.remaining, min(CASE WHEN t.event = 'send' THEN t.rowid END),
       max(CASE WHEN t.event IN ('answer', 'collect') THEN t.rowid END)
FROM submissions s LEFT JOIN transitions t USING (submission_id) GROUP BY s.submission_id ORDER BY s.submission_id
"""

_SPENT_SINCE: Final = """
SELECT coalesce(sum(coalesce(paid, hold)), 0) FROM submissions
WHERE submission_id IN (SELECT submission_id FROM transitions WHERE rowid > ?)
"""


def credit_totals(db: Connection) -> tuple[int, int]:
    """Return the credits (paid, held) of the run so far."""
    ((paid, held),) = db.execute("SELECT paid, held FROM money")
    return paid, held


def charged_frames(db: Connection, recent: int | None = None) -> Iterator[ChargedFrames]:
    """Yield the charges that tell the price of a picture, oldest first; `recent`: only so many of the last ones.

    Only requests without any error count: the others may have been charged less than the price.
    """
    yield from map(ChargedFrames._make, db.execute(_CHARGED_FRAMES, (-1 if recent is None else recent,)))


def paid_frames(db: Connection) -> PaidFrames:
    """Return the sums over all settled requests."""
    (sums,) = db.execute(_PAID_FRAMES)
    return PaidFrames._make(sums)


def submission_charges(db: Connection) -> Iterator[SubmissionCharge]:
    """Yield all submissions, oldest first, with what each was charged."""
    for submission_id, state, *rest in db.execute(_SUBMISSION_CHARGES):
        yield SubmissionCharge(submission_id, State(state), *rest)


def spent_since(db: Connection, transition_id: int) -> int:
    """Return the credits that submissions with a later transition cost at most."""
    ((spent,),) = db.execute(_SPENT_SINCE, (transition_id,))
    return int(spent)
