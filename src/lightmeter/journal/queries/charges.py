"""Charges of requests, read from the journal: the input of prices, balances and cost breakdowns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from lightmeter.journal.submission_states import State
from lightmeter.sqlite import Connection


class ChargedFrames(NamedTuple):
    """The charge of one settled request, and its number of pictures (images or video frames).

    Attributes:
        paid: Credits.
        frames_low: Least number of pictures of its rows.
        frames_high: Most pictures of its rows; None if no bound is known.
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
        frames_low: Least number of pictures.
        frames_high: Most pictures of the requests with an upper bound.
        unbounded: Number of requests without an upper bound.
        paid: Credits.
        incomplete: Number of requests that were charged although a row has no result, or whose answer names no charge.
    """

    frames_low: int
    frames_high: int
    unbounded: int
    paid: int
    incomplete: int


class SubmissionCharge(NamedTuple):
    """The charge of one submission, and the balance after it.

    Attributes:
        submission_id: Its number.
        state: Its state.
        hold: Most credits that it can cost.
        paid: Credits charged; None while that is unknown.
        remaining: Balance after it, as its answer reports; None without one.
        sent: Id of the transition that sent it first.
        answered: Id of the transition that recorded its answer; None without one.
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
    """Yield the charges that show the price of a picture, oldest first; with `recent`, only that many of the newest.

    Requests with errors are not included, because they may have been charged less than the price.
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
    """Return the most credits that submissions with a transition after this one can have cost."""
    ((spent,),) = db.execute(_SPENT_SINCE, (transition_id,))
    return int(spent)
