"""Time limits of one HTTP exchange."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from types import TracebackType
from typing import Final

_STALL_S: Final = 1.0
"""A timer that fires this many seconds late shows that the process was suspended or starved of processor time."""

_AFTER_STALL_S: Final = 5.0
"""Seconds granted after such a stall, so that answers which arrived meanwhile are read from their sockets first."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Time limits of one HTTP exchange, in seconds, each above 0.

    Attributes:
        connect_s: For opening a connection, TLS handshake included; if it runs out, nothing was sent.
        read_s: For the next bytes of an answer; the service sends none while it analyses an image.
        total_s: For the whole exchange, from the wait for a free connection to the last byte of the answer.
    """

    connect_s: float = 10.0
    read_s: float = 120.0
    total_s: float = 180.0


class StallTolerantTimeout:
    """Async context manager that raises `TimeoutError` after a time, like `asyncio.timeout`, but not after a stall.

    After a suspension of the process (SIGSTOP, a sleeping laptop) all timers expire at once, although the sockets may
    hold unread answers. A timer that fires late is therefore renewed for a few seconds.

    Args:
        delay_s: Seconds that the block may take, from the start or from the last call of `restart`.
        message: Text of the `TimeoutError`.
    """

    def __init__(self, delay_s: float, message: str) -> None:
        self._message = message
        self._loop = asyncio.get_running_loop()
        self._scope = asyncio.timeout(None)
        self._timer = self._loop.call_later(delay_s, self._on_timer)

    async def __aenter__(self) -> None:
        await self._scope.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        try:
            await self._scope.__aexit__(kind, error, trace)
        except TimeoutError:
            raise TimeoutError(self._message) from error

    def restart(self, delay_s: float) -> None:
        """Allow the block so many seconds from now on."""
        self._timer.cancel()
        self._timer = self._loop.call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        now = self._loop.time()
        if now - self._timer.when() > _STALL_S:
            self._timer = self._loop.call_at(now + _AFTER_STALL_S, self._on_timer)
        else:
            self._scope.reschedule(now)  # the time has passed: this cancels the block
