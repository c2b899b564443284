"""Taking turns: a queue and a room in which no request waits for all of another's pictures.

Who comes with a thousand pictures gets as much of the machine as who comes with one, as long as both wait: each caller
has a line of its own, and the lines are served in turn, one thing from each.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

__all__ = ["FairSemaphore", "RoundRobinQueue"]

T = TypeVar("T")


class RoundRobinQueue(Generic[T]):
    """What waits: first in, first out for each caller, and the askers by turns."""

    def __init__(self) -> None:
        self._lines: dict[Hashable, deque[T]] = {}  # in the order of their turns
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def add(self, caller: Hashable, thing: T) -> None:
        """Put a thing at the end of the caller's line; a new caller's turn comes after all others'."""
        self._lines.setdefault(caller, deque()).append(thing)
        self._length += 1

    def pop(self) -> T:
        """The next thing in turn.

        Raises:
            IndexError: nothing waits.
        """
        if not self._lines:
            raise IndexError("nothing waits")
        caller = next(iter(self._lines))
        line = self._lines.pop(caller)
        thing = line.popleft()
        if line:
            self._lines[caller] = line  # the end of the queue of askers
        self._length -= 1
        return thing

    def take(self, most: int, kind: Callable[[T], Hashable]) -> list[T]:
        """The next thing and those that follow it in turn, up to `most`, as long as they are of one kind."""
        taken = [self.pop()]
        while len(taken) < most and self._lines and kind(next(iter(self._lines.values()))[0]) == kind(taken[0]):
            taken.append(self.pop())
        return taken


class FairSemaphore:
    """A semaphore that is fair between askers, and of which no place is lost when a waiter is cancelled.

    Args:
        places: How many may be inside at once, 1 or more.
    """

    def __init__(self, places: int) -> None:
        self._free = places
        self._waiting: RoundRobinQueue[asyncio.Future[None]] = RoundRobinQueue()

    @asynccontextmanager
    async def place(self, caller: Hashable) -> AsyncIterator[None]:
        """Wait for a place, and keep it for as long as the block lasts."""
        await self._enter(caller)
        try:
            yield
        finally:
            self._leave()

    async def _enter(self, caller: Hashable) -> None:
        if self._free:  # then nobody waits: a place that is given up goes to a waiter, not back
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(caller, turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it was our turn in the very moment
                self._leave()
            raise

    def _leave(self) -> None:
        while self._waiting:
            turn = self._waiting.pop()
            if not turn.done():  # else its waiter was cancelled
                turn.set_result(None)
                return
        self._free += 1
