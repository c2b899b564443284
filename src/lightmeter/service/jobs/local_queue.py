"""Who does acknowledged requests: this process alone, beside its SQLite file. PostgreSQL's queue has its own file.

The file is locked for as long as this process lives, so whatever it finds begun at its start was begun by a process
that is dead: no lease has to run out.
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
"""Taken up at once, with their uploads in memory; others wait on disk, and are no suspects when the process dies."""


class JobQueue(Protocol):
    """Where acknowledged requests wait, and who takes them up."""

    @property
    def waiting(self) -> int:
        """How many requests wait and are not taken up, as far as is known."""
        ...

    def enqueue(self, db: Connection, new: NewRequest) -> None:
        """In the transaction that admits it: make sure that somebody will do it, or will notice when nobody does."""
        ...

    def admitted(self, request_id: str) -> None:
        """After that transaction: an acknowledged request may be taken up."""
        ...

    async def open(self) -> None:
        """Begin to take up requests, those of dead processes too."""
        ...

    async def drain(self, seconds: float) -> None:
        """Take up no more, let what is running finish for so long; what is cut off is done by another process."""
        ...


class LocalQueue:
    """Tasks of this process."""

    def __init__(self, store: Store, runner: Runner, clock: Clock) -> None:
        self._store = store
        self._runner = runner
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(REQUESTS_AT_ONCE)
        runner.metrics.watch_depth("jobs", lambda: self.waiting)

    @property
    def waiting(self) -> int:
        """How many requests wait for one that is being done to end."""
        return max(0, len(self._tasks) - REQUESTS_AT_ONCE)

    def enqueue(self, db: Connection, new: NewRequest) -> None:
        """Nothing to do: the request itself is the entry."""

    def admitted(self, request_id: str) -> None:
        """Take it up."""
        task = asyncio.create_task(self._take_up(request_id))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _take_up(self, request_id: str) -> None:
        async with self._room:
            await self._runner.take_up(request_id)

    async def open(self) -> None:
        """Undo what nobody was told of, take up what was acknowledged."""
        for request_id in await self._store.read(lambda db: requests.unfinished(db, acknowledged=False)):
            await self._undo(request_id)
        for request_id in await self._store.read(lambda db: requests.unfinished(db, acknowledged=True)):
            self.admitted(request_id)

    async def _undo(self, request_id: str) -> None:
        await self._store.write(lambda db: requests.delete_unacknowledged(db, request_id, self._clock.now()))

    async def drain(self, seconds: float) -> None:
        """Let what is running finish for so long; the next start does the rest."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=seconds)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
