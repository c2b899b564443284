"""Runs the toolkit's work from synchronous code: scripts, notebooks, and threads with or without an event loop."""

from __future__ import annotations

import asyncio
import sys
import threading
import warnings
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import aclosing, suppress
from typing import Any, Final, TypeVar

from lightmeter.api.background_generator import cancel_all_work
from lightmeter.api.progress_display import in_ipython, last_step, progress_display
from lightmeter.background_loop import BackgroundLoop
from lightmeter.planning.progress import Progress

T = TypeVar("T")

_WAIT_S: Final = 0.1
"""Seconds between two looks at the progress; an interrupt ends the wait at once."""

_STOPPING: Final = "stopping: no more requests are sent, waiting for those in flight (interrupt again to leave them)"
_LEFT: Final = "The work ends in the background, and uses its folder until the requests in flight are answered."


def wait_for_steps(make_steps: Callable[[], AsyncGenerator[Progress | T]], *, show: bool | None) -> T:
    """Run the generator that `make_steps` returns, show its progress, and return its last value.

    Without a running event loop, the calling thread runs one. Where one is running, as in a notebook, a background
    thread does the work, while the caller waits and shows the progress. An interrupt stops the work as Ctrl-C stops a
    command: the answers to requests in flight are kept. Then KeyboardInterrupt is raised.

    Args:
        make_steps: Function that returns the generator. It yields progress, and at last the result.
        show: Whether to show the progress; None shows it in a Jupyter notebook and on a terminal.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:  # there is none
        try:
            return asyncio.run(last_step(make_steps(), show=show))
        except KeyboardInterrupt:
            cancel_all_work()  # only a second interrupt leaves some
            raise
    if not in_ipython():
        warnings.warn(
            "This call blocks the event loop until its work is done. In a coroutine, use `await lightmeter.aio.…`.",
            stacklevel=3,
        )
    return _wait_beside_loop(make_steps, show=show)


def wait_for(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end and return its result, where an event loop is running and where none is.

    An interrupt cancels the coroutine. When it has ended, KeyboardInterrupt is raised.
    """
    background = BackgroundLoop("lightmeter-call")
    try:
        return background.run(coroutine)
    finally:
        background.close()


def iterate(steps: AsyncGenerator[T]) -> Iterator[T]:
    """Yield the values of an async generator; close it, and wait for its end, when the iterator is closed."""
    background = BackgroundLoop("lightmeter-call")
    try:
        with suppress(StopAsyncIteration):
            while True:
                yield background.run(_next(steps))
    finally:
        background.run(_close(steps))
        background.close()


async def _next(steps: AsyncGenerator[T]) -> T:
    return await anext(steps)


async def _close(steps: AsyncGenerator[T]) -> None:
    await steps.aclose()


def _wait_beside_loop(make_steps: Callable[[], AsyncGenerator[Progress | T]], *, show: bool | None) -> T:
    latest: deque[Progress] = deque(maxlen=1)
    ended, background = threading.Event(), BackgroundLoop("lightmeter-call")

    async def follow() -> T:
        try:
            async with aclosing(make_steps()) as steps:
                async for step in steps:
                    if not isinstance(step, Progress):
                        return step
                    latest.append(step)
            raise AssertionError("the last value is not a progress")
        finally:
            ended.set()

    future = background.start(follow())
    with progress_display(show=show) as display:

        def wait() -> None:
            while not ended.wait(_WAIT_S):
                if latest:
                    display.show_progress(latest.pop())

        try:
            wait()
        except KeyboardInterrupt:
            future.cancel()
            _say(_STOPPING)
            try:
                wait()
            except KeyboardInterrupt:
                _say(_LEFT)
            raise
    result = future.result()
    background.close()
    return result


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201 (to the person who interrupted)
