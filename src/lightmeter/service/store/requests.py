"""Requests in the store: admitted with their hold in one transaction, finished with their charge in another.

Each attempt at a request has a number, which is a fencing token: only the attempt with the request's current number may
hold more or finish. So a process that was presumed dead, and was not, cannot charge a second time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass, field
from typing import Final

from lightmeter.errors import LightmeterError, OutOfCredits
from lightmeter.models.request import AnalyzeRequest
from lightmeter.models.vocabulary import INSUFFICIENT_CREDITS, REQUEST_FAILED
from lightmeter.service.store import credits as money
from lightmeter.service.store.credits import LedgerReference
from lightmeter.service.store.database import Connection
from lightmeter.service.store.poison import CrashRecord
from lightmeter.service.store.request_states import FINISHED, JobEvent, JobState, step

__all__ = [
    "Attempt",
    "AttemptResult",
    "IsolationRequired",
    "NewRequest",
    "StoredRequest",
    "Superseded",
    "acknowledge",
    "admit",
    "delete_unacknowledged",
    "find",
    "finish",
    "hold_more",
    "purge",
    "release_excess_hold",
    "requeue",
    "start",
    "unfinished",
]


class Superseded(LightmeterError):
    """The attempt is no longer current: another process has taken the request over, or deleted it."""


class IsolationRequired(LightmeterError):
    """The request was running at several crashes of its process: it must run alone."""


@dataclass(frozen=True, slots=True)
class NewRequest:
    """A valid request that is about to be admitted.

    Attributes:
        request_id: Its public id.
        account_id: The account that pays.
        request: The request; its `file` is empty, the uploads are in `uploads`.
        uploads: Decoded contents of uploaded files.
        hold: Credits to hold.
        at: Time of the request, in seconds since the epoch.
        acknowledged: Whether the client polls for the answer.
        idempotency_key: The client's idempotency key, if any.
        echo: The request as JSON, without contents; computed.
        digest: SHA-256 of the request and its contents, independent of their encoding; computed.
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
        """Compute `echo` and `digest`.

        Args:
            digests: SHA-256 of each upload.
        """
        object.__setattr__(self, "echo", self.request.model_dump_json(exclude={"file"}))
        echo_digest = hashlib.sha256(self.echo.encode()).digest()
        object.__setattr__(self, "digest", hashlib.sha256(b"".join((echo_digest, *digests))).digest())


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at a request; its number is the fencing token."""

    request_id: str
    number: int


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """How an attempt ended: with a result and a charge, or with an error and no charge."""

    paid: int
    result: bytes | None
    error: str | None
    at: float


@dataclass(frozen=True, slots=True)
class StoredRequest:
    """A request as it is stored."""

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
    record: CrashRecord

    def is_same_request(self, new: NewRequest) -> bool:
        """Return whether a new request equals this one; without a digest (older versions) contents are not compared."""
        return self.digest == new.digest if self.digest else self.request == new.request.model_copy(update={"file": []})

    @property
    def request(self) -> AnalyzeRequest:
        """The request, without contents."""
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


def _stored(row: Sequence[object]) -> StoredRequest:
    request_id, account_id, state, acknowledged, attempts, digest, echo, *rest, deaths, deaths_alone, alone = row
    record = CrashRecord(int(str(deaths)), int(str(deaths_alone)), bool(alone))
    head = (request_id, account_id, JobState(str(state)), bool(acknowledged), attempts, digest, echo)
    return StoredRequest(*head, *rest, record)  # type: ignore[call-arg, arg-type]


def admit(db: Connection, new: NewRequest, enqueue: Callable[[Connection, NewRequest], None]) -> StoredRequest | None:
    """Hold the price, store the request and enqueue it; or return the earlier request with its idempotency key.

    An acknowledged request is `queued`; one that is answered at once is `running`.

    Args:
        db: A transaction.
        new: The request.
        enqueue: Adds it to the job queue in the same transaction.

    Raises:
        OutOfCredits: the account cannot hold the price; the transaction must be rolled back.
    """
    state, attempts = (JobState.QUEUED, 0) if new.acknowledged else (JobState.RUNNING, 1)
    # The row first: of two requests with one idempotency key, the second waits here until the first commits.
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
        return _stored(rows[0])
    money.hold(db, LedgerReference(new.account_id, new.request_id, new.at), new.hold)
    if new.acknowledged or new.idempotency_key is not None:  # other requests are never started again
        db.executemany(
            "INSERT INTO uploads (request_id, position, content) VALUES (?, ?, ?)",
            [(new.request_id, position, content) for position, content in enumerate(new.uploads)],
        )
    enqueue(db, new)
    return None


def acknowledge(db: Connection, request_id: str) -> bool:
    """Mark a request as polled for, so that it outlives its process; return False if it does not exist."""
    sql = "UPDATE requests SET acknowledged = 1 WHERE request_id = ? RETURNING request_id"
    return bool(db.execute(sql, (request_id,)))


def _current(db: Connection, attempt: Attempt) -> tuple[int, JobState, int]:
    """Return (account, state, hold) of a request whose attempt is current, and lock its row."""
    rows = db.execute(
        "SELECT account_id, state, hold, attempts FROM requests WHERE request_id = ? FOR UPDATE", (attempt.request_id,)
    )
    if not rows or rows[0][3] != attempt.number or JobState(rows[0][1]) is not JobState.RUNNING:
        raise Superseded(f"Attempt {attempt.number} at request {attempt.request_id} is no longer current.")
    return rows[0][0], JobState(rows[0][1]), rows[0][2]


def hold_more(db: Connection, attempt: Attempt, amount: int, at: float) -> None:
    """Hold more for a request whose assets cost more than was known at admission.

    Args:
        db: A transaction.
        attempt: The attempt.
        amount: Credits to hold in addition.
        at: Seconds since the epoch.

    Raises:
        OutOfCredits: the account cannot hold it.
        Superseded: the attempt is no longer current.
    """
    account_id, _, _ = _current(db, attempt)
    try:
        money.hold(db, LedgerReference(account_id, attempt.request_id, at), amount)
    except OutOfCredits:
        raise OutOfCredits(INSUFFICIENT_CREDITS) from None
    db.execute("UPDATE requests SET hold = hold + ? WHERE request_id = ?", (amount, attempt.request_id))


def find(db: Connection, request_id: str, account_id: int, not_before: float) -> StoredRequest | None:
    """Return a request of an account; None if it does not exist or has expired.

    Args:
        db: A transaction.
        request_id: The request.
        account_id: The account.
        not_before: Requests that finished earlier have expired; seconds since the epoch.
    """
    rows = db.execute(
        f"{_SELECT} request_id = ? AND account_id = ? AND (finished_at IS NULL OR finished_at >= ?)",
        (request_id, account_id, not_before),
    )
    return _stored(rows[0]) if rows else None


def finish(db: Connection, attempt: Attempt, finished: AttemptResult) -> StoredRequest:
    """Store the result of an attempt and settle its charge.

    Args:
        db: A transaction.
        attempt: The attempt.
        finished: Its result.

    Raises:
        Superseded: the attempt is no longer current; nothing is changed.
    """
    account_id, state, held = _current(db, attempt)
    event = JobEvent.SETTLE if finished.error is None else JobEvent.FAIL
    return _end(db, LedgerReference(account_id, attempt.request_id, finished.at), step(state, event), held, finished)


def _end(
    db: Connection, reference: LedgerReference, state: JobState, held: int, finished: AttemptResult
) -> StoredRequest:
    # Never more than the hold, even if a restart has changed back ends or prices.
    paid = min(finished.paid, held)
    remaining = money.settle(db, reference, held, paid)
    error = None if finished.error is None else finished.error.replace("\0", "")  # PostgreSQL's text type rejects it
    (row,) = db.execute(
        "UPDATE requests SET state = ?, paid = ?, remaining = ?, result = ?, error = ?, finished_at = ?, "  # noqa: S608 (a constant)
        f"lease_until = NULL WHERE request_id = ? RETURNING {_COLUMNS}",
        (state.value, paid, remaining, finished.result, error, finished.at, reference.request_id),
    )
    db.execute("DELETE FROM uploads WHERE request_id = ?", (reference.request_id,))
    return _stored(row)


def start(
    db: Connection, request_id: str, at: float, *, alone: bool = False
) -> tuple[StoredRequest, tuple[bytes, ...]] | None:
    """Start a new attempt at an acknowledged request; return the request with its uploads.

    Returns None if the request does not exist or has finished. The returned request has failed if it is given up now,
    because it crashes the processes that run it (see `poison`).

    Args:
        db: A transaction.
        request_id: The request.
        at: Seconds since the epoch.
        alone: Whether this process runs nothing else during the attempt.

    Raises:
        IsolationRequired: the request must run alone, and `alone` is false; nothing is changed.
    """
    rows = db.execute(f"{_SELECT} request_id = ? FOR UPDATE", (request_id,))
    if not rows:
        return None
    stored = _stored(rows[0])
    if stored.state in FINISHED:
        return None
    state, record = stored.state, stored.record
    if state is JobState.RUNNING:
        state, record = step(state, JobEvent.INTERRUPT), record.after_crash()
    if record.is_given_up:
        error = f"{REQUEST_FAILED}: the service ended {record.deaths_alone} times while it was doing this alone."
        reference = LedgerReference(stored.account_id, request_id, at)
        return _end(db, reference, step(state, JobEvent.GIVE_UP), stored.hold, AttemptResult(0, None, error, at)), ()
    if record.is_suspect and not alone:
        raise IsolationRequired(
            f"Request {request_id} was running at {record.deaths} crashes of its process: it must run alone."
        )
    (row,) = db.execute(
        "UPDATE requests SET state = ?, attempts = attempts + 1, lease_until = NULL, deaths = ?, deaths_alone = ?, "  # noqa: S608 (likewise)
        f"alone = ? WHERE request_id = ? RETURNING {_COLUMNS}",
        (step(state, JobEvent.START).value, record.deaths, record.deaths_alone, int(alone), request_id),
    )
    contents = db.execute("SELECT content FROM uploads WHERE request_id = ? ORDER BY position", (request_id,))
    return _stored(row), tuple(content for (content,) in contents)


def requeue(db: Connection, attempt: Attempt) -> None:
    """Put a running request back in the queue because its process stops regularly.

    Raises:
        Superseded: the attempt is no longer current.
    """
    _, state, _ = _current(db, attempt)
    db.execute(
        "UPDATE requests SET state = ? WHERE request_id = ?",
        (step(state, JobEvent.INTERRUPT).value, attempt.request_id),
    )


def release_excess_hold(db: Connection, attempt: Attempt, amount: int, at: float) -> None:
    """Release what an earlier attempt held in addition; this attempt holds it again if it needs it.

    Args:
        db: A transaction.
        attempt: The attempt.
        amount: Credits that stay held.
        at: Seconds since the epoch.

    Raises:
        Superseded: the attempt is no longer current.
    """
    account_id, _, held = _current(db, attempt)
    if held > amount:
        db.execute("UPDATE requests SET hold = ? WHERE request_id = ?", (amount, attempt.request_id))
        money.settle(db, LedgerReference(account_id, attempt.request_id, at), held - amount, 0)


def unfinished(db: Connection, *, acknowledged: bool) -> list[str]:
    """Return the ids of unfinished requests, acknowledged ones or the others.

    Those with most crashes come first, because a new process is least likely to crash by chance; then the oldest.
    """
    rows = db.execute(
        "SELECT request_id FROM requests WHERE state IN (?, ?) AND acknowledged = ? ORDER BY deaths DESC, created_at",
        (JobState.QUEUED.value, JobState.RUNNING.value, int(acknowledged)),
    )
    return [request_id for (request_id,) in rows]


def delete_unacknowledged(db: Connection, request_id: str, at: float) -> None:
    """Delete an unfinished request that was not acknowledged: release its hold and its idempotency key.

    Args:
        db: A transaction.
        request_id: The request.
        at: Seconds since the epoch.
    """
    rows = db.execute(
        "SELECT account_id, state, hold, acknowledged FROM requests WHERE request_id = ? FOR UPDATE", (request_id,)
    )
    if rows and not rows[0][3] and JobState(rows[0][1]) not in FINISHED:
        money.settle(db, LedgerReference(rows[0][0], request_id, at), rows[0][2], 0)
        db.execute("DELETE FROM requests WHERE request_id = ?", (request_id,))


def purge(db: Connection, before: float) -> int:
    """Delete requests that finished before a time (seconds since the epoch); return their number.

    Their charges stay in the ledger.
    """
    return len(db.execute("DELETE FROM requests WHERE finished_at < ? RETURNING request_id", (before,)))
