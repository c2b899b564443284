"""Backpressure: limits the pending pictures, and estimates when a refused client should retry.

A picture (image or video frame) is pending while its request is being stored, and from the start of its request until
its analysis ends. A request that waits in the job queue counts as one pending picture. A request that would wait for
minutes is refused at once, before credits are reserved for it.

All accounts together may have twice as many pending pictures as one account alone. The limit of an account is half of
what the other accounts leave of this allowed total. An account can exceed its limit, because its first pending request
may have any size. So each of the others counts as at most half of what those with more pending pictures leave.
Otherwise two accounts could make the service refuse the requests of all other accounts. An account without pending
pictures is never refused. Its request may have to wait until a running request of another account ends; then it is the
turn of this account.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from lightmeter.clock import Clock
from lightmeter.errors import LightmeterError
from lightmeter.service.analysis.fair_queue import TOTAL_TO_ACCOUNT_LIMIT_RATIO

MAX_PENDING_PICTURES: Final = 2000
"""Default limit of an account's pending pictures.

One core tags them in about 40 s, at the measured rate of 48 pictures a second.
"""

WINDOW_S: Final = 30.0
"""The throughput (analyzed pictures per second) is measured over the latest period of this many seconds."""

INITIAL_PICTURES_PER_S: Final = 10.0
"""Throughput, in pictures per second, that is assumed before the first measurement."""

MIN_RETRY_S: Final = 1
"""Minimum value of the header `Retry-After`, in seconds."""

MAX_RETRY_S: Final = 300
"""Maximum value of the header `Retry-After`, in seconds."""

NO_WAITING_REQUESTS: Final[Mapping[int, int]] = {}
"""Value of `waiting_requests` if no account has requests in the job queue."""


class ServiceOverloaded(LightmeterError):
    """The service cannot accept a request now, for example because too many images of the account are unfinished.

    Attributes:
        retry_after_s: Estimated time until the service can accept the request: a whole number of seconds, 1 or more.
    """

    def __init__(self, retry_after_s: int) -> None:
        super().__init__(f"The service is busy. Try again in {retry_after_s} s.")
        self.retry_after_s = retry_after_s


class AdmissionController:
    """Counts the pending pictures (images and video frames), and refuses a request if its account has too many.

    A picture is pending during the `with` blocks of `admit` and `reserve`. To tell a refused client when to retry, the
    controller also measures the throughput.

    Args:
        max_pending_pictures: Maximum pending pictures of an account, while no other account has pending pictures. The
            total for all accounts is twice as high. While other accounts have pending pictures, the limit of an account
            is half of what they leave of this total. If an account has no pending pictures, its next request may be
            larger than its limit.
        clock: Source of the time.
    """

    def __init__(self, max_pending_pictures: int, clock: Clock) -> None:
        self._pending: Counter[int] = Counter()  # by account
        self._max_pending_pictures = max_pending_pictures
        self._clock = clock
        self._finished: deque[tuple[float, int]] = deque()
        self._busy_since = clock.monotonic()
        self._last_pictures_per_s = INITIAL_PICTURES_PER_S

    @property
    def pending_pictures(self) -> int:
        """Number of pending images and video frames of all accounts, without requests that wait in the job queue."""
        return self._pending.total()

    def admit(
        self, account_id: int, pictures: int, waiting_requests: Mapping[int, int] = NO_WAITING_REQUESTS
    ) -> AbstractContextManager[None]:
        """Return a context manager. In its `with` block, the images and frames of a request count as pending.

        If the request is refused, an exception is raised instead.

        Args:
            account_id: Account that sent the request.
            pictures: Number of images and video frames of the request.
            waiting_requests: Account number → number of its requests in the job queue. Each request counts as one
                pending picture.

        Raises:
            ServiceOverloaded: the account has pending pictures, and would exceed its limit with this request.
        """
        pending = self._pending + Counter(waiting_requests)
        own = pending.pop(account_id, 0)
        total = left = TOTAL_TO_ACCOUNT_LIMIT_RATIO * self._max_pending_pictures
        for count in sorted(pending.values(), reverse=True):
            left -= min(count, math.ceil(left / 2))
        limit = math.ceil(left / 2)
        if own and own + pictures > limit:
            raise ServiceOverloaded(self._retry_after_s(own + total - left, own + pictures - limit))
        return self.reserve(account_id, pictures)

    @contextmanager
    def reserve(self, account_id: int, pictures: int) -> Iterator[None]:
        """Count `pictures` more images and video frames of an account as pending during the `with` block.

        Unlike `admit`, this method never refuses a request.
        """
        if not self._pending:
            self._busy_since = self._clock.monotonic()
        self._pending[account_id] += pictures
        try:
            yield
        finally:
            self._pending[account_id] -= pictures
            if not self._pending[account_id]:
                del self._pending[account_id]
            if not self._pending:  # the idle time that starts now must not lower the throughput
                self._last_pictures_per_s = self.pictures_per_s()
                self._finished.clear()

    def record_finished(self, pictures: int) -> None:
        """Record that `pictures` images and video frames have been analyzed, to measure the throughput."""
        self._finished.append((self._clock.monotonic(), pictures))
        self._drop_old_measurements()

    def pictures_per_s(self) -> float:
        """Return how many images and frames per second were analyzed in the last `WINDOW_S` seconds.

        Time without pending pictures does not count. If nothing was analyzed in this period, return the rate that was
        measured before the service was last idle, or `INITIAL_PICTURES_PER_S`.
        """
        self._drop_old_measurements()
        pictures = sum(count for _, count in self._finished)
        seconds = min(self._clock.monotonic() - self._busy_since, WINDOW_S)
        return pictures / seconds if pictures and seconds > 0 else self._last_pictures_per_s

    def _drop_old_measurements(self) -> None:
        before = self._clock.monotonic() - WINDOW_S
        while self._finished and self._finished[0][0] < before:
            self._finished.popleft()

    def _retry_after_s(self, waiting: int, excess: int) -> int:
        """Estimate the seconds until `excess` pictures are analyzed, or all `waiting` pictures if these are fewer.

        The result is rounded up to a whole number from `MIN_RETRY_S` to `MAX_RETRY_S`.
        """
        seconds = math.ceil(min(waiting, excess) / self.pictures_per_s())
        return min(max(seconds, MIN_RETRY_S), MAX_RETRY_S)
