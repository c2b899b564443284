"""A queue and a semaphore that serve callers in turn: each caller has a FIFO queue.

So a request with one picture does not wait for all pictures of a request with a thousand. The caller is any hashable
key of a request.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

T = TypeVar("T")


class RoundRobinQueue(Generic[T]):
    """Round-robin queue: FIFO per caller, callers in turn."""

    def __init__(self) -> None:
        self._queues: dict[Hashable, deque[T]] = {}  # the caller whose turn is next comes first
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def add(self, caller: Hashable, item: T) -> None:
        """Append an item to the queue of `caller`; a new caller has its turn after all others."""
        self._queues.setdefault(caller, deque()).append(item)
        self._length += 1

    def pop(self) -> T:
        """Remove and return the first item of the caller whose turn it is.

        Raises:
            IndexError: the queue is empty.
        """
        if not self._queues:
            raise IndexError("the queue is empty")
        caller = next(iter(self._queues))
        queue = self._queues.pop(caller)
        item = queue.popleft()
        if queue:
            self._queues[caller] = queue  # appended: the next turn of this caller is the last one
        self._length -= 1
        return item

    def pop_batch(self, max_items: int, batch_key: Callable[[T], Hashable]) -> list[T]:
        """Remove and return the next items, in the order of `pop`, until `batch_key` differs.

        Args:
            max_items: Maximum number of items.
            batch_key: Function that returns the key that all items of a batch have in common.

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
        slots: Number of slots, 1 or more.
    """

    def __init__(self, slots: int) -> None:
        self._free = slots
        self._waiting: RoundRobinQueue[asyncio.Future[None]] = RoundRobinQueue()

    @asynccontextmanager
    async def slot(self, caller: Hashable) -> AsyncIterator[None]:
        """Wait for a slot, and hold it during the block."""
        await self._acquire(caller)
        try:
            yield
        finally:
            self._release()

    async def _acquire(self, caller: Hashable) -> None:
        if self._free:  # then nobody waits: a released slot goes to a waiter first
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(caller, turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # got a slot at the moment of the cancellation
                self._release()
            raise

    def _release(self) -> None:
        while self._waiting:
            turn = self._waiting.pop()
            if not turn.done():  # a cancelled waiter is skipped
                turn.set_result(None)
                return
        self._free += 1
