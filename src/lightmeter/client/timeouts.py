"""Time limits of one HTTP exchange."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

__all__ = ["Timeouts", "stall_tolerant_timeout"]

_STALL_S: Final = 1.0
"""A timer that fires this many seconds late shows that the process was suspended or starved of processor time."""

_AFTER_STALL_S: Final = 5.0
"""Seconds granted after such a stall, so that answers which arrived meanwhile are read from their sockets first."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Time limits of one HTTP exchange, in seconds, each above 0.

    Attributes:
        connect_s: For opening a connection, TLS handshake included; if it runs out, nothing was sent.
        read_s: For the next bytes of an answer; a synchronous analysis is silent until it is done.
        total_s: For the whole exchange, from the wait for a free connection to the last byte of the answer.
    """

    connect_s: float = 10.0
    read_s: float = 120.0
    total_s: float = 180.0


@asynccontextmanager
async def stall_tolerant_timeout(delay_s: float) -> AsyncIterator[None]:
    """Raise `TimeoutError` in the block after `delay_s` seconds, like `asyncio.timeout`, but not right after a stall.

    After a suspension of the process (SIGSTOP, a sleeping laptop) all timers expire at once, although answers may lie
    unread in the sockets. A timer that fires late is therefore renewed once for a few seconds.
    """
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(None) as scope:

        def on_timer() -> None:
            nonlocal timer
            now = loop.time()
            if now - timer.when() > _STALL_S:
                timer = loop.call_at(now + _AFTER_STALL_S, on_timer)
            else:
                scope.reschedule(now)

        timer = loop.call_later(delay_s, on_timer)
        try:
            yield
        finally:
            timer.cancel()
