"""A readers-writer lock: requests share it, and a request that may have crashed its process holds it alone.

Shared and exclusive holders alternate, so that no task waits forever. While a task waits for the exclusive lock, new
tasks that want to share the lock must wait. They get the lock before the next task that waits for the exclusive lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class ReadersWriterLock:
    """A fair readers-writer lock for the tasks of one event loop: either several tasks share it, or one has it alone.

    Attributes:
        shared_holders: Number of tasks that now share the lock.
    """

    def __init__(self) -> None:
        self.shared_holders = 0
        # `asyncio.Lock` is first come, first served. At most one exclusive holder waits for the entrance, so shared
        # holders that wait there are before the next one.
        self._exclusive_queue = asyncio.Lock()
        self._entrance = asyncio.Lock()
        self._no_shared_holder = asyncio.Event()
        self._no_shared_holder.set()

    @property
    def is_open(self) -> bool:
        """Whether a task that calls `shared` would get the lock without waiting."""
        return not self._entrance.locked()

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """Wait for the lock, and hold it during the `with` block; other tasks may share it at the same time."""
        async with self._entrance:
            self.shared_holders += 1
            self._no_shared_holder.clear()
        try:
            yield
        finally:
            self.shared_holders -= 1
            if not self.shared_holders:
                self._no_shared_holder.set()

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        """Wait for the lock, and hold it during the `with` block; no other task holds it at the same time."""
        async with self._exclusive_queue, self._entrance:
            await self._no_shared_holder.wait()
            yield
