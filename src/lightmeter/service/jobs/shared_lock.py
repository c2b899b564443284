"""A readers-writer lock: requests share it, and a request that may have crashed its process holds it alone.

Shared and exclusive holders alternate, so that neither side starves: an exclusive holder that waits blocks new shared
holders, and shared holders that wait go before the next exclusive holder.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class SharedExclusiveLock:
    """A fair shared/exclusive (readers-writer) lock for the tasks of one event loop.

    Attributes:
        shared_holders: Number of present shared holders.
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
        """Whether a new shared holder gets the lock at once."""
        return not self._entrance.locked()

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """Hold the lock during the block, together with other shared holders."""
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
        """Hold the lock alone during the block."""
        async with self._exclusive_queue, self._entrance:
            await self._no_shared_holder.wait()
            yield
