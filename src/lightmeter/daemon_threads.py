"""Runs functions in daemon threads, so that a function that hangs does not delay the end of the process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

T = TypeVar("T")

_WAKE_S: Final = 0.5
"""Seconds after which `call_in_daemon_thread` wakes the event loop."""


def run_in_daemon_thread(function: Callable[[], T], name: str) -> asyncio.Future[T]:
    """Call `function` in a new daemon thread called `name`; return the future of its result.

    If the event loop is closed before `function` returns, the result is dropped.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        try:
            deliver = partial(future.set_result, function())
        except BaseException as error:  # noqa: BLE001 (the caller gets it)
            deliver = partial(future.set_exception, error)
        with suppress(RuntimeError):  # the event loop is closed
            loop.call_soon_threadsafe(lambda: None if future.done() else deliver())

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


async def call_in_daemon_thread(function: Callable[[], T], name: str) -> T:
    """Call `function` in a new daemon thread called `name`, and return its result.

    If the calling task is cancelled, do not wait for `function`. The event loop is woken twice a second, because the
    loop of a notebook's kernel notices an interrupt only when it wakes up.
    """
    result = run_in_daemon_thread(function, name)
    try:
        while not result.done():
            await asyncio.wait({result}, timeout=_WAKE_S)
        return result.result()
    finally:
        result.cancel()
