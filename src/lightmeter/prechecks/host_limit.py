"""Limits how many requests the pre-checks send to one host at once; the limit adapts to the host's responses.

When the limit is reached, each quick response raises it by one, up to the maximum. It shrinks when responses get slow
or the host refuses requests. After many failed requests in a row, the host gets no requests for a while.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

START_LIMIT: Final = 8
"""Number of simultaneous requests that a host is allowed at first."""

MAX_FAILURES: Final = 16
"""After this many failed requests in a row (`HostLimit.failed`), a host gets no requests for `SKIP_S` seconds."""

SKIP_S: Final = 60.0
"""Seconds for which a host gets no requests after `MAX_FAILURES` failed requests in a row."""

_SLOW_FACTOR: Final = 2.0
"""A response is slow if it takes longer than this times the host's quickest response, plus `_SLOW_MARGIN_S`."""
_SLOW_MARGIN_S: Final = 0.1
"""Seconds that are added to the time at which a response counts as slow; see `_SLOW_FACTOR`."""


class HostLimit:
    """Limit on the simultaneous requests to one host; it adapts to how the host responds.

    The caller passes the present time (`now_s`), in seconds on a monotonic clock.

    Args:
        max_limit: Upper bound of the limit.

    Attributes:
        limit: Number of requests that may be in flight at present; a fraction is cut off.
        in_flight: Number of requests in flight.
    """

    def __init__(self, max_limit: int) -> None:
        self.limit: float = min(START_LIMIT, max_limit)
        self.in_flight = 0
        self._max_limit = max_limit
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._quickest_s = float("inf")
        self._failures = 0
        self._last_failure = ""
        self._skip_until_s = float("-inf")
        self._shrunk_at_s = float("-inf")

    @property
    def is_idle(self) -> bool:
        """Whether no request to the host is in flight or waits to be sent."""
        return not self.in_flight and not self._waiting

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Wait until one more request to the host may be sent; it counts as in flight during the `with` block."""
        while self.in_flight >= int(self.limit):
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                self._wake_up()  # another waiting task gets this turn
                raise
        self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1
            self._wake_up()

    def _wake_up(self) -> None:
        free = int(self.limit) - self.in_flight
        while free > 0 and self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                free -= 1

    def answered(self, seconds: float | None, now_s: float) -> None:
        """Record that the host responded after `seconds`: a slow response lowers the limit, a quick one may raise it.

        If `seconds` is None, the limit stays the same: the time of this response says nothing about the host. `now_s`
        is the present time of a monotonic clock.
        """
        self._failures = 0
        if seconds is None:
            return
        self._quickest_s = min(self._quickest_s, seconds)
        if seconds > self._quickest_s * _SLOW_FACTOR + _SLOW_MARGIN_S:
            self._shrink(0.9, now_s)
        elif self.in_flight >= int(self.limit):
            self.limit = min(self.limit + 1, self._max_limit)

    def refused(self, now_s: float) -> None:
        """Lower the limit: at `now_s` (monotonic clock), the host refused a request because it gets too many."""
        self._shrink(0.5, now_s)

    def failed(self, reason: str, now_s: float) -> None:
        """Record that a request to the host failed, and lower the limit. `reason` says why it failed.

        A request fails if the host gives no answer, or refuses it each time it is sent. After `MAX_FAILURES` failed
        requests in a row, the host is skipped for `SKIP_S` seconds from `now_s`, the present time of a monotonic clock.
        """
        self._failures += 1
        self._last_failure = reason
        self._shrink(0.5, now_s)
        if self._failures >= MAX_FAILURES:
            self._skip_until_s = now_s + SKIP_S

    def skip_reason(self, now_s: float) -> str | None:
        """Return why the host's last failed request failed, if the host is skipped at present; otherwise None.

        A host is skipped for a while after many failures. `now_s` is the present time of a monotonic clock.
        """
        return self._last_failure if now_s < self._skip_until_s else None

    def _shrink(self, factor: float, now_s: float) -> None:
        """Multiply the limit by `factor` (below 1), unless it was lowered a moment ago.

        A moment is the time of the host's quickest response, but at most one second. `now_s` is the present time of a
        monotonic clock.
        """
        if now_s - self._shrunk_at_s >= min(self._quickest_s, 1.0):
            self._shrunk_at_s = now_s
            self.limit = max(1.0, self.limit * factor)
