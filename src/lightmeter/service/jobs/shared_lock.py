"""Who is in work beside whom: requests beside each other, or a suspect alone.

Two doors to one room. Through the one come requests that may be beside others; through the other one suspect at a
time, when the room is empty. They take turns: a suspect who waits stops new company, and when it has left, all the
company that waits comes in before the next suspect. So neither waits for ever.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

__all__ = ["SharedExclusiveLock"]


class SharedExclusiveLock:
    """The room. Of one event loop.

    Attributes:
        inside: How many are in it beside each other.
        is_exclusively_held: Whether somebody is in it alone.
    """

    def __init__(self) -> None:
        self.inside = 0
        self.is_exclusively_held = False
        self._together: deque[asyncio.Future[None]] = deque()
        self._alone: deque[asyncio.Future[None]] = deque()

    @property
    def is_open(self) -> bool:
        """Whether one more may be beside the others at once."""
        return not (self.is_exclusively_held or self._alone)

    @asynccontextmanager
    async def together(self) -> AsyncIterator[None]:
        """In the room beside others, for as long as the block lasts."""
        if self.is_open:
            self.inside += 1
        else:
            await self._wait(self._together)
        try:
            yield
        finally:
            self._leave()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """In the room with nobody else, for as long as the block lasts."""
        if self.is_exclusively_held or self.inside or self._alone:
            await self._wait(self._alone)
        else:
            self.is_exclusively_held = True
        try:
            yield
        finally:
            self._leave_alone()

    async def _wait(self, line: deque[asyncio.Future[None]]) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # let in and called away at the same instant
                if line is self._alone:
                    self._leave_alone()
                else:
                    self._leave()
            else:
                if turn in line:
                    line.remove(turn)
                self._next(company_first=True)
            raise

    def _leave(self) -> None:
        self.inside -= 1
        self._next(company_first=False)

    def _leave_alone(self) -> None:
        self.is_exclusively_held = False
        self._next(company_first=True)

    def _next(self, *, company_first: bool) -> None:
        """Let in whose turn it is, if there is room."""
        if self.is_exclusively_held:
            return
        if self._together and (not self._alone or (company_first and not self.inside)):
            while (turn := _first(self._together)) is not None:
                self.inside += 1
                turn.set_result(None)
        elif self._alone and not self.inside and (turn := _first(self._alone)) is not None:
            self.is_exclusively_held = True
            turn.set_result(None)


def _first(line: deque[asyncio.Future[None]]) -> asyncio.Future[None] | None:
    """Whoever waits longest and has not been called away."""
    while line:
        turn = line.popleft()
        if not turn.done():
            return turn
    return None
