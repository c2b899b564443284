"""Requests in the service's database: functions that store, start, finish and delete them.

One transaction stores a request and reserves ("holds") its price. A later one stores the result and charges the price.

After a crash, a request runs again. Each attempt to run it has a number, and only the latest attempt may reserve more
credits or finish the request. So if a process was only slow, but seemed to be dead, a request is not charged twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
    """An attempt must not change its request any more: the request was started again, has ended, or was deleted."""


class IsolationRequired(LightmeterError):
    """Processes crashed while they ran the request, so it may run only in a process that runs no other request."""


@dataclass(frozen=True, slots=True)
class NewRequest:
    """A validated request, with the values that `admit` stores.

    Attributes:
        request_id: Id of the request in answers: 32 hexadecimal digits.
        account_id: Number of the account that pays.
        echo: The `AnalyzeRequest` as JSON, without its field `file`.
        digest: SHA-256 over `echo` and `uploads`, to recognize a repeated request.
        uploads: Decoded contents of uploaded files.
        hold: Credits to reserve when the request is stored.
        at: Time when the service received the request, in seconds since the epoch.
        client_polls: True: the client gets the request id and polls for the result. False: it waits for the result.
        idempotency_key: The client's idempotency key; None: the client sent no key.
    """

    request_id: str
    account_id: int
    echo: str
    digest: bytes
    uploads: tuple[bytes, ...]
    hold: int
    at: float
    client_polls: bool
    idempotency_key: str | None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt to run the request `request_id`. `number` is 1 for the first attempt; after a crash, it is higher."""

    request_id: str
    number: int


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """Outcome of an attempt to run a request.

    Attributes:
        charge: Credits to charge.
        results_json: The object `all` of the answer, as JSON; None: the request failed.
        error: Error text for the client; None: the request succeeded.
        at: Time when the attempt ended, in seconds since the epoch.
    """

    charge: int
    results_json: bytes | None
    error: str | None
    at: float


@dataclass(frozen=True, slots=True)
class StoredRequest:
    """A request in the database: a row of the table `requests`.

    Attributes:
        request_id: Id of the request in answers.
        account_id: Number of the account that pays.
        state: Whether the request is queued, running, completed, failed or cancelled.
        client_polls: Whether the client polls for the result.
        attempts: Number of attempts to run the request so far.
        digest: SHA-256 of the request and its uploads; empty if the request was stored with schema version 1.
        echo: The request as JSON without uploads.
        hold: Credits that are or were reserved for the request.
        paid: Credits charged; None until the request has ended.
        remaining: Free credits of the account after the charge; None until the request has ended.
        result: The object `all` of the answer, as JSON; None unless the request has completed.
        error: Error text for the client; None unless the request has failed or was cancelled.
        crashes: Number of crashes of processes that ran the request.
    """

    request_id: str
    account_id: int
    state: JobState
    client_polls: bool
    attempts: int
    digest: bytes
    echo: str
    hold: int
    paid: int | None
    remaining: int | None
    result: bytes | None
    error: str | None
    crashes: CrashRecord

    def is_same_request(self, new: NewRequest) -> bool:
        """Return whether a new request has the same parameters and uploads as this stored request.

        If this request was stored with schema version 1, it has no digest of its uploads, so they are not compared.
        """
        return (
            self.digest == new.digest if self.digest else self.request == AnalyzeRequest.model_validate_json(new.echo)
        )

    @property
    def request(self) -> AnalyzeRequest:
        """The parameters of the request, without uploads."""
        return AnalyzeRequest.model_validate_json(self.echo)

    @property
    def attempt(self) -> Attempt:
        """The latest attempt to run the request."""
        return Attempt(self.request_id, self.attempts)


_COLUMNS: Final = (
    "request_id, account_id, state, acknowledged, attempts, digest, echo, hold, paid, remaining, result, error, "
    "deaths, deaths_alone, alone"
)
_SELECT: Final = f"SELECT {_COLUMNS} FROM requests WHERE "  # noqa: S608 (a constant; values are parameters)


def _parse_row(row: Sequence[object]) -> StoredRequest:
    request_id, account_id, state, client_polls, attempts, digest, echo, *rest, deaths, deaths_alone, alone = row
    crashes = CrashRecord(int(str(deaths)), int(str(deaths_alone)), bool(alone))
    head = (request_id, account_id, JobState(str(state)), bool(client_polls), attempts, digest, echo)
    return StoredRequest(*head, *rest, crashes)  # type: ignore[call-arg, arg-type]


def admit(db: Connection, new: NewRequest, enqueue: Callable[[Connection, NewRequest], None]) -> StoredRequest | None:
    """Store a request, reserve its price, and enqueue it; then return None.

    If the account has an earlier request with the same idempotency key, store nothing and return the earlier request.

    Args:
        db: A transaction.
        new: The request.
        enqueue: Function that adds the request to the job queue in the same transaction.

    Raises:
        OutOfCredits: the account has too few credits; the transaction must be rolled back.
    """
    state, attempts = (JobState.QUEUED, 0) if new.client_polls else (JobState.RUNNING, 1)
    # Insert first: of two requests with the same idempotency key, the second waits here for the commit of the first.
    inserted = db.execute(
        "INSERT INTO requests (request_id, account_id, state, acknowledged, echo, digest, hold, attempts, created_at, "
        "idempotency_key) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (account_id, idempotency_key) DO NOTHING "
        "RETURNING request_id",
        (
            *(new.request_id, new.account_id, state.value, int(new.client_polls), new.echo, new.digest),
            *(new.hold, attempts, new.at, new.idempotency_key),
        ),
    )
    if not inserted:
        rows = db.execute(f"{_SELECT} account_id = ? AND idempotency_key = ?", (new.account_id, new.idempotency_key))
        return _parse_row(rows[0])
    money.hold(db, LedgerReference(new.account_id, new.request_id, new.at), new.hold)
    if new.client_polls or new.idempotency_key is not None:  # other requests are never started again
        _store_uploads(db, new.request_id, new.uploads)
    enqueue(db, new)
    return None


def _store_uploads(db: Connection, request_id: str, uploads: Sequence[bytes]) -> None:
    db.executemany(
        "INSERT INTO uploads (request_id, position, content) VALUES (?, ?, ?)",
        [(request_id, position, content) for position, content in enumerate(uploads)],
    )


def acknowledge(db: Connection, request_id: str, uploads: Sequence[bytes] = ()) -> bool:
    """Record that a request's client polls, so that it runs again after a crash; return whether the request exists.

    `uploads` are the contents of its uploaded files, if `admit` has not stored them.
    """
    rows = db.execute("UPDATE requests SET acknowledged = 1 WHERE request_id = ? RETURNING state", (request_id,))
    if rows and JobState(rows[0][0]) not in FINISHED:
        _store_uploads(db, request_id, uploads)
    return bool(rows)


def lock_current_attempt(db: Connection, attempt: Attempt) -> tuple[int, int]:
    """Lock the database row of a running request; return its account number and its reserved credits.

    Raises:
        Superseded: another attempt has started, or the request is not running.
    """
    rows = db.execute(
        "SELECT account_id, hold FROM requests WHERE request_id = ? AND attempts = ? AND state = ? FOR UPDATE",
        (attempt.request_id, attempt.number, JobState.RUNNING.value),
    )
    if not rows:
        raise Superseded(f"Attempt {attempt.number} at request {attempt.request_id} is no longer current.")
    account_id, held = rows[0]
    return account_id, held


def raise_hold(db: Connection, attempt: Attempt, total: int, at: float) -> None:
    """Reserve more credits for a request whose videos cost more than expected.

    Args:
        db: A transaction.
        attempt: The attempt that needs the credits.
        total: Credits to reserve for the request in all. If they are reserved already, nothing changes.
        at: Time of the reservation, in seconds since the epoch.

    Raises:
        OutOfCredits: the account has too few credits.
        Superseded: another attempt has started, or the request is not running.
    """
    account_id, held = lock_current_attempt(db, attempt)
    try:
        if held < total:
            money.hold(db, LedgerReference(account_id, attempt.request_id, at), total - held)
    except OutOfCredits:
        raise OutOfCredits(INSUFFICIENT_CREDITS) from None
    db.execute("UPDATE requests SET hold = ? WHERE request_id = ?", (max(held, total), attempt.request_id))


def find(db: Connection, request_id: str, account_id: int, not_before: float) -> StoredRequest | None:
    """Return a stored request of an account; None if the request does not exist or its result has expired.

    Args:
        db: A transaction.
        request_id: Id of the request.
        account_id: Number of the account.
        not_before: Results of requests that finished before this time, in seconds since the epoch, have expired.
    """
    rows = db.execute(
        f"{_SELECT} request_id = ? AND account_id = ? AND (finished_at IS NULL OR finished_at >= ?)",
        (request_id, account_id, not_before),
    )
    return _parse_row(rows[0]) if rows else None


def finish(db: Connection, attempt: Attempt, outcome: AttemptResult) -> StoredRequest:
    """Store the result of an attempt, charge its price, and release the other reserved credits.

    Return the finished request.

    Raises:
        Superseded: another attempt has started, or the request is not running; nothing is changed.
    """
    account_id, held = lock_current_attempt(db, attempt)
    state = step(JobState.RUNNING, JobEvent.COMPLETE if outcome.error is None else JobEvent.FAIL)
    return store_outcome(db, LedgerReference(account_id, attempt.request_id, outcome.at), state, held, outcome)


def store_outcome(
    db: Connection, reference: LedgerReference, state: JobState, held: int, outcome: AttemptResult
) -> StoredRequest:
    """Store the outcome of a request whose database row is locked, and charge its price; return the request.

    Args:
        db: A transaction.
        reference: The account, the request and the time of the outcome.
        state: The state that the request enters.
        held: Credits that are reserved for the request.
        outcome: Result, error and charge. If the charge is more than `held`, only `held` credits are charged.
    """
    # A restart may have changed back ends or prices, but the charge must not exceed the held credits.
    paid = min(outcome.charge, held)
    remaining = money.charge_held(db, reference, held, paid)
    error = None if outcome.error is None else outcome.error.replace("\0", "")  # PostgreSQL's text type rejects it
    (row,) = db.execute(
        "UPDATE requests SET state = ?, paid = ?, remaining = ?, result = ?, error = ?, finished_at = ?, "  # noqa: S608 (a constant)
        f"lease_until = NULL WHERE request_id = ? RETURNING {_COLUMNS}",
        (state.value, paid, remaining, outcome.results_json, error, outcome.at, reference.request_id),
    )
    db.execute("DELETE FROM uploads WHERE request_id = ?", (reference.request_id,))
    return _parse_row(row)


def start(
    db: Connection, request_id: str, at: float, *, alone: bool = False
) -> tuple[StoredRequest, tuple[bytes, ...]] | None:
    """Start a new attempt to run a request whose client polls; return the request with its uploads.

    Return None if the request does not exist or has finished. If processes crashed `FAIL_AFTER_CRASHES_ALONE` times
    while they ran only this request, store that it failed, and return the failed request without uploads.

    Args:
        db: A transaction.
        request_id: Id of the request.
        at: Time that is stored if the request has failed, in seconds since the epoch.
        alone: Whether this process runs no other request at the same time.

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
    if crashes.must_fail:
        error = f"{REQUEST_FAILED}: the service ended {crashes.crashes_alone} times while it was doing this alone."
        reference = LedgerReference(stored.account_id, request_id, at)
        outcome = AttemptResult(0, None, error, at)
        return store_outcome(db, reference, step(state, JobEvent.GIVE_UP), stored.hold, outcome), ()
    if crashes.must_run_alone and not alone:
        raise IsolationRequired(
            f"Request {request_id} was running at {crashes.crashes_shared} crashes of its process: it must run alone."
        )
    (row,) = db.execute(
        "UPDATE requests SET state = ?, attempts = attempts + 1, lease_until = NULL, deaths = ?, deaths_alone = ?, "  # noqa: S608 (likewise)
        f"alone = ? WHERE request_id = ? RETURNING {_COLUMNS}",
        (step(state, JobEvent.START).value, crashes.crashes_shared, crashes.crashes_alone, int(alone), request_id),
    )
    contents = db.execute("SELECT content FROM uploads WHERE request_id = ? ORDER BY position", (request_id,))
    return _parse_row(row), tuple(content for (content,) in contents)


def requeue(db: Connection, attempt: Attempt) -> None:
    """Set the state of a running request to `queued` again, because its process shuts down.

    Raises:
        Superseded: another attempt has started, or the request is not running.
    """
    lock_current_attempt(db, attempt)
    queued, request_id = step(JobState.RUNNING, JobEvent.INTERRUPT).value, attempt.request_id
    db.execute("UPDATE requests SET state = ?, lease_until = NULL WHERE request_id = ?", (queued, request_id))


def recover(db: Connection, at: float) -> list[tuple[str, int]]:
    """Take over unfinished requests; return (request id, account number) of each request that must run again.

    Call this before any request runs, because all unfinished requests count as requests of a process that ended. Those
    whose clients poll must run again. Those whose clients waited for the answer are deleted, and their credits are
    released. `at` is the time of the release, in seconds since the epoch.

    The result is sorted by the number of crashes while the request ran together with others, the highest first; among
    equal ones, the oldest request comes first.
    """
    rows = db.execute(
        "SELECT request_id, account_id, acknowledged FROM requests WHERE state IN (?, ?) "
        "ORDER BY deaths DESC, created_at",
        (JobState.QUEUED.value, JobState.RUNNING.value),
    )
    for request_id, _, client_polls in rows:
        if not client_polls:
            delete_unless_polled(db, request_id, at)
    return [(request_id, account_id) for request_id, account_id, client_polls in rows if client_polls]


def delete_unless_polled(db: Connection, request_id: str, at: float) -> None:
    """Delete an unfinished request, with its hold and idempotency key, unless its client was told to poll for it.

    Args:
        db: A transaction.
        request_id: Id of the request.
        at: Time of the release, in seconds since the epoch.
    """
    rows = db.execute(
        "SELECT account_id, state, hold, acknowledged FROM requests WHERE request_id = ? FOR UPDATE", (request_id,)
    )
    if rows and not rows[0][3] and JobState(rows[0][1]) not in FINISHED:
        money.charge_held(db, LedgerReference(rows[0][0], request_id, at), rows[0][2], 0)
        db.execute("DELETE FROM requests WHERE request_id = ?", (request_id,))


def purge(db: Connection, before: float) -> None:
    """Delete requests that ended before the time `before` (seconds since the epoch). The ledger keeps their charges."""
    db.execute("DELETE FROM requests WHERE finished_at < ?", (before,))
