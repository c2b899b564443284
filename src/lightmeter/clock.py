"""Clocks: the time of day, a time for durations, and sleep. Tests pass clocks of their own.

The time of day can jump: NTP corrects it, people set it, and virtual machines resume with an old time. Times on which
charges depend are therefore from `RunClock`: it reads the time of day once and then adds the uptime of the machine.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol

STEP_S: Final = 2.0
"""Smallest difference between two clocks, in seconds, that shows that one was set; less is normal inaccuracy."""

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class Clock(Protocol):
    """Interface of a source of time, so that tests can pass a clock of their own."""

    def now(self) -> float:
        """Return the present time, for times that are stored: seconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Return seconds on a clock that nobody can set, for durations."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Suspend the current task for a number of seconds."""
        ...


class SystemClock:
    """The real clocks of this machine: time of day, monotonic time and uptime."""

    def now(self) -> float:
        """Return the present time, in seconds since the epoch."""
        return time.time()

    def monotonic(self) -> float:
        """Return seconds on a clock that nobody can set, for durations."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Suspend the current task for a number of seconds."""
        await asyncio.sleep(seconds)

    def uptime(self) -> float:
        """Return seconds since the machine started, including time in suspension on Linux and macOS."""
        try:
            # CLOCK_MONOTONIC of macOS goes on while the machine sleeps; Python's `time.monotonic` stops there.
            return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
        except (AttributeError, OSError):  # Windows, or a kernel without this clock
            return time.monotonic()

    def boot_id(self) -> str:
        """Return an id of this start of the machine; empty where the system has none."""
        try:
            return _BOOT_ID.read_text().strip()
        except OSError:
            return ""


@dataclass(frozen=True, slots=True)
class ClockAnchor:
    """Time of day and uptime of a machine at one moment: a run stores them in its journal at each start.

    Attributes:
        boot_id: Id of the machine's last boot.
        uptime: Seconds since that boot.
        wall: Time of day, in seconds since the epoch.
    """

    boot_id: str
    uptime: float
    wall: float


class RunClock:
    """A clock that does not jump during a process: the time of day at its start plus the uptime since then.

    Args:
        machine: The machine's clocks.
        before: Times of the machine when the previous process of the run started; None for the first process.

    Attributes:
        anchor: Times of the machine when this clock was created.
        restart_step_s: Seconds by which the time of day was set forward between `before` and `anchor`, negative if
            back; None if unknown, as after a reboot.
        monotonic: Returns seconds on a clock that nobody can set, for durations.
        sleep: Suspends the current task for a number of seconds.
    """

    def __init__(self, machine: SystemClock, before: ClockAnchor | None = None) -> None:
        self._machine = machine
        self.monotonic, self.sleep = machine.monotonic, machine.sleep
        self.anchor = ClockAnchor(machine.boot_id(), machine.uptime(), machine.now())
        self.restart_step_s: float | None = None
        if before is not None and before.boot_id and before.boot_id == self.anchor.boot_id:
            self.restart_step_s = (self.anchor.wall - before.wall) - (self.anchor.uptime - before.uptime)

    def now(self) -> float:
        """Return the present time, in seconds since the epoch."""
        return self.anchor.wall + (self._machine.uptime() - self.anchor.uptime)

    @property
    def step_s(self) -> float:
        """Seconds by which the time of day was set forward since this clock was created; negative if set back.

        An absolute value below `STEP_S` may be mere inaccuracy of the clocks.
        """
        return self._machine.now() - self.now()

    def min_age_s(self, at: float, *, earlier: bool) -> float:
        """Return how many seconds, 0 or more, have certainly passed since a stored time, even if the clock was set.

        For a time stored by this process, the result is exact: `now() - at`. For a time stored by an earlier process,
        it depends on what happened between the starts of the two processes:

        - The time of day was set: the result is the age of this clock (the seconds since it was created).
        - The machine was rebooted, or this is unknown: `now() - at`, but at most the uptime.
        - Neither: `now() - at`.

        In all three cases, the result is at least the age of this clock.

        Args:
            at: The stored time, in seconds since the epoch.
            earlier: Whether an earlier process of the run stored it.
        """
        age_s, here_s = self.now() - at, self.now() - self.anchor.wall
        if not earlier:
            return max(0.0, age_s)
        if self.restart_step_s is not None:
            return max(here_s, age_s) if abs(self.restart_step_s) < STEP_S else here_s
        return max(here_s, min(age_s, self._machine.uptime()))


def utc_from_timestamp(seconds: float) -> datetime:
    """Return an aware UTC datetime for seconds since the epoch."""
    return datetime.fromtimestamp(seconds, tz=UTC)
