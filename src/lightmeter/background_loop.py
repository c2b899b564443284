"""Run coroutines from synchronous code, on an event loop in a background thread.

This works in a script, in a thread, and in a notebook, where an event loop already runs in the calling thread.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final, TypeVar

from lightmeter.errors import UsageError

T = TypeVar("T")

_AWAIT_HINT: Final = "In a coroutine, use `await lightmeter.aio.…`."


class BackgroundLoop:
    """An event loop in a daemon thread called `name`, for coroutines that synchronous code or another loop starts."""

    def __init__(self, name: str = "lightmeter-background-loop") -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.close()

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine in the background loop; return a future of its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the background loop; return its result.

        On Ctrl-C, cancel the coroutine, wait until it has ended, and raise KeyboardInterrupt. A run of lightmeter first
        stores the answers to the requests that it has sent. A second Ctrl-C ends the wait.

        Raises:
            UsageError: a coroutine in the background loop called this method, and would wait for itself for ever.
        """
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise UsageError("A coroutine called a function that waits for its own event loop.", hint=_AWAIT_HINT)
        ended = threading.Event()

        async def await_end() -> T:
            try:
                return await coroutine
            finally:
                ended.set()

        future = self.start(await_end())
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()  # the future counts as done at once, while the coroutine still cleans up
            ended.wait()
            raise

    async def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the background loop and await its result from another loop."""
        return await asyncio.wrap_future(self.start(coroutine))

    def close(self) -> None:
        """Stop the loop, even if coroutines still run in it; wait for its thread, at most 10 s; idempotent."""
        with suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(timeout=10)


class SharedLoop:
    """A background loop that all callers of a process share: the first call of `get` starts it.

    A forked process gets a loop of its own, because the thread of the first one exists only in the parent.

    Args:
        name: Name of the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._forget()
        if hasattr(os, "register_at_fork"):  # (Windows has no fork)
            os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        self._background: BackgroundLoop | None = None
        self._lock = threading.Lock()  # (the former one may have been held during the fork)

    def get(self) -> BackgroundLoop:
        """Return the background loop of this process."""
        with self._lock:
            if self._background is None:
                self._background = BackgroundLoop(self._name)
            return self._background
