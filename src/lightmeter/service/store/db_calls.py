"""How a database's thread tells the event loop what came of things: many at once, with one wake-up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from lightmeter.service.store.database import Connection

__all__ = ["DatabaseCall", "DatabaseOutcome", "deliver"]


@dataclass(frozen=True, slots=True)
class DatabaseOutcome:
    """What came of a job: a value, or what it raised."""

    value: Any = None
    error: BaseException | None = None


@dataclass(frozen=True, slots=True, eq=False)
class DatabaseCall:
    """A function of a transaction, and who waits for what it returns. Made on the loop that waits.

    Attributes:
        work: The function.
        writes: Whether it changes anything.
    """

    work: Callable[[Connection], Any]
    writes: bool
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    _waits: asyncio.Future[Any] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    async def outcome(self) -> Any:
        """Wait for it. Whoever stops waiting takes nothing back: the job is done all the same."""
        return await self._waits

    def tell(self, outcome: DatabaseOutcome) -> None:
        """On the loop that waits: let it go on."""
        if self._waits.done():  # nobody waits any more
            return
        if outcome.error is None:
            self._waits.set_result(outcome.value)
        else:
            self._waits.set_exception(outcome.error)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that waits."""
        return self._loop


def deliver(ended: Iterable[tuple[DatabaseCall, DatabaseOutcome]]) -> None:
    """From any thread: tell all who wait, each loop with one call."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[DatabaseCall, DatabaseOutcome]]] = {}
    for job, outcome in ended:
        by_loop.setdefault(job.loop, []).append((job, outcome))
    for loop, each in by_loop.items():
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(_tell, each)


def _tell(ended: list[tuple[DatabaseCall, DatabaseOutcome]]) -> None:
    for job, outcome in ended:
        job.tell(outcome)
