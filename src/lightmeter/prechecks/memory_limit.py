"""Limits the bytes of content that concurrent checks hold in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class MemoryLimit:
    """Limit on the bytes that concurrent tasks hold together; a task waits until there is room for what it needs.

    Args:
        max_bytes: The limit. No task may ask for more: it would wait forever.
    """

    def __init__(self, max_bytes: int) -> None:
        self._free_bytes = max_bytes
        self._released = asyncio.Condition()

    @asynccontextmanager
    async def reservation(self) -> AsyncIterator[MemoryReservation]:
        """Yield a reservation of 0 bytes, which the caller can change; the end of the `with` block releases it."""
        reservation = MemoryReservation(self)
        try:
            yield reservation
        finally:
            await reservation.release()

    async def take(self, size_bytes: int) -> None:
        """Wait until `size_bytes` are free, then count them as in use."""
        async with self._released:
            await self._released.wait_for(lambda: self._free_bytes >= size_bytes)
            self._free_bytes -= size_bytes

    async def give_back(self, size_bytes: int) -> None:
        """Count `size_bytes` as free again, and wake the tasks that wait for memory."""
        async with self._released:
            self._free_bytes += size_bytes
            self._released.notify_all()


class MemoryReservation:
    """Bytes of a `MemoryLimit` that one task has reserved, for example for one downloaded image."""

    def __init__(self, limit: MemoryLimit) -> None:
        self._limit = limit
        self.size_bytes = 0

    async def reserve(self, size_bytes: int) -> None:
        """Release the bytes reserved before, wait until `size_bytes` are free, and reserve these."""
        await self.release()
        await self._limit.take(size_bytes)
        self.size_bytes = size_bytes

    async def release(self) -> None:
        """Release the reserved bytes, so that other tasks can have them."""
        size_bytes, self.size_bytes = self.size_bytes, 0
        if size_bytes:
            await self._limit.give_back(size_bytes)
