"""The only timer: now, monotonic, sleep. Tests hand in their own.

Wall clocks step: NTP corrects them, people set them, virtual machines resume with old ones. What money depends on is
therefore measured with `RunClock`, which reads the wall clock once and counts on from there.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Protocol

__all__ = ["STEP_S", "Clock", "ClockAnchor", "MachineClock", "RunClock", "SystemClock", "utc_from_timestamp"]

STEP_S: Final = 2.0
"""Difference between two clocks, in seconds, from which on one of them was set."""

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


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

    def uptime(self) -> float:
        """Seconds since the machine started, with those in which it was suspended, where the system counts them."""
        try:
            return time.clock_gettime(time.CLOCK_BOOTTIME)
        except (AttributeError, OSError):  # not Linux
            return time.monotonic()

    def boot_id(self) -> str:
        """Names this start of the machine; empty where the system has no name for it."""
        try:
            return _BOOT_ID.read_text().strip()
        except OSError:
            return ""


class MachineClock(Clock, Protocol):
    """A clock that also knows since when its machine runs."""

    def uptime(self) -> float:
        """Seconds since the machine started."""
        ...

    def boot_id(self) -> str:
        """Names this start of the machine, or is empty."""
        ...


@dataclass(frozen=True, slots=True)
class ClockAnchor:
    """What both clocks of a machine showed at one moment.

    Attributes:
        boot_id: Names the start of the machine.
        uptime: Seconds since that start.
        wall: Seconds since the epoch.
    """

    boot_id: str
    uptime: float
    wall: float

    def to_dict(self) -> dict[str, Any]:
        """As it is kept."""
        return asdict(self)


class RunClock:
    """A clock that does not step while a process works on a run: the wall clock at its start, counted on by uptime.

    Args:
        machine: The machine's clocks.
        before: What they showed when the process before began to work on the same run; None if there was none.

    Attributes:
        anchor: What they showed when this one began.
        between_s: By how many seconds the wall clock was set between both starts; None where that cannot be told.
    """

    def __init__(self, machine: MachineClock, before: ClockAnchor | None = None) -> None:
        self._machine = machine
        self.anchor = ClockAnchor(machine.boot_id(), machine.uptime(), machine.now())
        self.between_s: float | None = None
        if before is not None and before.boot_id and before.boot_id == self.anchor.boot_id:
            self.between_s = (self.anchor.wall - before.wall) - (self.anchor.uptime - before.uptime)

    def now(self) -> float:
        """Seconds since the epoch, as the wall clock showed them at the start and a steady clock has counted since."""
        return self.anchor.wall + (self._machine.uptime() - self.anchor.uptime)

    def monotonic(self) -> float:
        """Seconds on a clock that never steps."""
        return self._machine.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Let others run for so long."""
        await self._machine.sleep(seconds)

    @property
    def step_s(self) -> float:
        """By how many seconds the wall clock was set since the start; less than `STEP_S` is drift."""
        return self._machine.now() - self.now()

    def least_age_s(self, at: float, *, earlier: bool) -> float:
        """Seconds, 0 or more, that have passed for certain since a moment that a process of this run wrote down.

        A moment of this process is measured by the steady clock. One of an earlier process lies before the start of
        this one, and further back only as far as both clocks say so: while the machine was not started anew, if the
        wall clock was not set between both starts; else no longer ago than the machine runs.

        Args:
            at: The moment, in seconds since the epoch.
            earlier: An earlier process wrote it down.
        """
        age_s, here_s = self.now() - at, self.now() - self.anchor.wall
        if not earlier:
            return max(0.0, age_s)
        if self.between_s is not None:
            return max(here_s, age_s) if abs(self.between_s) < STEP_S else here_s
        return max(here_s, min(age_s, self._machine.uptime()))


def utc_from_timestamp(seconds: float) -> datetime:
    """An aware UTC datetime from seconds since the epoch."""
    return datetime.fromtimestamp(seconds, tz=UTC)
