"""Requests in the store: admitted with their hold in one transaction, finished with their charge in another.

An attempt has a number. It is the fencing token: more is held and the end is written only by the attempt whose number
the request still bears, so a process that was presumed dead, and was not, cannot charge a second time.
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
    "find",
    "finish",
    "hold_more",
    "purge",
    "release_excess_hold",
    "requeue",
    "start",
    "undo",
    "unfinished",
]


class Superseded(LightmeterError):
    """This attempt is no longer the one that counts: another process has taken the request over, or undone it."""


class IsolationRequired(LightmeterError):
    """This request was in work at several deaths of its process: it is done alone, or not now."""


@dataclass(frozen=True, slots=True)
class NewRequest:
    """A request that may be done: who asks, what, and what is held for it.

    Attributes:
        request_id: Its public name.
        account_id: Who pays.
        request: What is asked; uploads are in `uploads`, its own `file` is empty.
        uploads: Contents, already decoded.
        hold: Credits set aside.
        at: When, in seconds since the epoch.
        acknowledged: Whether it is answered by polling.
        idempotency_key: The client's own name for it, if any.
        echo: What is asked, as JSON, without contents; made of the request.
        digest: SHA-256 of all that is asked: the same for the same request, however its contents were encoded.
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
        """Read off what is written down.

        Args:
            digests: SHA-256 of each upload.
        """
        object.__setattr__(self, "echo", self.request.model_dump_json(exclude={"file"}))
        words = hashlib.sha256(self.echo.encode()).digest()
        object.__setattr__(self, "digest", hashlib.sha256(b"".join((words, *digests))).digest())


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try at a request: its number is the fencing token."""

    request_id: str
    number: int


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """How a request ended: with a result and a charge, or with an error and none."""

    paid: int
    result: bytes | None
    error: str | None
    at: float


@dataclass(frozen=True, slots=True)
class StoredRequest:
    """A request as the store has it."""

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

    def asks_the_same(self, new: NewRequest) -> bool:
        """Whether a new request is this one once more; versions that kept no digest had its words without contents."""
        return self.digest == new.digest if self.digest else self.request == new.request.model_copy(update={"file": []})

    @property
    def request(self) -> AnalyzeRequest:
        """What was asked, without contents."""
        return AnalyzeRequest.model_validate_json(self.echo)

    @property
    def attempt(self) -> Attempt:
        """The attempt that counts."""
        return Attempt(self.request_id, self.attempts)


_COLUMNS: Final = (
    "request_id, account_id, state, acknowledged, attempts, digest, echo, hold, paid, remaining, result, error, "
    "finished_at, deaths, deaths_alone, alone"
)
_SELECT: Final = f"SELECT {_COLUMNS} FROM requests WHERE "  # noqa: S608 (our own words; values travel apart)


def _stored(row: Sequence[object]) -> StoredRequest:
    request_id, account_id, state, acknowledged, attempts, digest, echo, *rest, deaths, deaths_alone, alone = row
    record = CrashRecord(int(str(deaths)), int(str(deaths_alone)), bool(alone))
    known = (request_id, account_id, JobState(str(state)), bool(acknowledged), attempts, digest, echo)
    return StoredRequest(*known, *rest, record)  # type: ignore[call-arg, arg-type]


def admit(db: Connection, new: NewRequest, enqueue: Callable[[Connection, NewRequest], None]) -> StoredRequest | None:
    """Hold the price, write the request down and enqueue it for work, or return the earlier one of its idempotency key.

    What is acknowledged waits for whoever takes it up; what is answered at once has begun.

    Raises:
        OutOfCredits: the account cannot hold it; the transaction must not be kept.
    """
    state, attempts = (JobState.QUEUED, 0) if new.acknowledged else (JobState.RUNNING, 1)
    # The row first: of two requests with one idempotency key the second waits here until the first is decided.
    made = db.execute(
        "INSERT INTO requests (request_id, account_id, state, acknowledged, echo, digest, hold, attempts, created_at, "
        "idempotency_key) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (account_id, idempotency_key) DO NOTHING "
        "RETURNING request_id",
        (
            *(new.request_id, new.account_id, state.value, int(new.acknowledged), new.echo, new.digest),
            *(new.hold, attempts, new.at, new.idempotency_key),
        ),
    )
    if not made:
        rows = db.execute(f"{_SELECT} account_id = ? AND idempotency_key = ?", (new.account_id, new.idempotency_key))
        return _stored(rows[0])
    money.hold(db, LedgerReference(new.account_id, new.request_id, new.at), new.hold)
    if new.acknowledged or new.idempotency_key is not None:  # other requests are not begun a second time
        db.executemany(
            "INSERT INTO uploads (request_id, position, content) VALUES (?, ?, ?)",
            [(new.request_id, position, content) for position, content in enumerate(new.uploads)],
        )
    enqueue(db, new)
    return None


def acknowledge(db: Connection, request_id: str) -> bool:
    """From now on somebody polls for it: it outlives its process. False if it is gone already."""
    sql = "UPDATE requests SET acknowledged = 1 WHERE request_id = ? RETURNING request_id"
    return bool(db.execute(sql, (request_id,)))


def _current(db: Connection, attempt: Attempt) -> tuple[int, JobState, int]:
    """Account, state and hold of a request whose attempt still counts; its row is locked until the transaction ends."""
    rows = db.execute(
        "SELECT account_id, state, hold, attempts FROM requests WHERE request_id = ? FOR UPDATE", (attempt.request_id,)
    )
    if not rows or rows[0][3] != attempt.number or JobState(rows[0][1]) is not JobState.RUNNING:
        raise Superseded(f"Attempt {attempt.number} at request {attempt.request_id} no longer counts.")
    return rows[0][0], JobState(rows[0][1]), rows[0][2]


def hold_more(db: Connection, attempt: Attempt, amount: int, at: float) -> None:
    """Set more aside for a request that turned out to be larger than its names said.

    Raises:
        OutOfCredits: the account cannot hold it.
        Superseded: the attempt no longer counts.
    """
    account_id, _, _ = _current(db, attempt)
    try:
        money.hold(db, LedgerReference(account_id, attempt.request_id, at), amount)
    except OutOfCredits:
        raise OutOfCredits(INSUFFICIENT_CREDITS) from None
    db.execute("UPDATE requests SET hold = hold + ? WHERE request_id = ?", (amount, attempt.request_id))


def find(db: Connection, request_id: str, account_id: int, not_before: float) -> StoredRequest | None:
    """A request of this account that has not expired."""
    rows = db.execute(
        f"{_SELECT} request_id = ? AND account_id = ? AND (finished_at IS NULL OR finished_at >= ?)",
        (request_id, account_id, not_before),
    )
    return _stored(rows[0]) if rows else None


def finish(db: Connection, attempt: Attempt, finished: AttemptResult) -> StoredRequest:
    """Write down how an attempt ended, with its charge.

    Raises:
        Superseded: the attempt no longer counts; nothing is changed.
    """
    account_id, state, held = _current(db, attempt)
    event = JobEvent.SETTLE if finished.error is None else JobEvent.FAIL
    return _end(db, LedgerReference(account_id, attempt.request_id, finished.at), step(state, event), held, finished)


def _end(db: Connection, cause: LedgerReference, state: JobState, held: int, finished: AttemptResult) -> StoredRequest:
    # Never more than was held, also when a restart in between has brought other back ends or prices.
    paid = min(finished.paid, held)
    remaining = money.settle(db, cause, held, paid)
    error = None if finished.error is None else finished.error.replace("\0", "")  # PostgreSQL's text holds none
    (ended,) = db.execute(
        "UPDATE requests SET state = ?, paid = ?, remaining = ?, result = ?, error = ?, finished_at = ?, "  # noqa: S608 (our own words)
        f"lease_until = NULL WHERE request_id = ? RETURNING {_COLUMNS}",
        (state.value, paid, remaining, finished.result, error, finished.at, cause.request_id),
    )
    db.execute("DELETE FROM uploads WHERE request_id = ?", (cause.request_id,))
    return _stored(ended)


def start(
    db: Connection, request_id: str, at: float, *, alone: bool = False
) -> tuple[StoredRequest, tuple[bytes, ...]] | None:
    """Begin another attempt at an acknowledged request, whatever became of the last; returns it with its uploads.

    None if there is nothing left to do. It has failed if it is given up now, because it ends each process that does it
    (see `suspicion`).

    Args:
        db: A transaction.
        request_id: Which.
        at: When.
        alone: Whether nothing else is in work in this process as long as it lasts.

    Raises:
        Suspected: it is done alone or not at all, and this would not be; nothing is changed.
    """
    rows = db.execute(f"{_SELECT} request_id = ? FOR UPDATE", (request_id,))
    if not rows:
        return None
    stored = _stored(rows[0])
    if stored.state in FINISHED:
        return None
    state, record = stored.state, stored.record
    if state is JobState.RUNNING:
        state, record = step(state, JobEvent.INTERRUPT), record.died()
    if record.is_given_up:
        error = f"{REQUEST_FAILED}: the service ended {record.deaths_alone} times while it was doing this alone."
        cause = LedgerReference(stored.account_id, request_id, at)
        return _end(db, cause, step(state, JobEvent.GIVE_UP), stored.hold, AttemptResult(0, None, error, at)), ()
    if record.is_suspect and not alone:
        raise IsolationRequired(
            f"Request {request_id} was in work at {record.deaths} deaths of its process: it is done alone."
        )
    (begun,) = db.execute(
        "UPDATE requests SET state = ?, attempts = attempts + 1, lease_until = NULL, deaths = ?, deaths_alone = ?, "  # noqa: S608 (likewise)
        f"alone = ? WHERE request_id = ? RETURNING {_COLUMNS}",
        (step(state, JobEvent.START).value, record.deaths, record.deaths_alone, int(alone), request_id),
    )
    contents = db.execute("SELECT content FROM uploads WHERE request_id = ? ORDER BY position", (request_id,))
    return _stored(begun), tuple(content for (content,) in contents)


def requeue(db: Connection, attempt: Attempt) -> None:
    """Stop an attempt in good order: the process ends, and the request has no part in that.

    Raises:
        Superseded: the attempt no longer counts.
    """
    _, state, _ = _current(db, attempt)
    db.execute(
        "UPDATE requests SET state = ? WHERE request_id = ?",
        (step(state, JobEvent.INTERRUPT).value, attempt.request_id),
    )


def release_excess_hold(db: Connection, attempt: Attempt, amount: int, at: float) -> None:
    """Give back what is held beyond `amount`: an earlier attempt asked for more, and this one will ask for it again.

    Raises:
        Superseded: the attempt no longer counts.
    """
    account_id, _, held = _current(db, attempt)
    if held > amount:
        db.execute("UPDATE requests SET hold = ? WHERE request_id = ?", (amount, attempt.request_id))
        money.settle(db, LedgerReference(account_id, attempt.request_id, at), held - amount, 0)


def unfinished(db: Connection, *, acknowledged: bool) -> list[str]:
    """Requests that have not ended: those somebody polls for, or those nobody was told of.

    Those that were in work at most deaths come first, because a young process is least likely to die by chance; of
    the others the oldest.
    """
    rows = db.execute(
        "SELECT request_id FROM requests WHERE state IN (?, ?) AND acknowledged = ? ORDER BY deaths DESC, created_at",
        (JobState.QUEUED.value, JobState.RUNNING.value, int(acknowledged)),
    )
    return [request_id for (request_id,) in rows]


def undo(db: Connection, request_id: str, at: float) -> None:
    """Take back a request nobody was told of: what is held is given back, and its idempotency key is free again."""
    rows = db.execute(
        "SELECT account_id, state, hold, acknowledged FROM requests WHERE request_id = ? FOR UPDATE", (request_id,)
    )
    if rows and not rows[0][3] and JobState(rows[0][1]) not in FINISHED:
        money.settle(db, LedgerReference(rows[0][0], request_id, at), rows[0][2], 0)
        db.execute("DELETE FROM requests WHERE request_id = ?", (request_id,))


def purge(db: Connection, before: float) -> int:
    """Forget requests that ended before then; their charges stay in the ledger. Returns how many."""
    return len(db.execute("DELETE FROM requests WHERE finished_at < ? RETURNING request_id", (before,)))
