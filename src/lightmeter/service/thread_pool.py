"""Threads that work for one event loop, with as little between them as possible.

`run_in_executor` makes two futures for each call, one of them with a lock and a condition of its own, and chains them:
at five calls for each picture that came to a thirtieth of all the processor time a picture took. Here a call is a
tuple in a queue and its outcome one callback on the loop.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias, TypeVar

__all__ = ["AsyncThreadPool"]

T = TypeVar("T")

_Call: TypeAlias = tuple[asyncio.Future[Any], Callable[..., Any], tuple[Any, ...]]
_Calls: TypeAlias = "SimpleQueue[_Call | None]"


class AsyncThreadPool:
    """So many threads; what they are given is begun in order. They end with `close`, or with this object.

    Args:
        size: Threads, 1 or more; they are started with the first call.
        name: What they are called, with a number each.
    """

    def __init__(self, size: int, name: str) -> None:
        self._calls: _Calls = SimpleQueue()
        self._threads = [
            threading.Thread(target=_serve, args=(self._calls,), name=f"{name}_{number}", daemon=True)
            for number in range(size)
        ]
        self._started = False
        self._leave = weakref.finalize(self, _send_home, self._calls, size)

    def run(self, call: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """Have `call(*args)` done; for an event loop only. Cancelling it helps until it is begun.

        Raises:
            RuntimeError: the crew was closed.
        """
        if not self._leave.alive:
            raise RuntimeError("the crew has gone home")
        if not self._started:
            self._started = True
            for thread in self._threads:
                thread.start()
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._calls.put((done, call, args))
        return done

    def close(self) -> None:
        """Let the threads finish what they are at; what waits is cancelled. Idempotent."""
        with suppress(Empty):
            while self._leave.alive:
                waiting = self._calls.get_nowait()
                if waiting is not None:
                    waiting[0].cancel()
        self._leave()
        if self._started:
            for thread in self._threads:
                thread.join()


def _send_home(calls: _Calls, size: int) -> None:
    for _ in range(size):
        calls.put(None)


def _serve(calls: _Calls) -> None:
    while (waiting := calls.get()) is not None:
        done, call, args = waiting
        if not done.cancelled():
            _do(done, call, args)
        del waiting, done, call, args  # or they would stay in memory until the next call


def _do(done: asyncio.Future[Any], call: Callable[..., Any], args: tuple[Any, ...]) -> None:
    result: Any = None
    error: BaseException | None = None
    try:
        result = call(*args)
    except StopIteration as stop:  # a future cannot raise it
        error = RuntimeError(f"the call raised {stop!r}")
    except BaseException as raised:  # noqa: BLE001 (whatever it is, it is the caller's)
        error = raised
    with suppress(RuntimeError):  # the loop is closed: nobody waits any more
        done.get_loop().call_soon_threadsafe(_tell, done, result, error)


def _tell(done: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if done.done():  # cancelled meanwhile
        return
    if error is None:
        done.set_result(result)
    else:
        done.set_exception(error)
