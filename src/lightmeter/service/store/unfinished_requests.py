"""Lists and cancels unfinished requests of all accounts, for the operator of the service."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import orjson

from lightmeter.service.store.credits import LedgerReference
from lightmeter.service.store.request_states import JobEvent, JobState, step
from lightmeter.service.store.requests import AttemptResult, store_outcome
from lightmeter.service.store.sql_dialects import Connection
from lightmeter.wire.constants import REQUEST_FAILED

CANCELLED: Final = f"{REQUEST_FAILED}: the operator of the service cancelled it, and nothing was charged."
"""Error text that the client of a cancelled request gets."""

_UNFINISHED: Final = f"r.state IN ('{JobState.QUEUED}', '{JobState.RUNNING}')"


@dataclass(frozen=True, slots=True)
class UnfinishedRequest:
    """A request that is queued or running.

    Attributes:
        request_id: Id of the request.
        account: Name of the account that pays.
        state: Whether the request is queued or running.
        assets: Number of URLs and files of the request.
        held: Credits that are reserved for the request.
        attempts: How many times the request has been started.
        created_at: Time of the request, in seconds since the epoch.
    """

    request_id: str
    account: str
    state: JobState
    assets: int
    held: int
    attempts: int
    created_at: float


def list_unfinished(db: Connection) -> list[UnfinishedRequest]:
    """Return all unfinished requests, the oldest first."""
    rows = db.execute(
        "SELECT r.request_id, a.name, r.state, r.echo, r.hold, r.attempts, r.created_at FROM requests r "  # noqa: S608 (a constant)
        f"JOIN accounts a ON a.account_id = r.account_id WHERE {_UNFINISHED} ORDER BY r.created_at, r.request_id"
    )
    return [
        UnfinishedRequest(request_id, name, JobState(state), _count_assets(echo), *rest)
        for request_id, name, state, echo, *rest in rows
    ]


def _count_assets(echo: str) -> int:
    fields = orjson.loads(echo)
    return len(fields.get("url", ())) + len(fields.get("file_name", ()))


def cancel(db: Connection, request_id: str, at: float) -> bool:
    """Cancel a request, and release its reserved credits. Its client is told that it has failed.

    Return whether it was cancelled: False if the request has already ended or does not exist. If a process is running
    the request, the process stops it when it reads the new state.

    Args:
        db: A transaction.
        request_id: Id of the request.
        at: Time of the cancellation, in seconds since the epoch.
    """
    rows = db.execute(
        f"SELECT r.account_id, r.state, r.hold FROM requests r WHERE r.request_id = ? AND {_UNFINISHED} FOR UPDATE",  # noqa: S608 (likewise)
        (request_id,),
    )
    for account_id, state, held in rows:
        cancelled = step(JobState(state), JobEvent.CANCEL)
        reference = LedgerReference(account_id, request_id, at)
        store_outcome(db, reference, cancelled, held, AttemptResult(0, None, CANCELLED, at))
    return bool(rows)


def find_cancelled(db: Connection, request_ids: Collection[str]) -> list[str]:
    """Return those of `request_ids` whose requests the operator has cancelled."""
    marks = ", ".join("?" * len(request_ids))
    rows = db.execute(
        f"SELECT request_id FROM requests WHERE state = ? AND request_id IN ({marks})",  # noqa: S608 (placeholders)
        (JobState.CANCELLED.value, *request_ids),
    )
    return [request_id for (request_id,) in rows]
