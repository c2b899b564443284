"""A readers-writer lock: requests share it, and a request suspected of crashing its process holds it alone.

Shared and exclusive holders alternate, so that neither side starves. While an exclusive holder waits, new shared
holders must wait. When it releases the lock, all waiting shared holders get the lock before the next exclusive holder.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class SharedExclusiveLock:
    """A fair shared/exclusive (readers-writer) lock for the tasks of one event loop.

    Attributes:
        shared_holders: Number of present shared holders.
        is_exclusively_held: Whether there is an exclusive holder.
    """

    def __init__(self) -> None:
        self.shared_holders = 0
        self.is_exclusively_held = False
        self._shared_waiters: deque[asyncio.Future[None]] = deque()
        self._exclusive_waiters: deque[asyncio.Future[None]] = deque()

    @property
    def is_open(self) -> bool:
        """Whether a new shared holder gets the lock at once."""
        return not (self.is_exclusively_held or self._exclusive_waiters)

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """Hold the lock during the block, together with other shared holders."""
        if self.is_open:
            self.shared_holders += 1
        else:
            await self._wait(self._shared_waiters)
        try:
            yield
        finally:
            self._release_shared()

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        """Hold the lock alone during the block."""
        if self.is_exclusively_held or self.shared_holders or self._exclusive_waiters:
            await self._wait(self._exclusive_waiters)
        else:
            self.is_exclusively_held = True
        try:
            yield
        finally:
            self._release_exclusive()

    async def _wait(self, waiters: deque[asyncio.Future[None]]) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiters.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # got the lock at the moment of the cancellation
                if waiters is self._exclusive_waiters:
                    self._release_exclusive()
                else:
                    self._release_shared()
            else:
                if turn in waiters:
                    waiters.remove(turn)
                self._wake_next(shared_first=True)
            raise

    def _release_shared(self) -> None:
        self.shared_holders -= 1
        self._wake_next(shared_first=False)

    def _release_exclusive(self) -> None:
        self.is_exclusively_held = False
        self._wake_next(shared_first=True)

    def _wake_next(self, *, shared_first: bool) -> None:
        """Give the lock to the next waiters if it is free for them.

        Args:
            shared_first: Whether waiting shared holders go before waiting exclusive ones.
        """
        if self.is_exclusively_held:
            return
        if self._shared_waiters and (not self._exclusive_waiters or (shared_first and not self.shared_holders)):
            while (turn := _pop_waiting(self._shared_waiters)) is not None:
                self.shared_holders += 1
                turn.set_result(None)
        elif (
            self._exclusive_waiters
            and not self.shared_holders
            and (turn := _pop_waiting(self._exclusive_waiters)) is not None
        ):
            self.is_exclusively_held = True
            turn.set_result(None)


def _pop_waiting(waiters: deque[asyncio.Future[None]]) -> asyncio.Future[None] | None:
    """Remove and return the first waiter that is not cancelled; None if there is none."""
    while waiters:
        turn = waiters.popleft()
        if not turn.done():
            return turn
    return None
