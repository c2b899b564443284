"""Submissions in the journal, read back: what a restart must collect, resolve and report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import apsw

from lightmeter.journal.answer_retries import pending_retry
from lightmeter.journal.compression import decompress
from lightmeter.journal.items import PendingRow
from lightmeter.journal.state import State

__all__ = [
    "InDoubtTotals",
    "SubmissionRecord",
    "answer_of",
    "in_doubt_totals",
    "requests_sent",
    "submissions_in",
    "waiting_at_service",
]


@dataclass(frozen=True, slots=True)
class SubmissionRecord:
    """A submission and its rows, as (seq, url, path), in the order they were sent.

    One that asks about a row again has no row of its own: `retry` is what it asks about.
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


def submissions_in(db: apsw.Connection, states: Iterable[State]) -> Iterator[SubmissionRecord]:
    """All submissions in one of these states, oldest first."""
    wanted = sorted(states)
    marks = ", ".join("?" * len(wanted))
    found = list(
        db.execute(
            "SELECT submission_id, state, hold, request_id, acked_at, http_status FROM submissions "  # noqa: S608 (marks are ?, ?, …)
            f"WHERE state IN ({marks}) ORDER BY submission_id",
            wanted,
        )
    )
    for submission_id, state, hold, request_id, acked_at, http_status in found:
        rows = tuple(
            db.execute("SELECT seq, url, path FROM items WHERE submission_id = ? ORDER BY seq", (submission_id,))
        )
        asked = None if rows else db.execute(_RETRIED, (submission_id,)).fetchone()
        retry = None if asked is None else pending_retry(*asked)
        yield SubmissionRecord(submission_id, State(state), hold, request_id, acked_at, http_status, rows, retry)


def answer_of(db: apsw.Connection, submission_id: int) -> bytes | None:
    """The bytes of its answer, as they came."""
    row = db.execute("SELECT raw FROM answers WHERE submission_id = ?", (submission_id,)).fetchone()
    return decompress(row[0]) if row else None


def requests_sent(db: apsw.Connection) -> int:
    """How many POSTs were ever sent."""
    ((sent,),) = db.execute("SELECT coalesce(sum(attempts), 0) FROM submissions")
    return int(sent)


@dataclass(frozen=True, slots=True)
class InDoubtTotals:
    """What the run cannot decide by itself.

    Attributes:
        requests: Requests without an answer that may have been charged; their rows are `in_doubt`.
        rows: Those rows.
        credits: What they may have cost: it stays held.
        again: What sending those again costs at most that no balance decided.
        lost_requests: Requests that were charged for sure, and whose answer never came; their rows have `failed`.
        lost_credits: What they cost.
        failed_requests: Requests that failed and named no charge; their rows have `failed`.
        failed_credits: What those may have cost: it stays held until a balance tells.
    """

    requests: int
    rows: int
    credits: int
    again: int
    lost_requests: int
    lost_credits: int
    failed_requests: int = 0
    failed_credits: int = 0


def in_doubt_totals(db: apsw.Connection) -> InDoubtTotals:
    """What became of requests that never got their answer."""
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


def waiting_at_service(db: apsw.Connection) -> tuple[int, float | None]:
    """Acknowledged requests whose answers were not collected, and when the oldest was acknowledged (epoch seconds).

    A service keeps answers for 24 hours.
    """
    ((requests, oldest),) = db.execute("SELECT count(*), min(acked_at) FROM submissions WHERE state = 'acked'")
    return int(requests), oldest
