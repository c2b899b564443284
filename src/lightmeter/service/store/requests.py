"""Requests in the service's database: functions that store, start, finish and delete them.

One transaction stores a request and holds its price. Another one stores its result and charges it.

Each attempt to run a request has a number, which is a fencing token: only the attempt with the current number may hold
more credits or finish the request. So a slow process that others took for dead cannot charge a second time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass, field
from typing import Final

from lightmeter.errors import LightmeterError, OutOfCredits
from lightmeter.service.store import credits as money
from lightmeter.service.store.credits import LedgerReference
from lightmeter.service.store.poison import CrashRecord
from lightmeter.service.store.request_states import FINISHED, JobEvent, JobState, step
from lightmeter.service.store.sql_dialects import Connection
from lightmeter.wire.constants import INSUFFICIENT_CREDITS, REQUEST_FAILED
from lightmeter.wire.request import AnalyzeRequest


class Superseded(LightmeterError):
    """The attempt is no longer current: another process has started a newer attempt, or deleted the request."""


class IsolationRequired(LightmeterError):
    """The request was running when its process crashed several times, so it must run alone."""


@dataclass(frozen=True, slots=True)
class NewRequest:
    """A valid request that is not stored yet.

    Attributes:
        request_id: Its public id.
        account_id: The account that pays.
        request: The request without uploads.
        uploads: Decoded contents of uploaded files.
        hold: Credits to hold.
        at: Time of the request, in seconds since the epoch.
        acknowledged: Whether the service answers with an acknowledgment, and the client polls for the result.
        idempotency_key: The client's idempotency key; None: there is none.
        echo: The request as JSON without uploads; computed.
        digest: SHA-256 of the request and its decoded uploads; computed.
    """

    request_id: str
    account_id: int
    request: AnalyzeRequest
    uploads: tuple[bytes, ...]
    hold: int
    at: float
    acknowledged: bool
    idempotency_key: str | None
    digests: InitVar[Sequence[bytes]]
    echo: str = field(init=False)
    digest: bytes = field(init=False)

    def __post_init__(self, digests: Sequence[bytes]) -> None:
        """Compute `echo`, and `digest` from the SHA-256 of each upload."""
        object.__setattr__(self, "echo", self.request.model_dump_json(exclude={"file"}))
        echo_digest = hashlib.sha256(self.echo.encode()).digest()
        object.__setattr__(self, "digest", hashlib.sha256(b"".join((echo_digest, *digests))).digest())


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt to run a request; its number, from 1, is the fencing token."""

    request_id: str
    number: int


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """Result and charge in credits of an attempt that succeeded, or error of one that failed."""

    paid: int
    result: bytes | None
    error: str | None
    at: float


@dataclass(frozen=True, slots=True)
class StoredRequest:
    """Row of the table `requests`."""

    request_id: str
    account_id: int
    state: JobState
    acknowledged: bool
    attempts: int
    digest: bytes
    echo: str
    hold: int
    paid: int | None
    remaining: int | None
    result: bytes | None
    error: str | None
    finished_at: float | None
    crashes: CrashRecord

    def is_same_request(self, new: NewRequest) -> bool:
        """Return whether a new request equals this one, without its uploads if this one has no digest (version 1)."""
        return self.digest == new.digest if self.digest else self.request == new.request.model_copy(update={"file": []})

    @property
    def request(self) -> AnalyzeRequest:
        """The request without uploads."""
        return AnalyzeRequest.model_validate_json(self.echo)

    @property
    def attempt(self) -> Attempt:
        """The current attempt."""
        return Attempt(self.request_id, self.attempts)


_COLUMNS: Final = (
    "request_id, account_id, state, acknowledged, attempts, digest, echo, hold, paid, remaining, result, error, "
    "finished_at, deaths, deaths_alone, alone"
)
_SELECT: Final = f"SELECT {_COLUMNS} FROM requests WHERE "  # noqa: S608 (a constant; values are parameters)


def _parse_row(row: Sequence[object]) -> StoredRequest:
    request_id, account_id, state, acknowledged, attempts, digest, echo, *rest, deaths, deaths_alone, alone = row
    crashes = CrashRecord(int(str(deaths)), int(str(deaths_alone)), bool(alone))
    head = (request_id, account_id, JobState(str(state)), bool(acknowledged), attempts, digest, echo)
    return StoredRequest(*head, *rest, crashes)  # type: ignore[call-arg, arg-type]


def admit(db: Connection, new: NewRequest, enqueue: Callable[[Connection, NewRequest], None]) -> StoredRequest | None:
    """Store a request, hold its price and enqueue it, and return None.

    If the account has an earlier request with the same idempotency key, change nothing and return that request.

    The state of an acknowledged request is `queued`, that of another request is `running`.

    Args:
        db: A transaction.
        new: The request.
        enqueue: Function that adds the request to the job queue in the same transaction.

    Raises:
        OutOfCredits: the account has too few credits; the caller must roll back the transaction.
    """
    state, attempts = (JobState.QUEUED, 0) if new.acknowledged else (JobState.RUNNING, 1)
    # Insert first: of two requests with the same idempotency key, the second waits here for the commit of the first.
    inserted = db.execute(
        "INSERT INTO requests (request_id, account_id, state, acknowledged, echo, digest, hold, attempts, created_at, "
        "idempotency_key) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (account_id, idempotency_key) DO NOTHING "
        "RETURNING request_id",
        (
            *(new.request_id, new.account_id, state.value, int(new.acknowledged), new.echo, new.digest),
            *(new.hold, attempts, new.at, new.idempotency_key),
        ),
    )
    if not inserted:
        rows = db.execute(f"{_SELECT} account_id = ? AND idempotency_key = ?", (new.account_id, new.idempotency_key))
        return _parse_row(rows[0])
    money.hold(db, LedgerReference(new.account_id, new.request_id, new.at), new.hold)
    if new.acknowledged or new.idempotency_key is not None:  # other requests are never started again
        db.executemany(
            "INSERT INTO uploads (request_id, position, content) VALUES (?, ?, ?)",
            [(new.request_id, position, content) for position, content in enumerate(new.uploads)],
        )
    enqueue(db, new)
    return None


def acknowledge(db: Connection, request_id: str) -> bool:
    """Mark a request as acknowledged, so that it runs again if its process dies; return whether it exists."""
    sql = "UPDATE requests SET acknowledged = 1 WHERE request_id = ? RETURNING request_id"
    return bool(db.execute(sql, (request_id,)))


def _lock_current_attempt(db: Connection, attempt: Attempt) -> tuple[int, JobState, int]:
    """Lock the row of a request, and return its account, state and held credits.

    Raises:
        Superseded: the attempt is no longer current, or its request is not running.
    """
    rows = db.execute(
        "SELECT account_id, state, hold, attempts FROM requests WHERE request_id = ? FOR UPDATE", (attempt.request_id,)
    )
    if not rows or rows[0][3] != attempt.number or JobState(rows[0][1]) is not JobState.RUNNING:
        raise Superseded(f"Attempt {attempt.number} at request {attempt.request_id} is no longer current.")
    return rows[0][0], JobState(rows[0][1]), rows[0][2]


def hold_more(db: Connection, attempt: Attempt, amount: int, at: float) -> None:
    """Hold more credits for a request whose assets cost more than expected when it was stored.

    Args:
        db: A transaction.
        attempt: The attempt that needs them.
        amount: Additional credits to hold.
        at: Seconds since the epoch.

    Raises:
        OutOfCredits: the account has too few credits.
        Superseded: the attempt is no longer current.
    """
    account_id, _, _ = _lock_current_attempt(db, attempt)
    try:
        money.hold(db, LedgerReference(account_id, attempt.request_id, at), amount)
    except OutOfCredits:
        raise OutOfCredits(INSUFFICIENT_CREDITS) from None
    db.execute("UPDATE requests SET hold = hold + ? WHERE request_id = ?", (amount, attempt.request_id))


def find(db: Connection, request_id: str, account_id: int, not_before: float) -> StoredRequest | None:
    """Return a request of an account; None if it does not exist or its result has expired.

    Args:
        db: A transaction.
        request_id: Id of the request.
        account_id: Number of the account.
        not_before: Results of requests that finished earlier have expired; seconds since the epoch.
    """
    rows = db.execute(
        f"{_SELECT} request_id = ? AND account_id = ? AND (finished_at IS NULL OR finished_at >= ?)",
        (request_id, account_id, not_before),
    )
    return _parse_row(rows[0]) if rows else None


def finish(db: Connection, attempt: Attempt, outcome: AttemptResult) -> StoredRequest:
    """Store the result of an attempt, charge it and release the rest of the hold; return the finished request.

    Args:
        db: A transaction.
        attempt: The attempt that ended.
        outcome: Its result.

    Raises:
        Superseded: the attempt is no longer current; nothing is changed.
    """
    account_id, state, held = _lock_current_attempt(db, attempt)
    event = JobEvent.SETTLE if outcome.error is None else JobEvent.FAIL
    return _store_outcome(
        db, LedgerReference(account_id, attempt.request_id, outcome.at), step(state, event), held, outcome
    )


def _store_outcome(
    db: Connection, reference: LedgerReference, state: JobState, held: int, outcome: AttemptResult
) -> StoredRequest:
    # A restart may have changed back ends or prices, but the charge must not exceed the hold.
    paid = min(outcome.paid, held)
    remaining = money.settle(db, reference, held, paid)
    error = None if outcome.error is None else outcome.error.replace("\0", "")  # PostgreSQL's text type rejects it
    (row,) = db.execute(
        "UPDATE requests SET state = ?, paid = ?, remaining = ?, result = ?, error = ?, finished_at = ?, "  # noqa: S608 (a constant)
        f"lease_until = NULL WHERE request_id = ? RETURNING {_COLUMNS}",
        (state.value, paid, remaining, outcome.result, error, outcome.at, reference.request_id),
    )
    db.execute("DELETE FROM uploads WHERE request_id = ?", (reference.request_id,))
    return _parse_row(row)


def start(
    db: Connection, request_id: str, at: float, *, alone: bool = False
) -> tuple[StoredRequest, tuple[bytes, ...]] | None:
    """Start a new attempt to run an acknowledged request; return the request with its uploads.

    Return None if the request does not exist or has finished. If the request has crashed its process too often (see
    `poison`), store its failure and return the failed request.

    Args:
        db: A transaction.
        request_id: Id of the request.
        at: Seconds since the epoch.
        alone: Whether this process runs no other request during the attempt.

    Raises:
        IsolationRequired: the request must run alone, and `alone` is False; nothing is changed.
    """
    rows = db.execute(f"{_SELECT} request_id = ? FOR UPDATE", (request_id,))
    if not rows:
        return None
    stored = _parse_row(rows[0])
    if stored.state in FINISHED:
        return None
    state, crashes = stored.state, stored.crashes
    if state is JobState.RUNNING:
        state, crashes = step(state, JobEvent.INTERRUPT), crashes.after_crash()
    if crashes.is_given_up:
        error = f"{REQUEST_FAILED}: the service ended {crashes.deaths_alone} times while it was doing this alone."
        reference = LedgerReference(stored.account_id, request_id, at)
        return _store_outcome(
            db, reference, step(state, JobEvent.GIVE_UP), stored.hold, AttemptResult(0, None, error, at)
        ), ()
    if crashes.is_suspect and not alone:
        raise IsolationRequired(
            f"Request {request_id} was running at {crashes.deaths} crashes of its process: it must run alone."
        )
    (row,) = db.execute(
        "UPDATE requests SET state = ?, attempts = attempts + 1, lease_until = NULL, deaths = ?, deaths_alone = ?, "  # noqa: S608 (likewise)
        f"alone = ? WHERE request_id = ? RETURNING {_COLUMNS}",
        (step(state, JobEvent.START).value, crashes.deaths, crashes.deaths_alone, int(alone), request_id),
    )
    contents = db.execute("SELECT content FROM uploads WHERE request_id = ? ORDER BY position", (request_id,))
    return _parse_row(row), tuple(content for (content,) in contents)


def requeue(db: Connection, attempt: Attempt) -> None:
    """Return a running request to state `queued`, because its process shuts down.

    Raises:
        Superseded: the attempt is no longer current.
    """
    _, state, _ = _lock_current_attempt(db, attempt)
    db.execute(
        "UPDATE requests SET state = ? WHERE request_id = ?",
        (step(state, JobEvent.INTERRUPT).value, attempt.request_id),
    )


def release_excess_hold(db: Connection, attempt: Attempt, amount: int, at: float) -> None:
    """Release additional credits that an earlier attempt held; the current attempt holds them again if needed.

    Args:
        db: A transaction.
        attempt: The current attempt.
        amount: Credits to keep held.
        at: Seconds since the epoch.

    Raises:
        Superseded: the attempt is no longer current.
    """
    account_id, _, held = _lock_current_attempt(db, attempt)
    if held > amount:
        db.execute("UPDATE requests SET hold = ? WHERE request_id = ?", (amount, attempt.request_id))
        money.settle(db, LedgerReference(account_id, attempt.request_id, at), held - amount, 0)


def unfinished_ids(db: Connection, *, acknowledged: bool) -> list[str]:
    """Return the ids of all unfinished requests that are acknowledged, or of all that are not.

    Requests with most crashes come first, then older ones: suspects run first, while a restarted process is least
    likely to be killed by chance.
    """
    rows = db.execute(
        "SELECT request_id FROM requests WHERE state IN (?, ?) AND acknowledged = ? ORDER BY deaths DESC, created_at",
        (JobState.QUEUED.value, JobState.RUNNING.value, int(acknowledged)),
    )
    return [request_id for (request_id,) in rows]


def delete_unacknowledged(db: Connection, request_id: str, at: float) -> None:
    """Delete a request that is neither finished nor acknowledged, and release its hold and idempotency key.

    Args:
        db: A transaction.
        request_id: Id of the request.
        at: Seconds since the epoch.
    """
    rows = db.execute(
        "SELECT account_id, state, hold, acknowledged FROM requests WHERE request_id = ? FOR UPDATE", (request_id,)
    )
    if rows and not rows[0][3] and JobState(rows[0][1]) not in FINISHED:
        money.settle(db, LedgerReference(rows[0][0], request_id, at), rows[0][2], 0)
        db.execute("DELETE FROM requests WHERE request_id = ?", (request_id,))


def purge(db: Connection, before: float) -> int:
    """Delete requests that finished earlier than `before`, in seconds since the epoch; return their number.

    Their charges stay in the ledger.
    """
    return len(db.execute("DELETE FROM requests WHERE finished_at < ? RETURNING request_id", (before,)))
