"""Queries of the live page of a run.

They run once a second, so each of them reads only what is new, or uses an index.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from lightmeter.journal.frame_rows import IS_ROW
from lightmeter.journal.submission_states import State
from lightmeter.sqlite import Connection


class Activity(NamedTuple):
    """What happened in one interval of a run, such as a second: requests sent and answered, and credits charged.

    Attributes:
        interval: Number of the interval: its start in seconds since the epoch, divided by its length in seconds.
        sent: Number of requests (POSTs) sent.
        throttled: Number of requests that the service refused because of its rate limit.
        answered: Number of requests whose charge became known.
        rows: Number of rows in the answered requests. A second request about a row (`--ask`) has one row.
        paid: Credits charged for the answered requests.
    """

    interval: int
    sent: int
    throttled: int
    answered: int
    rows: int
    paid: int


class OpenRequests(NamedTuple):
    """The requests (POSTs) in one `state`: their number, the number of their rows, and the most that they can cost."""

    state: State
    requests: int
    rows: int
    credits: int


class WaitingAnswer(NamedTuple):
    """A request that the service accepted at `acked_at` (seconds since the epoch) and has not answered yet.

    `rows` is the number of rows in the request, and `credits` the most that the request can cost.
    """

    request_id: str | None
    rows: int
    credits: int
    acked_at: float


class ProblemReason(NamedTuple):
    """Number of `rows` that have no result for one `reason` (a code). `example` is the URL and the error of one row."""

    status: str
    reason: str
    rows: int
    example: str


_CHARGED: Final = "t.state IN ('settled', 'proven_paid_lost') AND t.event <> 'pay_again'"

_ACTIVITY: Final = f"""
SELECT CAST(t.at AS INTEGER), sum(t.event IN ('send', 'ask_again')), sum(t.event = 'throttle'), sum({_CHARGED}),
       sum(iif({_CHARGED}, s.assets, 0)), sum(iif({_CHARGED}, coalesce(s.paid, 0), 0))
FROM transitions t JOIN submissions s USING (submission_id) WHERE t.rowid > ? GROUP BY 1 ORDER BY 1
"""  # noqa: S608 (constant expressions, here and below)

_CHARGES: Final = """
SELECT CAST(coalesce(answered_at, sent_at, 0) / ? AS INTEGER), sum(attempts), 0, sum(paid IS NOT NULL),
       sum(iif(paid IS NULL, 0, assets)), sum(coalesce(paid, 0))
FROM submissions GROUP BY 1 ORDER BY 1
"""

_OPEN: Final = """
SELECT state, count(*), sum(assets), sum(hold) FROM submissions WHERE state IN ({marks}) GROUP BY state
"""

_REASONS: Final = f"""
SELECT status, reason, count(*) AS rows, max(url || coalesce(': ' || error, '')) FROM items
WHERE status IN ('failed', 'in_doubt', 'over_budget', 'skipped') AND reason IS NOT NULL AND {IS_ROW}
GROUP BY status, reason ORDER BY rows DESC, status, reason LIMIT ?
"""  # noqa: S608


def activity_since(db: Connection, transition_id: int) -> list[Activity]:
    """Return an `Activity` for each second with a state change of a request, oldest first.

    A state change is an entry of the journal's table `transitions`, such as "request 7 was sent". Only those after the
    one with id `transition_id` count.
    """
    return list(map(Activity._make, db.execute(_ACTIVITY, (transition_id,))))


def charges_by_interval(db: Connection, interval_s: int) -> list[Activity]:
    """Return an `Activity` for each interval of a run with requests, oldest first.

    Intervals have a length of `interval_s` seconds. An answered request counts, also as sent, in the interval of its
    answer. A request without an answer counts in the interval when it was last sent. `throttled` is 0 in all intervals.
    """
    return list(map(Activity._make, db.execute(_CHARGES, (interval_s,))))


def transition_times(db: Connection) -> tuple[float, float] | None:
    """Return the times of the first and of the last state change of any request, in seconds since the epoch.

    Return None if no request has changed its state.
    """
    query = "SELECT at FROM transitions WHERE rowid = (SELECT {}(rowid) FROM transitions)"
    first, last = (db.execute(query.format(bound)).get for bound in ("min", "max"))
    return None if first is None else (first, last)


def last_transition_before(db: Connection, at: float) -> int:
    """Return the id of the last state change of any request before the time `at`; 0 if there was none.

    `at` is in seconds since the epoch.
    """
    # The newest come first, so that only the changes after `at` are read.
    return db.execute("SELECT rowid FROM transitions WHERE at < ? ORDER BY rowid DESC LIMIT 1", (at,)).get or 0


def open_requests(db: Connection, states: Iterable[State]) -> list[OpenRequests]:
    """Return how many requests are in each of `states`. States without requests are left out."""
    names = sorted(states)
    query = _OPEN.format(marks=", ".join("?" * len(names)))
    return [OpenRequests(State(state), *sums) for state, *sums in db.execute(query, names)]


def waiting_answers(db: Connection, most: int) -> list[WaitingAnswer]:
    """Return the requests that the service accepted and has not answered, oldest first; at most `most` of them."""
    query = "SELECT request_id, assets, hold, acked_at FROM submissions WHERE state = ? ORDER BY acked_at LIMIT ?"
    return list(map(WaitingAnswer._make, db.execute(query, (State.ACKED, most))))


def problem_reasons(db: Connection, most: int) -> list[ProblemReason]:
    """Return the reasons why rows failed or were not sent.

    The most frequent reasons come first; at most `most` are returned.
    """
    return list(map(ProblemReason._make, db.execute(_REASONS, (most,))))
