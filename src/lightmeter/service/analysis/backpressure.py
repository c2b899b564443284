"""Back pressure: how much may wait, and when to come again.

A request that would wait for minutes is better told so at once, before anything is held for it: its client can go
elsewhere or come back. How long the queue will take is known from how fast it has been moving.
"""

from __future__ import annotations

import math
from collections import deque
from types import TracebackType
from typing import Final, Self

from lightmeter.clock import Clock
from lightmeter.errors import LightmeterError

__all__ = ["MAX_PENDING_PICTURES", "AdmissionController", "CapacityReservation", "ServiceOverloaded"]

MAX_PENDING_PICTURES: Final = 2000
"""Pictures taken on and not finished: some 40 s of tags on one core, which was measured to do 48 a second."""

WINDOW_S: Final = 30.0
UNMEASURED_PER_S: Final = 10.0
"""Taken for the speed until something has been finished."""
LEAST_RETRY_S: Final = 1
MAX_RETRY_S: Final = 300


class ServiceOverloaded(LightmeterError):
    """The service has taken on as much as it can: nothing was held, nothing is charged.

    Attributes:
        retry_after_s: When there will probably be room, in whole seconds from now, 1 or more.
    """

    def __init__(self, retry_after_s: int) -> None:
        super().__init__(f"The service is busy. Try again in {retry_after_s} s.")
        self.retry_after_s = retry_after_s


class CapacityReservation:
    """Room for the pictures of one request, taken for as long as the block lasts."""

    def __init__(self, gate: AdmissionController, pictures: int) -> None:
        self._gate = gate
        self._pictures = pictures

    def __enter__(self) -> Self:
        self._gate.begin(self._pictures)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._gate.end(self._pictures)


class AdmissionController:
    """Counts what was taken on, measures how fast it goes, and refuses what would wait too long.

    Args:
        max_pending_pictures: Pictures that may be waiting or in hand. A request of more is let in when nothing else
        waits.
        clock: Time.

    Attributes:
        waiting: Pictures taken on and not finished.
    """

    def __init__(self, max_pending_pictures: int, clock: Clock) -> None:
        self.waiting = 0
        self._most_waiting = max_pending_pictures
        self._clock = clock
        self._finished: deque[tuple[float, int]] = deque()
        self._busy_since = clock.monotonic()
        self._measured_before = UNMEASURED_PER_S

    def admit(self, pictures: int, elsewhere: int = 0) -> CapacityReservation:
        """Room for so many pictures; enter it to keep it.

        Args:
            pictures: Of one request.
            elsewhere: Pictures that wait for this process and that it does not know of yet, as in a queue on disk.

        Raises:
            Busy: there is no room.
        """
        waiting = self.waiting + elsewhere
        if waiting and waiting + pictures > self._most_waiting:
            raise ServiceOverloaded(self._retry_after_s(min(waiting, waiting + pictures - self._most_waiting)))
        return self.take(pictures)

    def take(self, pictures: int) -> CapacityReservation:
        """Room for what was promised already, however much it is."""
        return CapacityReservation(self, pictures)

    def begin(self, pictures: int) -> None:
        """So many pictures wait from now on."""
        if not self.waiting:
            self._busy_since = self._clock.monotonic()
        self.waiting += pictures

    def end(self, pictures: int) -> None:
        """So many pictures wait no more, whatever became of them."""
        self.waiting -= pictures
        if not self.waiting:  # the idle time that begins now must not count as slow work
            self._measured_before = self.pictures_per_s()
            self._finished.clear()

    def finished(self, pictures: int) -> None:
        """So many pictures are done."""
        self._finished.append((self._clock.monotonic(), pictures))
        self._forget()

    def pictures_per_s(self) -> float:
        """How fast pictures have been finished lately, while any waited; a guess before anything is known."""
        self._forget()
        pictures = sum(count for _, count in self._finished)
        seconds = min(self._clock.monotonic() - self._busy_since, WINDOW_S)
        return pictures / seconds if pictures and seconds > 0 else self._measured_before

    def _forget(self) -> None:
        before = self._clock.monotonic() - WINDOW_S
        while self._finished and self._finished[0][0] < before:
            self._finished.popleft()

    def _retry_after_s(self, pictures: int) -> int:
        seconds = math.ceil(pictures / self.pictures_per_s())
        return min(max(seconds, LEAST_RETRY_S), MAX_RETRY_S)
