"""Runs the work of a view-model (the Python object behind a page), such as planning, in a background event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from concurrent.futures import wait as wait_for_all
from functools import cache
from typing import Any, TypeVar

from lightmeter.background_loop import BackgroundLoop
from lightmeter.errors import Interrupted

T = TypeVar("T")
JobFactory = Callable[[asyncio.Event], Coroutine[Any, Any, T]]
"""Returns the coroutine to run; its argument is an event that is set when the work should stop."""


@cache
def planner_loop() -> BackgroundLoop:
    """Return the event loop, in a background thread, in which all planner pages of this process plan and run.

    The event loop of a notebook's kernel cannot be used: it is busy while a cell is executed.
    """
    return BackgroundLoop("lightmeter-planner")


async def cancel_on_stop(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`, a coroutine that spends no credits; cancel `work` as soon as `stop` is set.

    Raises:
        Interrupted: `work` was canceled.
    """
    task, stopped = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
    finally:
        task.cancel()
        stopped.cancel()
        await asyncio.wait({task, stopped})
    raise Interrupted("Stopped; nothing was spent.")


class BackgroundJob:
    """Runs the background work of one page's Python object, such as making a plan or a run, one job at a time."""

    def __init__(self) -> None:
        self._future: Future[Any] | None = None
        self._stop = asyncio.Event()

    def start(self, job: JobFactory[T]) -> Future[T]:
        """Start the coroutine that `job` returns; return a future of its result. The previous job must have ended.

        `job` is called with an event; the method `stop` sets this event.
        """
        self._stop = asyncio.Event()
        future = planner_loop().start(job(self._stop))
        self._future = future
        return future

    def stop(self) -> None:
        """Ask the job to stop, and return at once; any thread may. A run first awaits answers to sent requests."""
        planner_loop().loop.call_soon_threadsafe(self._stop.set)

    def wait(self) -> Any:
        """Block until the last job has ended; return its result or raise its exception. None if no job was started.

        A keyboard interrupt stops the job, waits for its end, and is raised again.
        """
        if self._future is None:
            return None
        try:
            return self._future.result()
        except KeyboardInterrupt:
            self.stop()
            wait_for_all([self._future])
            raise
