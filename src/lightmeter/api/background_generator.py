"""An async generator whose work goes on in an event loop of its own, in a thread of its own.

When `asyncio.run` ends, it cancels every task of its loop: requests in flight there, which may be charged, would lose
their answers. Tasks of another loop are not cancelled. The loop that asked waits until the work has come to its end.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from typing import Any, Final, Generic, TypeVar

from lightmeter.background_loop import BackgroundLoop

__all__ = ["cancel_all_work", "in_background"]

T = TypeVar("T")
Steps = Callable[[asyncio.Event], AsyncGenerator[T]]
"""Makes the generator, of an event of its own loop that is set when it should come to its end."""

_KEPT_VALUES: Final = 16
"""Values that wait for a slow consumer; older ones are dropped, the last never is."""


async def in_background(steps: Steps[T], stop: asyncio.Event | None = None) -> AsyncGenerator[T]:
    """Yield what `steps` yields, from a background thread.

    Closing this generator, cancelling its task, or ending its loop in any way closes the generator of `steps` and
    waits for that. A loop that is closed while it still runs (no `asyncio.run`) cannot wait: the work then ends by
    itself in the background.

    Args:
        steps: Makes the generator.
        stop: Passed on to it, from the caller's loop to its own.
    """
    work = _Work(steps)
    passing_on = None if stop is None else asyncio.create_task(_pass_on(stop, work))
    try:
        async for value in work.values():
            yield value
    finally:
        if passing_on is not None:
            passing_on.cancel()
        work.abandon()
        await work.ended()


def cancel_all_work() -> None:
    """Cancel whatever goes on in the background, also what is in flight: for a user who does not want to wait."""
    for work in list(_live):
        work.cancel()


async def _pass_on(stop: asyncio.Event, work: _Work[T]) -> None:
    await stop.wait()
    work.stop()


class _Work(Generic[T]):
    """A generator in a loop of its own, seen from the loop that wants its values."""

    def __init__(self, steps: Steps[T]) -> None:
        self._steps = steps
        self._values: deque[T] = deque(maxlen=_KEPT_VALUES)
        self._abandoned = False
        self._news = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._portal = BackgroundLoop("lightmeter-run")
        self._stop = asyncio.Event()  # of the portal's loop: an event belongs to the loop that waits for it
        self._finished = asyncio.Event()
        _live.add(self)
        self._keeper = asyncio.create_task(self._keep())
        self._future = self._portal.start(self._serve())
        self._future.add_done_callback(self._end)

    async def values(self) -> AsyncGenerator[T]:
        """The values as they come; raises what the generator raises."""
        while True:
            self._news.clear()
            while self._values:
                yield self._values.popleft()
            if self._finished.is_set():
                break
            await self._news.wait()
        if self._future.cancelled():
            raise asyncio.CancelledError
        self._future.result()

    def stop(self) -> None:
        """Ask the generator to come to its end."""
        self._in_portal(self._stop.set)

    def abandon(self) -> None:
        """Close the generator at its next value, which comes soon: nobody wants more of them."""
        self._abandoned = True
        self.stop()

    def cancel(self) -> None:
        """Cancel every task of the work, as the end of `asyncio.run` does."""
        self._abandoned = True
        self._in_portal(self._cancel_tasks)

    async def ended(self) -> None:
        """Returns when the generator is closed. A cancellation is raised after that, not before."""
        cancelled: asyncio.CancelledError | None = None
        while not self._finished.is_set():
            try:
                await self._finished.wait()
            except asyncio.CancelledError as error:
                cancelled = error
        self._portal.close()
        if cancelled is not None:
            raise cancelled

    async def _keep(self) -> None:
        """Keep the loop from ending before the work does: `asyncio.run` waits for the tasks that it cancels."""
        while not self._finished.is_set():
            try:
                await self._finished.wait()
            except asyncio.CancelledError:
                self.abandon()

    def _end(self, _: object) -> None:
        """In the portal's thread, which has nothing more to do."""
        _live.discard(self)
        self._in_portal(self._portal.loop.stop)
        self._tell(self._finish)

    def _finish(self) -> None:
        self._finished.set()
        self._news.set()

    async def _serve(self) -> None:
        async with aclosing(self._steps(self._stop)) as steps:
            async for value in steps:
                self._values.append(value)
                if self._abandoned or not self._tell(self._news.set):
                    return

    def _tell(self, news: Callable[[], object]) -> bool:
        """Call something in the other loop; False where that loop is closed."""
        try:
            self._loop.call_soon_threadsafe(news)
        except RuntimeError:
            return False
        return True

    def _cancel_tasks(self) -> None:
        for task in asyncio.all_tasks(self._portal.loop):
            task.cancel()

    def _in_portal(self, act: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # its loop is closed: there is nothing left to do
            self._portal.loop.call_soon_threadsafe(act)


_live: Final[set[_Work[Any]]] = set()
"""Also keeps the tasks that wait for them: a loop alone holds its tasks weakly."""
