"""Runs functions in daemon threads, so that a function that hangs does not delay the end of the process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

T = TypeVar("T")


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
