"""`LocalQueue`, the job queue of a service with an SQLite database.

A service with an SQLite database runs all requests in its own process. A lock keeps other services from the database.
So if a request is in the state `running` when the service starts, the process that ran it has died.

`postgres_queue` has the job queue of services with a PostgreSQL database.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from contextlib import AsyncExitStack

from lightmeter.clock import Clock
from lightmeter.service.analysis.fair_queue import Caller, FairSemaphore
from lightmeter.service.jobs.job_queue import REQUESTS_AT_ONCE, JobQueue
from lightmeter.service.jobs.runner import Runner, finish_or_cancel
from lightmeter.service.store import requests
from lightmeter.service.store.store import Store


class LocalQueue(JobQueue):
    """Job queue that runs each request as an asyncio task of this process. Accounts take turns."""

    def __init__(self, store: Store, runner: Runner, clock: Clock) -> None:
        super().__init__(store, runner, clock)
        self._tasks: set[asyncio.Task[None]] = set()
        self._running = FairSemaphore(REQUESTS_AT_ONCE)
        self._waiting: Counter[int] = Counter()

    @property
    def waiting_requests(self) -> Mapping[int, int]:
        """Account number → number of its queued requests that do not run yet."""
        return self._waiting.copy()

    def start_queued(self, request_id: str, account_id: int) -> None:
        """Start an asyncio task for a stored request whose client polls.

        The task first waits for the turn of the account, and then runs the request.
        """
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
            await self._runner.run_polled(request_id)

    async def open(self) -> None:
        """Take over the unfinished requests of a process that died.

        A request whose client polls runs again. A request whose client waited for the answer is deleted.
        """
        at = self._clock.now()
        for request_id, account_id in await self._store.write(lambda db: requests.recover(db, at)):
            self.start_queued(request_id, account_id)

    async def drain(self, seconds: float) -> None:
        """Wait up to `seconds` for all queued requests to end, then cancel the rest.

        Cancelled requests run again when the service restarts.
        """
        await finish_or_cancel(self._tasks, seconds)
