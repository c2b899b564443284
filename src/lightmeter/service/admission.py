"""Requests in the store: admitted with their hold in one transaction, finished with their charge in another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import apsw
import orjson

from lightmeter.errors import OutOfCredits
from lightmeter.models.request import AnalyzeRequest
from lightmeter.models.vocabulary import INSUFFICIENT_CREDITS, REQUEST_FAILED
from lightmeter.service import credits as money
from lightmeter.service.jobs import JobEvent, JobState, step

__all__ = [
    "Admission",
    "Finished",
    "Stored",
    "acknowledge",
    "admit",
    "find",
    "find_by_key",
    "finish",
    "hold_more",
    "keep_held",
    "purge",
    "recover",
    "start",
]

MOST_ATTEMPTS: Final = 5
"""Restarts may have other causes than the request that was being done, so one or two prove nothing."""


@dataclass(frozen=True, slots=True)
class Admission:
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
    """

    request_id: str
    account_id: int
    request: AnalyzeRequest
    uploads: tuple[bytes, ...]
    hold: int
    at: float
    acknowledged: bool
    idempotency_key: str | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """How a request ended: with a result and a charge, or with an error and none."""

    paid: int
    result: bytes | None
    error: str | None
    at: float


@dataclass(frozen=True, slots=True)
class Stored:
    """A request as the store has it."""

    request_id: str
    account_id: int
    state: JobState
    acknowledged: bool
    request: AnalyzeRequest
    hold: int
    paid: int | None
    remaining: int | None
    result: bytes | None
    error: str | None
    finished_at: float | None


_COLUMNS = "request_id, account_id, state, acknowledged, echo, hold, paid, remaining, result, error, finished_at"


def _stored(row: Sequence[object]) -> Stored:
    request_id, account_id, state, acknowledged, echo, *rest = row
    request = AnalyzeRequest.model_validate(orjson.loads(str(echo)))
    return Stored(request_id, account_id, JobState(str(state)), bool(acknowledged), request, *rest)  # type: ignore[arg-type]


def admit(new: Admission) -> Callable[[apsw.Connection], Stored | None]:
    """Hold the price and write the request down, or return the earlier request of the same idempotency key.

    Raises (from the write):
        OutOfCredits: the account cannot hold it; nothing was written.
    """

    def change(db: apsw.Connection) -> Stored | None:
        if new.idempotency_key is not None:
            earlier = find_by_key(new.account_id, new.idempotency_key)(db)
            if earlier is not None:
                return earlier
        money.hold(new.account_id, new.hold)(db)
        db.execute(
            "INSERT INTO requests (request_id, account_id, state, acknowledged, echo, hold, created_at, attempts, "
            "idempotency_key) VALUES (?, ?, ?, ?, ?, ?, ?, 1, ?)",
            (
                *(new.request_id, new.account_id, JobState.RUNNING, int(new.acknowledged)),
                *(new.request.model_dump_json(exclude={"file"}), new.hold, new.at, new.idempotency_key),
            ),
        )
        if new.acknowledged:  # what is answered at once is not done again by another start
            db.executemany(
                "INSERT INTO uploads VALUES (?, ?, ?)",
                [(new.request_id, position, content) for position, content in enumerate(new.uploads)],
            )
        return None

    return change


def acknowledge(request_id: str) -> Callable[[apsw.Connection], None]:
    """From now on somebody polls for it: it outlives a restart."""

    def change(db: apsw.Connection) -> None:
        db.execute("UPDATE requests SET acknowledged = 1 WHERE request_id = ?", (request_id,))

    return change


def hold_more(request_id: str, account_id: int, amount: int) -> Callable[[apsw.Connection], None]:
    """Set more aside for a request that turned out to be larger than its names said.

    Raises (from the write):
        OutOfCredits: the account cannot hold it; nothing was changed.
    """

    def change(db: apsw.Connection) -> None:
        try:
            money.hold(account_id, amount)(db)
        except OutOfCredits:
            raise OutOfCredits(INSUFFICIENT_CREDITS) from None
        db.execute("UPDATE requests SET hold = hold + ? WHERE request_id = ?", (amount, request_id))

    return change


def keep_held(request_id: str, amount: int) -> Callable[[apsw.Connection], None]:
    """Give back what is held for a request beyond `amount`: it is done from the start, and will ask for it again."""

    def change(db: apsw.Connection) -> None:
        ((account_id, held),) = db.execute("SELECT account_id, hold FROM requests WHERE request_id = ?", (request_id,))
        if held > amount:
            db.execute("UPDATE requests SET hold = ? WHERE request_id = ?", (amount, request_id))
            money.release(account_id, held - amount)(db)

    return change


def find(request_id: str, account_id: int, not_before: float) -> Callable[[apsw.Connection], Stored | None]:
    """A request of this account that has not expired."""

    def look(db: apsw.Connection) -> Stored | None:
        row = db.execute(
            f"SELECT {_COLUMNS} FROM requests WHERE request_id = ? AND account_id = ? "  # noqa: S608 (our own words)
            "AND (finished_at IS NULL OR finished_at >= ?)",
            (request_id, account_id, not_before),
        ).fetchone()
        return None if row is None else _stored(row)

    return look


def find_by_key(account_id: int, idempotency_key: str) -> Callable[[apsw.Connection], Stored | None]:
    """The request this account has sent under this idempotency key."""

    def look(db: apsw.Connection) -> Stored | None:
        row = db.execute(
            f"SELECT {_COLUMNS} FROM requests WHERE account_id = ? AND idempotency_key = ?",  # noqa: S608 (our own words)
            (account_id, idempotency_key),
        ).fetchone()
        return None if row is None else _stored(row)

    return look


def finish(request_id: str, finished: Finished) -> Callable[[apsw.Connection], Stored]:
    """Write down how a request ended, with its charge; a second time raises and changes nothing."""
    event = JobEvent.SETTLE if finished.error is None else JobEvent.FAIL
    return lambda db: _end(db, request_id, event, finished)


def _end(db: apsw.Connection, request_id: str, event: JobEvent, finished: Finished) -> Stored:
    ((account_id, state, held),) = db.execute(
        "SELECT account_id, state, hold FROM requests WHERE request_id = ?", (request_id,)
    )
    after = step(JobState(state), event)
    # Never more than was held, also when a restart in between has brought other back ends or prices.
    paid = min(finished.paid, held)
    remaining = money.settle(account_id, request_id, held, paid, finished.at)(db)
    db.execute(
        "UPDATE requests SET state = ?, paid = ?, remaining = ?, result = ?, error = ?, finished_at = ? "
        "WHERE request_id = ?",
        (after, paid, remaining, finished.result, finished.error, finished.at, request_id),
    )
    db.execute("DELETE FROM uploads WHERE request_id = ?", (request_id,))
    ((*row,),) = db.execute(f"SELECT {_COLUMNS} FROM requests WHERE request_id = ?", (request_id,))  # noqa: S608 (our own words)
    return _stored(row)


def start(request_id: str) -> Callable[[apsw.Connection], tuple[Stored, list[bytes]]]:
    """Take up a queued request again; returns it with its uploads."""

    def change(db: apsw.Connection) -> tuple[Stored, list[bytes]]:
        db.execute(
            "UPDATE requests SET state = ?, attempts = attempts + 1 WHERE request_id = ?",
            (step(JobState.QUEUED, JobEvent.START), request_id),
        )
        ((*row,),) = db.execute(f"SELECT {_COLUMNS} FROM requests WHERE request_id = ?", (request_id,))  # noqa: S608 (our own words)
        contents = db.execute("SELECT content FROM uploads WHERE request_id = ? ORDER BY position", (request_id,))
        return _stored(row), [content for (content,) in contents]

    return change


def recover(at: float) -> Callable[[apsw.Connection], list[str]]:
    """After a restart: what nobody was told of is undone, what was acknowledged is queued; returns the latter.

    A request that has been begun `MOST_ATTEMPTS` times and never ended may be what ends the process: it has failed.
    """

    def change(db: apsw.Connection) -> list[str]:
        _undo_unanswered(db, at)
        interrupted = step(JobState.RUNNING, JobEvent.INTERRUPT)
        db.execute("UPDATE requests SET state = ? WHERE state = ?", (interrupted, JobState.RUNNING))
        waiting = list(
            db.execute(
                "SELECT request_id, attempts FROM requests WHERE state = ? ORDER BY created_at", (JobState.QUEUED,)
            )
        )
        for request_id, attempts in waiting:
            if attempts >= MOST_ATTEMPTS:
                error = f"{REQUEST_FAILED}: the service ended {attempts} times while it was doing this."
                _end(db, request_id, JobEvent.GIVE_UP, Finished(0, None, error, at))
        return [request_id for request_id, attempts in waiting if attempts < MOST_ATTEMPTS]

    return change


def _undo_unanswered(db: apsw.Connection, at: float) -> None:
    abandoned = list(
        db.execute(
            "SELECT request_id, account_id, hold FROM requests WHERE state = ? AND NOT acknowledged",
            (JobState.RUNNING,),
        )
    )
    for request_id, account_id, held in abandoned:
        money.settle(account_id, request_id, held, 0, at)(db)
        db.execute("DELETE FROM requests WHERE request_id = ?", (request_id,))


def purge(before: float) -> Callable[[apsw.Connection], int]:
    """Forget requests that ended before then; their charges stay in the ledger. Returns how many."""

    def change(db: apsw.Connection) -> int:
        db.execute("DELETE FROM requests WHERE finished_at < ?", (before,))
        return db.changes()

    return change
