"""One job at a time in a loop of its own, so that it goes on while a notebook's loop is busy or blocked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from concurrent.futures import wait as wait_for_all
from functools import cache
from typing import Any, TypeVar

from lightmeter.background_loop import BackgroundLoop
from lightmeter.errors import Interrupted

__all__ = ["BackgroundJob", "JobFactory", "cancel_on_stop", "widget_loop"]

T = TypeVar("T")
JobFactory = Callable[[asyncio.Event], Coroutine[Any, Any, T]]
"""Makes what is to be done, of an event that is set when it should come to its end."""


@cache
def widget_loop() -> BackgroundLoop:
    """The loop that all widgets of this process share."""
    return BackgroundLoop("lightmeter-widgets")


async def cancel_on_stop(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T:
    """Do something that has nothing to lose: it is cancelled as soon as `stop` is set.

    Raises:
        Interrupted: it was.
    """
    doing, stopped = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({doing, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            return doing.result()
    finally:
        doing.cancel()
        stopped.cancel()
        await asyncio.wait({doing, stopped})
    raise Interrupted("Stopped; nothing was spent.")


class BackgroundJob:
    """Starts a job, asks it to end, waits for it."""

    def __init__(self) -> None:
        self._future: Future[Any] | None = None
        self._stop = asyncio.Event()

    def start(self, job: JobFactory[T]) -> Future[T]:
        """Start a job; the one before it is over."""
        self._stop = asyncio.Event()
        future = widget_loop().start(job(self._stop))
        self._future = future
        return future

    def stop(self) -> None:
        """Ask the job to end: it finishes what it began."""
        widget_loop().loop.call_soon_threadsafe(self._stop.set)

    def wait(self) -> Any:
        """Block until the last job is done; returns and raises what it does, None where there was none.

        An interrupt asks it to end, waits for that, and is raised again.
        """
        if self._future is None:
            return None
        try:
            return self._future.result()
        except KeyboardInterrupt:
            self.stop()
            wait_for_all([self._future])
            raise
