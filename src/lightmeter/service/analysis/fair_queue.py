"""A queue and a semaphore that serve callers in turn, so that a small request does not wait for all of a large one.

Each caller, which any hashable key identifies, has a FIFO queue.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

T = TypeVar("T")


class RoundRobinQueue(Generic[T]):
    """Queue with a FIFO queue for each caller; `pop` takes one item from each caller in turn."""

    def __init__(self) -> None:
        self._queues: dict[Hashable, deque[T]] = {}  # the next caller comes first
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def add(self, caller: Hashable, item: T) -> None:
        """Append an item to the queue of `caller`; a new caller comes after all others."""
        self._queues.setdefault(caller, deque()).append(item)
        self._length += 1

    def pop(self) -> T:
        """Remove and return the first item of the next caller.

        Raises:
            IndexError: the queue is empty.
        """
        if not self._queues:
            raise IndexError("the queue is empty")
        caller = next(iter(self._queues))
        queue = self._queues.pop(caller)
        item = queue.popleft()
        if queue:
            self._queues[caller] = queue  # appended: this caller comes last
        self._length -= 1
        return item

    def pop_batch(self, max_items: int, batch_key: Callable[[T], Hashable]) -> list[T]:
        """Remove and return up to `max_items` items in the order of `pop`, while `batch_key` equals that of the first.

        Raises:
            IndexError: the queue is empty.
        """
        batch = [self.pop()]
        key = batch_key(batch[0])
        while len(batch) < max_items and self._queues and batch_key(next(iter(self._queues.values()))[0]) == key:
            batch.append(self.pop())
        return batch


class FairSemaphore:
    """Semaphore that serves callers in turn.

    Args:
        permits: How many blocks may run at once, 1 or more.
    """

    def __init__(self, permits: int) -> None:
        self._free = permits
        self._waiting: RoundRobinQueue[asyncio.Future[None]] = RoundRobinQueue()

    @asynccontextmanager
    async def acquire(self, caller: Hashable) -> AsyncIterator[None]:
        """Wait for one of the permits, and return it at the end of the block."""
        await self._acquire(caller)
        try:
            yield
        finally:
            self._release()

    async def _acquire(self, caller: Hashable) -> None:
        if self._free:  # then nobody waits: a released permit goes to a waiter first
            self._free -= 1
            return
        permit: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(caller, permit)
        try:
            await permit
        except asyncio.CancelledError:
            if permit.done() and not permit.cancelled():  # got the permit at the moment of the cancellation
                self._release()
            raise

    def _release(self) -> None:
        while self._waiting:
            permit = self._waiting.pop()
            if not permit.done():  # a cancelled waiter is skipped
                permit.set_result(None)
                return
        self._free += 1
