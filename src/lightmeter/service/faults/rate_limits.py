"""Rate limiters for fault injection. Each decides whether a request is admitted now, or how long it must wait.

The caller passes the time, in seconds on a monotonic clock. No I/O.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from lightmeter.service.faults.config import Fault


class LimitCounter(ABC):
    """The state of one limit for one API key."""

    @abstractmethod
    def enter(self, now_s: float) -> float:
        """Return 0 and count the request if it is admitted; otherwise return the seconds until one can be."""

    def leave(self) -> None:  # noqa: B027 (most limits count only the start of a request)
        """Record that an admitted request has been answered."""


class TokenBucketLimit(LimitCounter):
    """Token-bucket limit. The bucket starts full and refills at a constant rate; each request takes one token.

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
    """Fixed-window limit. The first window starts at the first request; windows follow one another without gaps.

    Args:
        max_requests: Maximum requests in each window.
        window_s: Length of a window in seconds.
    """

    def __init__(self, max_requests: float, window_s: float) -> None:
        self._max_requests = max_requests
        self._window_s = window_s
        self._window_start_s: float | None = None
        self._count = 0

    def enter(self, now_s: float) -> float:
        """Count the request and return 0, or return the seconds until the next window if this one is full."""
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
    """Limit of requests at once. A rejected request always waits one second, because it is unknown when one ends.

    Args:
        max_requests: Maximum requests at once.
    """

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
    """Return a new counter for one API key of the limit that a fault describes."""
    if limit.bucket is not None:
        return TokenBucketLimit(limit.bucket, limit.burst)
    if limit.window is not None:
        return FixedWindowLimit(*limit.window)
    return ConcurrencyLimit(limit.cap or 1)


class LeakyBucketQueue:
    """Leaky-bucket queue: it rejects no request; requests leave it one at a time, at a constant rate.

    Args:
        per_s: Requests per second that leave the queue.
    """

    def __init__(self, per_s: float) -> None:
        self._interval_s = 1 / per_s
        self._next_start_s = float("-inf")

    def delay_s(self, now_s: float) -> float:
        """Add a request, and return the seconds that it must wait."""
        start_s = max(now_s, self._next_start_s)
        self._next_start_s = start_s + self._interval_s
        return start_s - now_s
