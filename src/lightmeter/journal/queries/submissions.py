"""Queries on submissions (one POST each): their states, answers, charges and rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from lightmeter import sqlite
from lightmeter.journal.compression import decompress
from lightmeter.journal.queries.answer_retries import retried_row
from lightmeter.journal.queries.items import REACH_FACTS, AssetMarks
from lightmeter.journal.queries.pending_rows import PendingRow
from lightmeter.journal.submission_states import State


@dataclass(frozen=True, slots=True)
class SubmissionRecord:
    """A request (one POST) with its rows, as the journal records it.

    `rows` has a tuple (row number, URL or path, local path or None) for each row, sorted by row number. If the
    request asks the user's question (`--ask`) a second time, about one row, then `rows` is empty and `retry` is that
    row. `kinds` has the media kind of each entry of `rows`. `frames_high` is the most images and video frames in the
    request; None if no upper bound is known. `hold` is the most that the request can cost, in credits. `acked_at` is
    when the service confirmed that it accepted the request, in seconds since the epoch; None if it has not.
    """

    submission_id: int
    state: State
    hold: int
    request_id: str | None
    acked_at: float | None
    http_status: int | None
    rows: tuple[tuple[int, str, str | None], ...]
    kinds: tuple[str | None, ...] = ()
    frames_high: int | None = None
    retry: PendingRow | None = None


_ROWS: Final = "SELECT seq, url, path, kind, frames_high FROM items WHERE submission_id = ? ORDER BY seq"


def submissions_in(db: sqlite.Connection, states: Iterable[State]) -> Iterator[SubmissionRecord]:
    """Yield all requests (POSTs) that are in one of `states`, oldest first."""
    state_names = sorted(states)
    marks = ", ".join("?" * len(state_names))
    query = (
        "SELECT submission_id, state, hold, request_id, acked_at, http_status FROM submissions "  # noqa: S608 (marks are ?, ?, …)
        f"WHERE state IN ({marks}) ORDER BY submission_id"
    )
    for submission_id, state, hold, request_id, acked_at, http_status in list(db.execute(query, state_names)):
        rows = list(db.execute(_ROWS, (submission_id,)))
        retry = None if rows else retried_row(db, submission_id)
        frames = [frames_high for *_, frames_high in rows] or [retry and retry.frames_high]
        yield SubmissionRecord(
            *(submission_id, State(state), hold, request_id, acked_at, http_status),
            rows=tuple((seq, url, path) for seq, url, path, *_ in rows),
            kinds=tuple(kind for *_, kind, _ in rows),
            frames_high=None if None in frames else sum(frames),
            retry=retry,
        )


def read_answer(db: sqlite.Connection, submission_id: int) -> bytes | None:
    """Return the bytes of the answer to request number `submission_id`, decompressed; None without an answer."""
    compressed = db.execute("SELECT raw FROM answers WHERE submission_id = ?", (submission_id,)).get
    return None if compressed is None else decompress(compressed)


def requests_sent(db: sqlite.Connection) -> int:
    """Return how many times a request (POST) was sent. A request that was sent twice counts twice."""
    return int(db.execute("SELECT coalesce(sum(attempts), 0) FROM submissions").get)


@dataclass(frozen=True, slots=True)
class InDoubtTotals:
    """Totals of requests whose answer or charge is missing.

    Attributes:
        requests: Number of requests without an answer that may have been charged; their rows have the status
            `in_doubt`.
        rows: Number of rows in `requests`.
        credits: Most credits that `requests` cost together; they stay reserved.
        again: The part of `credits` that belongs to requests that no account balance could decide about: the most that
            it costs to send them again.
        lost_requests: Number of requests that were charged and never answered; their rows have the status `failed`.
        lost_credits: Credits charged for `lost_requests`.
        failed_requests: Number of requests that failed, and whose answer reports no charge; their rows have the status
            `failed`.
        failed_credits: Most credits that `failed_requests` cost together; they stay reserved until a balance proves the
            charge.
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
    """Return how many requests have no answer or no known charge, and the most credits that they cost together."""
    unanswered = db.execute(
        "SELECT count(*), coalesce(sum(assets), 0), coalesce(sum(hold), 0), "
        "coalesce(sum(CASE WHEN state = 'ambiguous' AND EXISTS "
        "(SELECT 1 FROM items i WHERE i.submission_id = s.submission_id) THEN hold END), 0) "
        "FROM submissions s WHERE state IN ('uncertain', 'ambiguous')"
    ).get
    lost = db.execute("SELECT count(*), coalesce(sum(paid), 0) FROM submissions WHERE state = 'proven_paid_lost'").get
    failed = db.execute("SELECT count(*), coalesce(sum(hold), 0) FROM submissions WHERE state = 'charge_unknown'").get
    return InDoubtTotals(*unanswered, *lost, *failed)


def waiting_at_service(db: sqlite.Connection) -> tuple[int, float | None]:
    """Return how many requests the service has accepted but not answered, and when it accepted the oldest of them.

    The time is in seconds since the epoch; it is None if there are no such requests. A service stores answers for 24
    hours.
    """
    ((requests, oldest),) = db.execute("SELECT count(*), min(acked_at) FROM submissions WHERE state = 'acked'")
    return int(requests), oldest


class SubmissionRow(NamedTuple):
    """One request (POST) as listed in the credit statement of a run.

    `assets` is the number of rows in the request. `hold` is the number of credits reserved for it, `paid` the number
    charged (None while unknown, or if the answer names no charge). `remaining` is the balance that its answer reported.
    Times are in seconds since the epoch.
    """

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
    """A manifest row with its answer, and the position of the row's image or video in the answer.

    Attributes:
        transition_id: Id of the state change that recorded the charge. It is the same for all rows of one answer.
        request_id: The service's id of the request; None if the service reported none.
        answered_at: When the service answered, in seconds since the epoch; None if an older version did not record it.
        compressed: The bytes of the answer, compressed.
        asset: Position of the image or video in the answer's list `all.assets`, from 0.
        name: Name of the image or video in the answer.
        marks: What identifies the image or video: URL, hash, size and so on.
    """

    transition_id: int
    request_id: str | None
    answered_at: float | None
    compressed: bytes
    asset: int
    name: str | None
    marks: AssetMarks


_SETTLED_ASSETS: Final = f"""
SELECT t.rowid, s.request_id, s.answered_at, a.raw, i.asset, i.name, i.identity, i.path, i.content_sha256, f.facts
FROM transitions t JOIN submissions s USING (submission_id) JOIN answers a USING (submission_id)
     JOIN items i ON i.submission_id = s.submission_id AND i.status = 'ok' AND i.asset IS NOT NULL
     LEFT JOIN {REACH_FACTS.format("f", "i")}
WHERE t.event = 'settle' AND t.rowid > ? ORDER BY t.rowid
"""  # noqa: S608 (a constant expression)


def settled_assets(db: sqlite.Connection, after: int) -> Iterator[SettledAsset]:
    """Yield the answered rows whose charge was recorded after the state change with id `after`.

    Rows of one answer stand together.
    """
    row: Any
    for row in db.execute(_SETTLED_ASSETS, (after,)):
        yield SettledAsset._make((*row[:6], AssetMarks._make(row[6:])))


def submission_rows(db: sqlite.Connection) -> list[SubmissionRow]:
    """Return all requests of a run for its credit statement, oldest first."""
    query = (
        "SELECT submission_id, request_id, state, assets, hold, iif(said, paid, NULL), remaining, sent_at, "
        "answered_at, error FROM submissions ORDER BY submission_id"
    )
    return list(map(SubmissionRow._make, db.execute(query)))


def count_submissions(db: sqlite.Connection) -> int:
    """Return the number of all requests (POSTs) in the journal, whatever their state."""
    return int(db.execute("SELECT count(*) FROM submissions").get)


def count_submissions_in(db: sqlite.Connection, state: State) -> int:
    """Return the number of requests (POSTs) in a state."""
    return int(db.execute("SELECT count(*) FROM submissions WHERE state = ?", (state,)).get)


_LAST_SUBMISSION: Final = """
SELECT max((SELECT coalesce(max(submission_id), 0) FROM submissions),
           (SELECT coalesce(max(value ->> '$[1]'), 0)
            FROM json_each((SELECT value FROM meta WHERE key = 'carried_from'))))
"""


def last_submission_id(db: sqlite.Connection) -> int:
    """Return the id of the newest request (POST) of a run, or of an earlier run whose open requests it took over.

    Return 0 before the first request. Later requests need higher ids: the ids decide under which run's idempotency key
    a request is sent.
    """
    return int(db.execute(_LAST_SUBMISSION).get)


def sent_times(db: sqlite.Connection, state: State) -> dict[int, float]:
    """Return when each request that is now in `state` was last sent, as submission id → seconds since the epoch."""
    return dict(db.execute("SELECT submission_id, sent_at FROM submissions WHERE state = ?", (state,)))
