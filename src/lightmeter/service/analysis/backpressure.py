"""Backpressure: limits the pending pictures, and estimates when a refused client should retry.

A picture (image or video frame) is pending from the admission of its request until its analysis ends. A request that
would wait for minutes is refused at once, before credits are reserved for it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from lightmeter.clock import Clock
from lightmeter.errors import LightmeterError

MAX_PENDING_PICTURES: Final = 2000
"""Default limit of pending pictures: about 40 s of tagging on one core, at the measured 48 pictures a second."""

WINDOW_S: Final = 30.0
"""Period in seconds over which throughput is measured."""

INITIAL_PICTURES_PER_S: Final = 10.0
"""Assumed throughput before the first measurement."""
MIN_RETRY_S: Final = 1
MAX_RETRY_S: Final = 300
"""Limits of the header `Retry-After` in seconds."""


class ServiceOverloaded(LightmeterError):
    """The service has reached its limit of pending pictures; no credits were reserved or charged.

    Attributes:
        retry_after_s: Estimated whole seconds until there is capacity, 1 or more.
    """

    def __init__(self, retry_after_s: int) -> None:
        super().__init__(f"The service is busy. Try again in {retry_after_s} s.")
        self.retry_after_s = retry_after_s


class AdmissionController:
    """Counts pending pictures (images and video frames), measures throughput, and refuses requests beyond a limit.

    Args:
        max_pending_pictures: Limit of pending pictures. A larger request is accepted if nothing else is pending.
        clock: Clock.

    Attributes:
        pending_pictures: Number of images and video frames of admitted requests whose analysis has not ended.
    """

    def __init__(self, max_pending_pictures: int, clock: Clock) -> None:
        self.pending_pictures = 0
        self._max_pending_pictures = max_pending_pictures
        self._clock = clock
        self._finished: deque[tuple[float, int]] = deque()
        self._busy_since = clock.monotonic()
        self._last_pictures_per_s = INITIAL_PICTURES_PER_S

    def admit(self, pictures: int, waiting_requests: int = 0) -> AbstractContextManager[None]:
        """Return a context manager that counts the pictures of a new request as pending during its block.

        Args:
            pictures: Number of pictures of the request.
            waiting_requests: Requests that wait in the job queue; each counts as one picture.

        Raises:
            ServiceOverloaded: the limit is exceeded.
        """
        waiting = self.pending_pictures + waiting_requests
        if waiting and waiting + pictures > self._max_pending_pictures:
            raise ServiceOverloaded(self._retry_after_s(min(waiting, waiting + pictures - self._max_pending_pictures)))
        return self.reserve(pictures)

    @contextmanager
    def reserve(self, pictures: int) -> Iterator[None]:
        """Count pictures as pending during the block, without a limit, for a request that was admitted before."""
        if not self.pending_pictures:
            self._busy_since = self._clock.monotonic()
        self.pending_pictures += pictures
        try:
            yield
        finally:
            self.pending_pictures -= pictures
            if not self.pending_pictures:  # the idle time that starts now must not lower the throughput
                self._last_pictures_per_s = self.pictures_per_s()
                self._finished.clear()

    def record_finished(self, pictures: int) -> None:
        """Record finished pictures for the measurement of throughput."""
        self._finished.append((self._clock.monotonic(), pictures))
        self._drop_old_measurements()

    def pictures_per_s(self) -> float:
        """Return the pictures finished per second in the last `WINDOW_S` seconds, not counting idle time."""
        self._drop_old_measurements()
        pictures = sum(count for _, count in self._finished)
        seconds = min(self._clock.monotonic() - self._busy_since, WINDOW_S)
        return pictures / seconds if pictures and seconds > 0 else self._last_pictures_per_s

    def _drop_old_measurements(self) -> None:
        before = self._clock.monotonic() - WINDOW_S
        while self._finished and self._finished[0][0] < before:
            self._finished.popleft()

    def _retry_after_s(self, pictures: int) -> int:
        seconds = math.ceil(pictures / self.pictures_per_s())
        return min(max(seconds, MIN_RETRY_S), MAX_RETRY_S)
