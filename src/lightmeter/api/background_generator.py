"""Runs an async generator in a background thread, so that the end of `asyncio.run` cancels no request in flight.

When `asyncio.run` ends, it cancels every task of its event loop. A canceled request would lose its answer, which may
already have been charged. Tasks in the loop of the background thread are not canceled: `asyncio.run` waits until they
have ended.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from typing import Any, Final, Generic, TypeVar

from lightmeter.background_loop import BackgroundLoop

T = TypeVar("T")
GeneratorFactory = Callable[[asyncio.Event], AsyncGenerator[T]]
"""Function that returns a generator. Its argument is an event: once the event is set, the generator stops early."""

_MAX_WAITING_VALUES: Final = 16  # for a slow reader; older values are dropped


async def in_background(factory: GeneratorFactory[T], stop: asyncio.Event | None = None) -> AsyncGenerator[T]:
    """Run the generator that `factory` returns in a background thread, and yield its values in the current event loop.

    When the caller closes this generator, cancels its task, or ends its event loop, the background generator is closed,
    and the caller waits for its end. An event loop that is closed without `asyncio.run` cannot wait: the background
    generator then ends by itself. To stop the background generator early, set `stop`: this sets the event that
    `factory` was called with. If the caller reads slowly, only the latest 16 values that wait to be read are kept.
    """
    work = _BackgroundGenerator(factory)
    forwarding = None if stop is None else asyncio.create_task(_forward_stop(stop, work))
    try:
        async for value in work.values():
            yield value
    finally:
        if forwarding is not None:
            forwarding.cancel()
        work.abandon()
        await work.ended()


def cancel_all_work() -> None:
    """Cancel the tasks of all generators that `in_background` is running. Answers to their requests are not awaited."""
    for work in list(_running):
        work.cancel()


async def _forward_stop(stop: asyncio.Event, work: _BackgroundGenerator[T]) -> None:
    await stop.wait()
    work.stop()


class _BackgroundGenerator(Generic[T]):
    """An async generator that runs in a background thread, as soon as this object is created.

    Create the object, iterate over `values` and await `ended` in the same event loop. Any thread may call `stop`,
    `abandon` and `cancel`.

    Args:
        factory: Function that returns the generator. It is called in the background thread.
    """

    def __init__(self, factory: GeneratorFactory[T]) -> None:
        self._factory = factory
        self._values: deque[T] = deque(maxlen=_MAX_WAITING_VALUES)
        self._abandoned = False
        self._value_ready = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._background = BackgroundLoop("lightmeter-run")
        self._stop = asyncio.Event()  # of the background loop: an event belongs to the loop that waits for it
        self._finished = asyncio.Event()
        _running.add(self)
        self._waiter = asyncio.create_task(self._wait_for_end())
        self._future = self._background.start(self._iterate())
        self._future.add_done_callback(self._on_done)

    async def values(self) -> AsyncGenerator[T]:
        """Yield the values of the background generator in the reader's event loop, then raise its error, if any."""
        while True:
            self._value_ready.clear()
            while self._values:
                yield self._values.popleft()
            if self._finished.is_set():
                break
            await self._value_ready.wait()
        if self._future.cancelled():
            raise asyncio.CancelledError
        self._future.result()

    def stop(self) -> None:
        """Ask the background generator to stop early: set the event that its factory was called with."""
        self._call_in_background(self._stop.set)

    def abandon(self) -> None:
        """Ask the background generator to stop early, and close it when it yields its next value."""
        self._abandoned = True
        self.stop()

    def cancel(self) -> None:
        """Cancel every task in the event loop of the background thread, without waiting for requests in flight."""
        self._abandoned = True
        self._call_in_background(self._cancel_tasks)

    async def ended(self) -> None:
        """Wait until the background generator is closed.

        If the calling task is canceled meanwhile, go on waiting, then raise CancelledError.
        """
        cancelled: asyncio.CancelledError | None = None
        while not self._finished.is_set():
            try:
                await self._finished.wait()
            except asyncio.CancelledError as error:
                cancelled = error
        self._background.close()
        if cancelled is not None:
            raise cancelled

    async def _wait_for_end(self) -> None:
        """Wait until the background generator has ended.

        If this task is canceled meanwhile, ask the generator to stop early, and go on waiting.

        This runs as a task of the reader's event loop. When `asyncio.run` ends, it cancels the task and waits for it.
        """
        while not self._finished.is_set():
            try:
                await self._finished.wait()
            except asyncio.CancelledError:
                self.abandon()

    def _on_done(self, _: object) -> None:
        """Stop the background event loop and wake the task that awaits values, because the generator has ended."""
        _running.discard(self)
        self._call_in_background(self._background.loop.stop)
        self._call_in_caller_loop(self._finished.set)
        self._call_in_caller_loop(self._value_ready.set)

    async def _iterate(self) -> None:
        async with aclosing(self._factory(self._stop)) as steps:
            async for value in steps:
                self._values.append(value)
                if self._abandoned or not self._call_in_caller_loop(self._value_ready.set):
                    return

    def _call_in_caller_loop(self, function: Callable[[], object]) -> bool:
        """Schedule a call of `function` in the event loop that reads the values; return False if it was closed."""
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:
            return False
        return True

    def _cancel_tasks(self) -> None:
        for task in asyncio.all_tasks(self._background.loop):
            task.cancel()

    def _call_in_background(self, function: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the background loop is closed: there is nothing left to do
            self._background.loop.call_soon_threadsafe(function)


_running: Final[set[_BackgroundGenerator[Any]]] = set()  # keeps their tasks alive: a loop holds its tasks weakly
