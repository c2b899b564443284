"""The interface of job queues, and the queue of a service with an SQLite file, which runs all requests itself.

The process locks its SQLite file, so a request that it finds running at its start was left by a process that is dead:
no lease has to expire. `postgres_queue` has the queue for PostgreSQL.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from lightmeter.clock import Clock
from lightmeter.service.jobs.runner import Runner
from lightmeter.service.store import requests
from lightmeter.service.store.database import Connection
from lightmeter.service.store.requests import NewRequest
from lightmeter.service.store.store import Store

__all__ = ["JobQueue", "LocalQueue"]


REQUESTS_AT_ONCE: Final = 16
"""Requests that run at once, with their uploads in memory. A crash does not make those suspects that wait on disk."""


class JobQueue(Protocol):
    """A queue of acknowledged requests, and the workers of this process that run them."""

    @property
    def waiting(self) -> int:
        """Number of requests that wait, as far as is known."""
        ...

    def enqueue(self, db: Connection, new: NewRequest) -> None:
        """In the transaction that admits a request, ensure that it will be run, or undone when its process dies."""
        ...

    def admitted(self, request_id: str) -> None:
        """After that transaction, allow an acknowledged request to be run."""
        ...

    async def open(self) -> None:
        """Start to run requests, including those of dead processes."""
        ...

    async def drain(self, seconds: float) -> None:
        """Start no more requests, and let running ones finish for some seconds; another process runs the rest."""
        ...


class LocalQueue:
    """A queue of tasks in this process."""

    def __init__(self, store: Store, runner: Runner, clock: Clock) -> None:
        self._store = store
        self._runner = runner
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(REQUESTS_AT_ONCE)
        runner.metrics.watch_depth("jobs", lambda: self.waiting)

    @property
    def waiting(self) -> int:
        """Number of requests that wait for a running one to end."""
        return max(0, len(self._tasks) - REQUESTS_AT_ONCE)

    def enqueue(self, db: Connection, new: NewRequest) -> None:
        """Do nothing: the row of the request is its queue entry."""

    def admitted(self, request_id: str) -> None:
        """Start a task that runs the request."""
        task = asyncio.create_task(self._run(request_id))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, request_id: str) -> None:
        async with self._slots:
            await self._runner.run_acknowledged(request_id)

    async def open(self) -> None:
        """Undo unfinished requests that were not acknowledged, and run those that were."""
        for request_id in await self._store.read(lambda db: requests.unfinished(db, acknowledged=False)):
            await self._undo(request_id)
        for request_id in await self._store.read(lambda db: requests.unfinished(db, acknowledged=True)):
            self.admitted(request_id)

    async def _undo(self, request_id: str) -> None:
        await self._store.write(lambda db: requests.delete_unacknowledged(db, request_id, self._clock.now()))

    async def drain(self, seconds: float) -> None:
        """Let running requests finish for some seconds; the next start runs the rest."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=seconds)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
