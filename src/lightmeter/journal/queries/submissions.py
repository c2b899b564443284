"""Queries on submissions: what a restart must poll, resolve or report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from lightmeter import sqlite
from lightmeter.journal.compression import decompress
from lightmeter.journal.queries.answer_retries import pending_retry
from lightmeter.journal.queries.items import AssetMarks, PendingRow
from lightmeter.journal.submission_states import State


@dataclass(frozen=True, slots=True)
class SubmissionRecord:
    """A submission and its rows as (seq, url, path), in the order they were sent.

    The second request for a row has no rows of its own; its attribute `retry` is that row.
    """

    submission_id: int
    state: State
    hold: int
    request_id: str | None
    acked_at: float | None
    http_status: int | None
    rows: tuple[tuple[int, str, str | None], ...]
    retry: PendingRow | None = None


_RETRIED: Final = """
SELECT i.seq, i.url, i.path, i.kind, i.frames_high, r.error, r.backends FROM answer_retries r JOIN items i USING (seq)
WHERE r.submission_id = ?
"""


def submissions_in(db: sqlite.Connection, states: Iterable[State]) -> Iterator[SubmissionRecord]:
    """Yield all submissions in one of these states, oldest first."""
    state_names = sorted(states)
    marks = ", ".join("?" * len(state_names))
    submissions = list(
        db.execute(
            "SELECT submission_id, state, hold, request_id, acked_at, http_status FROM submissions "  # noqa: S608 (marks are ?, ?, …)
            f"WHERE state IN ({marks}) ORDER BY submission_id",
            state_names,
        )
    )
    for submission_id, state, hold, request_id, acked_at, http_status in submissions:
        rows = tuple(
            db.execute("SELECT seq, url, path FROM items WHERE submission_id = ? ORDER BY seq", (submission_id,))
        )
        retried = None if rows else db.execute(_RETRIED, (submission_id,)).fetchone()
        retry = None if retried is None else pending_retry(*retried)
        yield SubmissionRecord(submission_id, State(state), hold, request_id, acked_at, http_status, rows, retry)


def read_answer(db: sqlite.Connection, submission_id: int) -> bytes | None:
    """Return the bytes of a submission's answer; None without one."""
    row = db.execute("SELECT raw FROM answers WHERE submission_id = ?", (submission_id,)).fetchone()
    return decompress(row[0]) if row else None


def requests_sent(db: sqlite.Connection) -> int:
    """Return the number of POSTs that were sent, including repeated ones."""
    ((sent,),) = db.execute("SELECT coalesce(sum(attempts), 0) FROM submissions")
    return int(sent)


@dataclass(frozen=True, slots=True)
class InDoubtTotals:
    """Sums over requests whose charge or answer is missing.

    Attributes:
        requests: Requests without an answer that may have been charged; their rows are `in_doubt`.
        rows: Number of those rows.
        credits: Most credits that they cost; they stay held.
        again: Most credits that it costs to send those again whose charge no balance could prove.
        lost_requests: Requests that were charged and never answered; their rows are `failed`.
        lost_credits: Credits charged for them.
        failed_requests: Requests that failed without a reported charge; their rows are `failed`.
        failed_credits: Most credits that those cost; they stay held until a balance proves the charge.
    """

    requests: int
    rows: int
    credits: int
    again: int
    lost_requests: int
    lost_credits: int
    failed_requests: int = 0
    failed_credits: int = 0


def in_doubt_totals(db: sqlite.Connection) -> InDoubtTotals:
    """Return the sums over requests whose charge or answer is missing."""
    ((requests, rows, credits_, again),) = db.execute(
        "SELECT count(*), coalesce(sum(assets), 0), coalesce(sum(hold), 0), "
        "coalesce(sum(CASE WHEN state = 'ambiguous' AND EXISTS "
        "(SELECT 1 FROM items i WHERE i.submission_id = s.submission_id) THEN hold END), 0) "
        "FROM submissions s WHERE state IN ('uncertain', 'ambiguous')"
    )
    ((lost, lost_credits),) = db.execute(
        "SELECT count(*), coalesce(sum(paid), 0) FROM submissions WHERE state = 'proven_paid_lost'"
    )
    ((failed, failed_credits),) = db.execute(
        "SELECT count(*), coalesce(sum(hold), 0) FROM submissions WHERE state = 'charge_unknown'"
    )
    return InDoubtTotals(requests, rows, credits_, again, lost, lost_credits, failed, failed_credits)


def waiting_at_service(db: sqlite.Connection) -> tuple[int, float | None]:
    """Return (number of acknowledged requests without an answer, time of the oldest acknowledgement or None).

    The time is in seconds since the epoch. A service stores answers for 24 hours.
    """
    ((requests, oldest),) = db.execute("SELECT count(*), min(acked_at) FROM submissions WHERE state = 'acked'")
    return int(requests), oldest


class SubmissionRow(NamedTuple):
    """A row of the table `submissions`, as the statement of a run lists it; times in seconds since the epoch."""

    submission_id: int
    request_id: str | None
    state: str
    assets: int
    hold: int
    paid: int | None
    remaining: int | None
    sent_at: float | None
    answered_at: float | None
    error: str | None


class SettledAsset(NamedTuple):
    """A row with a result: its settled answer, the position of its asset in that answer, and its known properties.

    Attributes:
        transition_id: Id of the transition that settled the answer: the same for all rows of one answer.
        request_id: The service's id of the request, if it named one.
        answered_at: Seconds since the epoch; None where an older version did not record it.
        compressed: The bytes of the answer, compressed.
        asset: Position in the answer's `all.assets`.
        name: Its name there.
        marks: Known properties of the content.
    """

    transition_id: int
    request_id: str | None
    answered_at: float | None
    compressed: bytes
    asset: int
    name: str | None
    marks: AssetMarks


_SETTLED_ASSETS: Final = """
SELECT t.rowid, s.request_id, s.answered_at, a.raw, i.asset, i.name, i.identity, i.path, i.content_sha256, f.facts
FROM transitions t JOIN submissions s USING (submission_id) JOIN answers a USING (submission_id)
     JOIN items i ON i.submission_id = s.submission_id AND i.status = 'ok' AND i.asset IS NOT NULL
     LEFT JOIN findings f ON f.seq = i.seq AND f.name = 'reach'
WHERE t.event = 'settle' AND t.rowid > ? ORDER BY t.rowid
"""


def settled_assets(db: sqlite.Connection, after: int) -> Iterator[SettledAsset]:
    """Yield the rows whose answers were settled after transition `after`; rows of one answer follow one another."""
    row: Any
    for row in db.execute(_SETTLED_ASSETS, (after,)):
        yield SettledAsset._make((*row[:6], AssetMarks._make(row[6:])))


def submission_rows(db: sqlite.Connection) -> list[SubmissionRow]:
    """Return all submissions, oldest first."""
    query = (
        "SELECT submission_id, request_id, state, assets, hold, paid, remaining, sent_at, answered_at, error "
        "FROM submissions ORDER BY submission_id"
    )
    return list(map(SubmissionRow._make, db.execute(query)))


def count_submissions(db: sqlite.Connection) -> int:
    """Return the number of submissions."""
    ((submissions,),) = db.execute("SELECT count(*) FROM submissions")
    return int(submissions)


def count_submissions_in(db: sqlite.Connection, state: State) -> int:
    """Return the number of submissions in a state."""
    ((submissions,),) = db.execute("SELECT count(*) FROM submissions WHERE state = ?", (state,))
    return int(submissions)


def last_submission_id(db: sqlite.Connection) -> int:
    """Return the id of the newest submission; 0 before the first."""
    ((last,),) = db.execute("SELECT coalesce(max(submission_id), 0) FROM submissions")
    return int(last)


def sent_times(db: sqlite.Connection, state: State) -> dict[int, float]:
    """Return when each submission in a state was sent (seconds since the epoch), by its id."""
    return dict(db.execute("SELECT submission_id, sent_at FROM submissions WHERE state = ?", (state,)))
