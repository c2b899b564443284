"""Runs the work of a view-model (the Python object behind a page), such as planning, in a background event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from concurrent.futures import wait as wait_for_all
from typing import Any, Final, TypeVar

from lightmeter.background_loop import BackgroundLoop, SharedLoop
from lightmeter.errors import Interrupted

T = TypeVar("T")
JobFactory = Callable[[asyncio.Event], Coroutine[Any, Any, T]]
"""A function that returns the coroutine to run. Its argument is an event, which is set when the work should stop."""


_planner_loop: Final = SharedLoop("lightmeter-planner")


def planner_loop() -> BackgroundLoop:
    """Return the event loop in which all planner pages of this process make their plans and runs.

    It runs in a background thread. The event loop of a notebook's kernel is no alternative, because it is blocked while
    a cell is executed.
    """
    return _planner_loop.get()


async def cancel_on_stop(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of the coroutine `work`, but cancel `work` as soon as `stop` is set.

    `work` must not spend credits, because the error says that nothing was spent.

    Raises:
        Interrupted: `stop` was set before `work` ended, so that `work` was canceled.
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
    """Executes the background work of one page, such as planning or a run, one job at a time."""

    def __init__(self) -> None:
        self._future: Future[Any] | None = None
        self._stop = asyncio.Event()

    def start(self, job: JobFactory[T]) -> Future[T]:
        """Start the coroutine that `job` returns, and return a future of the coroutine's result.

        The previous job must have ended. The argument of `job` is an event, which the method `stop` sets.
        """
        self._stop = asyncio.Event()
        future = planner_loop().start(job(self._stop))
        self._future = future
        return future

    def stop(self) -> None:
        """Ask the job to stop, and return at once. Any thread may call this method.

        If the job is a run, it ends only when the requests that it has sent are answered.
        """
        planner_loop().loop.call_soon_threadsafe(self._stop.set)

    def wait(self) -> Any:
        """Block until the most recent job has ended, and return its result or raise its exception.

        Return None if no job was ever started. On a keyboard interrupt, stop the job, wait until it has ended, and
        raise the interrupt again.
        """
        if self._future is None:
            return None
        try:
            return self._future.result()
        except KeyboardInterrupt:
            self.stop()
            wait_for_all([self._future])
            raise
