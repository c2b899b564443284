"""Limits the bytes of content that concurrent checks hold in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class MemoryLimit:
    """Limit on the sum of bytes that concurrent tasks hold; tasks wait in order of arrival until there is room.

    Args:
        max_bytes: The limit; no single share may be larger.
    """

    def __init__(self, max_bytes: int) -> None:
        self._free_bytes = max_bytes
        self._released = asyncio.Condition()

    @asynccontextmanager
    async def share(self) -> AsyncIterator[MemoryShare]:
        """Yield a share of the memory, at first of 0 bytes; its bytes are free again at the end of the block."""
        share = MemoryShare(self)
        try:
            yield share
        finally:
            await share.release()

    async def take(self, size_bytes: int) -> None:
        """Wait until there is room for `size_bytes`, and take it."""
        async with self._released:
            await self._released.wait_for(lambda: self._free_bytes >= size_bytes)
            self._free_bytes -= size_bytes

    async def give_back(self, size_bytes: int) -> None:
        """Make `size_bytes` free again."""
        async with self._released:
            self._free_bytes += size_bytes
            self._released.notify_all()


class MemoryShare:
    """Part of the memory of a `MemoryLimit` for one content."""

    def __init__(self, limit: MemoryLimit) -> None:
        self._limit = limit
        self.size_bytes = 0

    async def reserve(self, size_bytes: int) -> None:
        """Wait until there is room for `size_bytes`; what was reserved before is released first."""
        await self.release()
        await self._limit.take(size_bytes)
        self.size_bytes = size_bytes

    async def release(self) -> None:
        """Make the reserved bytes free again."""
        size_bytes, self.size_bytes = self.size_bytes, 0
        if size_bytes:
            await self._limit.give_back(size_bytes)
