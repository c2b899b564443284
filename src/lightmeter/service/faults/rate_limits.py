"""Rate limits of requests, which the service injects as faults. `now_s` is the time on a monotonic clock."""

from __future__ import annotations

from abc import ABC, abstractmethod

from lightmeter.service.faults.config import Fault


class LimitCounter(ABC):
    """A rate limit for one API key, with the count of its requests."""

    @abstractmethod
    def enter(self, now_s: float) -> float:
        """Return 0 and count the request if the limit allows it; otherwise return the seconds until it would."""

    def leave(self) -> None:  # noqa: B027 (most limits count only the start of a request)
        """Record that a request, which the limit allowed, has been answered."""


class TokenBucketLimit(LimitCounter):
    """Token-bucket limit: each request takes a token; the bucket starts full and gets tokens at a constant rate.

    Args:
        per_s: Tokens added per second.
        burst: Tokens in a full bucket, 1 or more.
    """

    def __init__(self, per_s: float, burst: float) -> None:
        self._per_s = per_s
        self._burst = burst
        self._tokens = burst
        self._updated_s: float | None = None

    def enter(self, now_s: float) -> float:
        """Take a token and return 0, or return the seconds until the next token."""
        if self._updated_s is not None:
            self._tokens = min(self._burst, self._tokens + (now_s - self._updated_s) * self._per_s)
        self._updated_s = now_s
        if self._tokens < 1 - 1e-9:  # many small refills may add up to slightly less than one token
            return (1 - self._tokens) / self._per_s
        self._tokens -= 1
        return 0.0


class FixedWindowLimit(LimitCounter):
    """Limit of requests in each period. The first period starts at the first request.

    Args:
        max_requests: Maximum requests in each period.
        window_s: Length of a period in seconds.
    """

    def __init__(self, max_requests: float, window_s: float) -> None:
        self._max_requests = max_requests
        self._window_s = window_s
        self._window_start_s: float | None = None
        self._count = 0

    def enter(self, now_s: float) -> float:
        """Count the request and return 0, or return the seconds until the next period if this one has its maximum."""
        if self._window_start_s is None:
            self._window_start_s = now_s
        elapsed_s = now_s - self._window_start_s
        if elapsed_s >= self._window_s:
            self._window_start_s += elapsed_s // self._window_s * self._window_s
            self._count = 0
        if self._count + 1 > self._max_requests:
            return self._window_start_s + self._window_s - now_s
        self._count += 1
        return 0.0


class ConcurrencyLimit(LimitCounter):
    """Limit of requests at once. A refused request must wait one second, as it is unknown when another one ends."""

    def __init__(self, max_requests: float) -> None:
        self._max_requests = max_requests
        self._running = 0

    def enter(self, now_s: float) -> float:  # noqa: ARG002 (of the protocol)
        """Count the request and return 0 if fewer than the maximum run; otherwise return 1."""
        if self._running + 1 > self._max_requests:
            return 1.0
        self._running += 1
        return 0.0

    def leave(self) -> None:
        """Remove a request that has been answered from the count."""
        self._running -= 1


def limit_counter(limit: Fault) -> LimitCounter:
    """Return a new counter, for one API key, of the rate limit that a fault describes."""
    if limit.bucket is not None:
        return TokenBucketLimit(limit.bucket, limit.burst)
    if limit.window is not None:
        return FixedWindowLimit(*limit.window)
    return ConcurrencyLimit(limit.cap or 1)


class LeakyBucketQueue:
    """Queue that requests leave one at a time, at a constant rate per second; none is refused."""

    def __init__(self, per_s: float) -> None:
        self._interval_s = 1 / per_s
        self._next_start_s = float("-inf")

    def delay_s(self, now_s: float) -> float:
        """Add a request, and return the seconds that it must wait."""
        start_s = max(now_s, self._next_start_s)
        self._next_start_s = start_s + self._interval_s
        return start_s - now_s
