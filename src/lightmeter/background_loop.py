"""The one portal between plain code and the async core: a background loop that runs what it is handed.

Works in a script, in a notebook (where a loop already runs in the calling thread), and in a thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

__all__ = ["BackgroundLoop", "sync"]

T = TypeVar("T")


class BackgroundLoop:
    """An event loop in a daemon thread of its own.

    Used for `sync`, and for anything that must go on while the caller's own loop is busy.
    """

    def __init__(self, name: str = "lightmeter-portal") -> None:
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
        """Start a coroutine in the portal's loop; the result comes as a future of this thread."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end. Ctrl-C cancels it, waits until it has tidied up, and is raised."""
        future = self.start(coroutine)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            done = threading.Event()
            future.add_done_callback(lambda _: done.set())
            done.wait(timeout=30)
            raise

    async def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Await a coroutine that runs in the portal's loop, from a coroutine of another loop."""
        return await asyncio.wrap_future(self.start(coroutine))

    def close(self) -> None:
        """Stop the loop, unless it has stopped, and wait for its thread."""
        with suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(timeout=10)


_portal: BackgroundLoop | None = None
_guard = threading.Lock()


def sync(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run one coroutine from plain code and return its result; works inside a running loop too.

    Example:
        >>> import lightmeter as lm
        >>> plan = lm.sync(lm.plan("data/manifest.csv"))  # doctest: +SKIP
    """
    global _portal  # noqa: PLW0603 (one loop for the process, made when first needed)
    with _guard:
        if _portal is None:
            _portal = BackgroundLoop()
    return _portal.run(coroutine)
