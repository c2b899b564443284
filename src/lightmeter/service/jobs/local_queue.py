"""The interface `JobQueue`, and `LocalQueue`, the job queue of a service with an SQLite database.

A service with an SQLite database runs all requests in its own process and locks the database file. So a request that
is in state `running` when the service starts was left by a dead process. `postgres_queue` has the other job queue.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Final

from lightmeter.clock import Clock
from lightmeter.service.analysis.fair_queue import Caller, FairSemaphore
from lightmeter.service.jobs.runner import Runner, finish_or_cancel
from lightmeter.service.store import requests
from lightmeter.service.store.requests import NewRequest
from lightmeter.service.store.sql_dialects import Connection
from lightmeter.service.store.store import Store

REQUESTS_AT_ONCE: Final = 16
"""Requests of one account that a process takes from the job queue and runs at once.

Some fetch their assets while others are analyzed. All accounts together may have twice as many; see `FairSemaphore`.
Their uploads are in memory, and a crash of the process counts as a crash of each of them (see `store.poison`)."""


class JobQueue(ABC):
    """Base class of the job queues, which run the requests whose clients poll for the result.

    Args:
        store: Store of requests.
        runner: Analyzes a request and stores its result, when its turn has come.
        clock: Source of the time.
    """

    def __init__(self, store: Store, runner: Runner, clock: Clock) -> None:
        self._store = store
        self._runner = runner
        self._clock = clock
        runner.metrics.watch_queue_depth("jobs", lambda: sum(self.waiting_requests.values()))

    @property
    @abstractmethod
    def waiting_requests(self) -> Mapping[int, int]:
        """Number of queued requests that do not run yet, by account number; may be a few seconds old."""

    def enqueue(self, db: Connection, new: NewRequest) -> None:  # noqa: B027 (by default, its row is its queue entry)
        """Enqueue a new request whose client polls; `db` is the transaction that stores the request.

        A request whose client waits for the answer is not queued, and is deleted if this process dies before the end.
        """

    def notify_admitted(self, request_id: str, account_id: int) -> None:  # noqa: B027 (by default, the commit notifies the workers)
        """Let the queued request run; called after the transaction of `enqueue` is committed. By default, a no-op."""

    @abstractmethod
    async def open(self) -> None:
        """Start to run queued requests, including unfinished requests of processes that have died."""

    @abstractmethod
    async def drain(self, seconds: float) -> None:
        """Stop starting requests, and wait up to `seconds` for running requests.

        Requests that run longer are cancelled; another process, or this service after a restart, runs them again.
        """


class LocalQueue(JobQueue):
    """Job queue that runs each request as an asyncio task of this process. Accounts take turns."""

    def __init__(self, store: Store, runner: Runner, clock: Clock) -> None:
        super().__init__(store, runner, clock)
        self._tasks: set[asyncio.Task[None]] = set()
        self._running = FairSemaphore(REQUESTS_AT_ONCE)
        self._waiting: Counter[int] = Counter()

    @property
    def waiting_requests(self) -> Mapping[int, int]:
        """Number of queued requests that do not run yet, by account number."""
        return self._waiting.copy()

    def notify_admitted(self, request_id: str, account_id: int) -> None:
        """Start an asyncio task that runs a stored request, whose client polls, when it is the turn of its account."""
        task = asyncio.create_task(self._run(request_id, account_id))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, request_id: str, account_id: int) -> None:
        async with AsyncExitStack() as stack:
            self._waiting[account_id] += 1
            try:
                await stack.enter_async_context(self._running.acquire(Caller(account_id, request_id)))
            finally:
                self._waiting[account_id] -= 1
            await self._runner.run_acknowledged(request_id)

    async def open(self) -> None:
        """Take over unfinished requests of a process that died: run those whose clients poll, delete the others."""
        at = self._clock.now()
        for request_id, account_id in await self._store.write(lambda db: requests.recover(db, at)):
            self.notify_admitted(request_id, account_id)

    async def drain(self, seconds: float) -> None:
        """Wait up to `seconds` for running requests, then cancel them; they run again when the service restarts."""
        await finish_or_cancel(self._tasks, seconds)
