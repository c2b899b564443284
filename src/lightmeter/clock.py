"""The only timer: now, monotonic, sleep. Tests hand in their own."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol

__all__ = ["Clock", "SystemClock", "utc_from_timestamp"]


class Clock(Protocol):
    """What the rest of the package may know about time."""

    def now(self) -> float:
        """Seconds since the epoch, for what is written down."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never steps, for what is measured."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Let others run for so long."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds on a clock that never steps."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Let others run for so long."""
        await asyncio.sleep(seconds)


def utc_from_timestamp(seconds: float) -> datetime:
    """An aware UTC datetime from seconds since the epoch."""
    return datetime.fromtimestamp(seconds, tz=UTC)
