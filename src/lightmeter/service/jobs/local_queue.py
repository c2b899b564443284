"""The interface `JobQueue`, and `LocalQueue`, the job queue of a service with an SQLite database.

A service with an SQLite database runs all requests in its own process and locks the database file. So a request that
is in state `running` when the service starts was left by a dead process, and no lease has to expire. `postgres_queue`
has the queue for PostgreSQL.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from lightmeter.clock import Clock
from lightmeter.service.jobs.runner import Runner
from lightmeter.service.store import requests
from lightmeter.service.store.requests import NewRequest
from lightmeter.service.store.sql_dialects import Connection
from lightmeter.service.store.store import Store

REQUESTS_AT_ONCE: Final = 16
"""Requests that run at once. Their uploads are in memory.

Requests beyond this number wait in the database, so a crash of the process does not make them suspects."""


class JobQueue(Protocol):
    """Job queue of acknowledged requests, with the workers of this process that run them."""

    @property
    def waiting_requests(self) -> int:
        """Number of requests in the queue that are not running; may be a few seconds old."""
        ...

    def enqueue(self, db: Connection, new: NewRequest) -> None:
        """Enqueue a request, in the transaction that admits it.

        An acknowledged request will be run. Another request will be deleted if this process dies before it answers.
        """
        ...

    def notify_admitted(self, request_id: str) -> None:
        """Start to run an acknowledged request, after the commit of the transaction that enqueued it."""
        ...

    async def open(self) -> None:
        """Start to run queued requests, including those that dead processes left."""
        ...

    async def drain(self, seconds: float) -> None:
        """Stop starting requests, and wait for running ones.

        Args:
            seconds: Maximum wait. Requests that run longer are cancelled; a later process runs them again.
        """
        ...


class LocalQueue:
    """Job queue that runs each request as an asyncio task of this process."""

    def __init__(self, store: Store, runner: Runner, clock: Clock) -> None:
        self._store = store
        self._runner = runner
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(REQUESTS_AT_ONCE)
        runner.metrics.watch_queue_depth("jobs", lambda: self.waiting_requests)

    @property
    def waiting_requests(self) -> int:
        """Number of requests that wait until a running one ends."""
        return max(0, len(self._tasks) - REQUESTS_AT_ONCE)

    def enqueue(self, db: Connection, new: NewRequest) -> None:
        """Do nothing: the row in the table `requests` is the queue entry."""

    def notify_admitted(self, request_id: str) -> None:
        """Start a task that runs the request."""
        task = asyncio.create_task(self._run(request_id))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, request_id: str) -> None:
        async with self._slots:
            await self._runner.run_acknowledged(request_id)

    async def open(self) -> None:
        """Delete unfinished requests that were not acknowledged, and run those that were."""
        for request_id in await self._store.read(lambda db: requests.unfinished_ids(db, acknowledged=False)):
            await self._delete(request_id)
        for request_id in await self._store.read(lambda db: requests.unfinished_ids(db, acknowledged=True)):
            self.notify_admitted(request_id)

    async def _delete(self, request_id: str) -> None:
        await self._store.write(lambda db: requests.delete_unacknowledged(db, request_id, self._clock.now()))

    async def drain(self, seconds: float) -> None:
        """Wait up to `seconds` for running requests, then cancel them; the next start runs them again."""
        if self._tasks:
            _, unfinished = await asyncio.wait(self._tasks, timeout=seconds)
            for task in unfinished:
                task.cancel()
            await asyncio.gather(*unfinished, return_exceptions=True)
