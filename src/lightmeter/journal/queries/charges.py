"""Read the charges of requests from the journal: the input of prices, balances and cost breakdowns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from lightmeter.sqlite import Connection


class ChargedFrames(NamedTuple):
    """The charge of one request and its number of images and video frames, from which prices are learned.

    Attributes:
        paid: Credits charged for the request.
        frames_low: Least number of images and video frames in the request.
        frames_high: Most images and video frames in the request; None if no upper bound is known.
        first_kind: The media type of the request's rows: `image`, `video`, or empty if unknown. If the rows differ, the
            type that is alphabetically first.
        last_kind: The media type that is alphabetically last; equal to `first_kind` if the rows do not differ.
    """

    paid: int
    frames_low: int
    frames_high: int | None
    first_kind: str
    last_kind: str


class PaidFrames(NamedTuple):
    """Credits and number of pictures (images and video frames), summed over all requests whose charge is known.

    Attributes:
        frames_low: Least number of pictures.
        frames_high: Most pictures; the requests counted in `unbounded` are left out.
        unbounded: Number of requests whose number of pictures has no known upper bound.
        paid: Credits charged.
        incomplete: Number of requests whose answer reports no charge, or has no result for one of the request's rows.
    """

    frames_low: int
    frames_high: int
    unbounded: int
    paid: int
    incomplete: int


_CHARGED_FRAMES: Final = """
SELECT s.paid, sum(i.frames_low), CASE WHEN count(i.frames_high) = count(*) THEN sum(i.frames_high) END,
       min(coalesce(i.kind, '')), max(coalesce(i.kind, ''))
FROM (
    SELECT submission_id, paid, paid > hold AS above_hold FROM submissions
    WHERE state = 'settled' AND paid > 0 AND (said >= 2 OR paid > hold) ORDER BY submission_id DESC LIMIT ?
) s JOIN items i USING (submission_id)
GROUP BY s.submission_id HAVING min(i.status = 'ok') OR s.above_hold ORDER BY s.submission_id
"""

_PAID_FRAMES: Final = """
SELECT coalesce(sum(low), 0), coalesce(sum(high), 0), count(*) - count(high), coalesce(sum(paid), 0),
       coalesce(sum(NOT whole), 0)
FROM (SELECT s.paid AS paid, sum(i.frames_low) AS low, min(i.status = 'ok' AND s.said > 0) AS whole,
             CASE WHEN count(i.frames_high) = count(*) THEN sum(i.frames_high) END AS high
      FROM submissions s JOIN items i USING (submission_id) WHERE s.state = 'settled' GROUP BY s.submission_id)
"""


class ChargeCount(NamedTuple):
    """Number of requests with the same charge and the same number of images and video frames.

    Attributes:
        paid: Credits charged for each of the requests.
        frames: Number of images and video frames in each of the requests.
        requests: Number of these requests.
    """

    paid: int
    frames: int
    requests: int


_CHARGE_COUNTS: Final = """
SELECT paid, frames, count(*) FROM (
    SELECT s.paid AS paid, sum(i.frames_low) AS frames FROM submissions s JOIN items i USING (submission_id)
    WHERE s.state = 'settled' AND s.said > 0 GROUP BY s.submission_id
    HAVING min(i.status = 'ok') AND min(i.frames_low IS i.frames_high)
) GROUP BY paid, frames
"""


def charge_counts(db: Connection) -> list[ChargeCount]:
    """Count the requests of a run whose price is known exactly, by their charge and number of images and video frames.

    The answer to such a request names the charge and has a result for each row, and the number of frames is known.
    Second requests about a row (`--ask`) are left out.
    """
    return list(map(ChargeCount._make, db.execute(_CHARGE_COUNTS)))


def credit_totals(db: Connection) -> tuple[int, int]:
    """Return (credits that the run has paid so far, credits that it reserves for requests that may be charged)."""
    ((paid, held),) = db.execute("SELECT paid, held FROM money")
    return paid, held


def unreported_charges(db: Connection) -> int:
    """Return the number of answered requests whose answers name no charge.

    All sums of credits paid count the hold of such a request, the most that it can have cost.
    """
    return int(db.execute("SELECT count(*) FROM submissions WHERE state = 'settled' AND said = 0 AND paid > 0").get)


def charged_frames(db: Connection, recent: int | None = None) -> Iterator[ChargedFrames]:
    """Yield the charge and the number of frames of each request that shows a price, oldest first.

    A request shows a price if its answer reports a charge above 0 and no error, and has a result for each row. Other
    requests may have been charged less than their price. They show a price only if they were charged more than was
    reserved for them: the price is at least that much. Second requests about a row (`--ask`) are left out.

    If `recent` is not None, only the newest `recent` requests are read whose charge is above 0 and either reported
    without an error or higher than the reserved credits. Fewer are yielded if one of these lacks the result of a row,
    or is a second request.
    """
    yield from map(ChargedFrames._make, db.execute(_CHARGED_FRAMES, (-1 if recent is None else recent,)))


def has_charge_since(db: Connection, submission_id: int) -> bool:
    """Return whether the answer to a request with this id, or a later one, reports a charge above 0 and no error."""
    query = (
        "SELECT 1 FROM submissions WHERE submission_id >= ? AND state = 'settled' AND said >= 2 AND paid > 0 LIMIT 1"
    )
    return db.execute(query, (submission_id,)).get is not None


def paid_frames(db: Connection) -> PaidFrames:
    """Return the credits and the number of images and frames, summed over all requests whose charge is known."""
    return PaidFrames._make(db.execute(_PAID_FRAMES).get)


def spent_since(db: Connection, transition_id: int) -> int:
    """Return the most credits that can have been spent on requests that changed state after a given point in time.

    The point is the state change with id `transition_id`. A request counts with its charge; while the charge is
    unknown, with the credits reserved for it.
    """
    query = (
        "SELECT coalesce(sum(coalesce(paid, hold)), 0) FROM submissions "
        "WHERE submission_id IN (SELECT submission_id FROM transitions WHERE rowid > ?)"
    )
    return int(db.execute(query, (transition_id,)).get)
