"""Classes for two kinds of faults that the service makes on purpose: rate limits, and a queue that delays requests.

They do not read a clock: the caller passes the time of each request, in seconds on a monotonic clock.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from lightmeter.service.faults.config import Fault


class LimitCounter(ABC):
    """A rate limit for the requests with one API key. The service applies it on purpose, as a fault.

    The service calls `enter` before it processes a request. If the limit allows the request, the service processes it,
    and calls `leave` after the answer.
    """

    @abstractmethod
    def enter(self, now_s: float) -> float:
        """Check whether a request that arrives at `now_s` is allowed.

        If it is, count it and return 0. If it is not, return the seconds until the limit will allow a request.
        `now_s` is seconds on a monotonic clock.
        """

    def leave(self) -> None:  # noqa: B027 (most limits count only the start of a request)
        """Record that a request has been answered. Call this only for requests that `enter` has allowed."""


class TokenBucketLimit(LimitCounter):
    """Token-bucket limit: each request takes a token. If the bucket has no token, the request is refused.

    The bucket starts full, and gets new tokens at a constant rate.

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
        """Take a token for a request that arrives at `now_s`, and return 0.

        If the bucket has no token, return the seconds until it has one. `now_s` is seconds on a monotonic clock.
        """
        if self._updated_s is not None:
            self._tokens = min(self._burst, self._tokens + (now_s - self._updated_s) * self._per_s)
        self._updated_s = now_s
        if self._tokens < 1 - 1e-9:  # many small refills may add up to slightly less than one token
            return (1 - self._tokens) / self._per_s
        self._tokens -= 1
        return 0.0


class FixedWindowLimit(LimitCounter):
    """Limit of the number of requests in each period, such as a minute. The first request starts the first period.

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
        """Count a request that arrives at `now_s`, and return 0.

        If the maximum of requests in this period is reached, return the seconds until the period ends. `now_s` is
        seconds on a monotonic clock.
        """
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
    """Limit of requests that run at the same time. A refused client is always told to wait for one second.

    Args:
        max_requests: Maximum requests that run at the same time, 1 or more.
    """

    def __init__(self, max_requests: float) -> None:
        self._max_requests = max_requests
        self._running = 0

    def enter(self, now_s: float) -> float:  # noqa: ARG002 (of the protocol)
        """Count a request as running, and return 0.

        If the maximum of requests is already running, return 1: the seconds that the client should wait. `now_s` is not
        used.
        """
        if self._running + 1 > self._max_requests:
            return 1.0
        self._running += 1
        return 0.0

    def leave(self) -> None:
        """Remove a request that has been answered from the count of running requests."""
        self._running -= 1


def limit_counter(limit: Fault) -> LimitCounter:
    """Return a new rate limit for the requests with one API key. The fault `limit` says its type and settings."""
    if limit.bucket is not None:
        return TokenBucketLimit(limit.bucket, limit.burst)
    if limit.window is not None:
        return FixedWindowLimit(*limit.window)
    return ConcurrencyLimit(limit.cap or 1)


class LeakyBucketQueue:
    """Queue that delays requests: they start in order of arrival, at most `per_s` requests a second.

    The queue has no maximum length, so no request is refused.
    """

    def __init__(self, per_s: float) -> None:
        self._interval_s = 1 / per_s
        self._next_start_s = float("-inf")

    def delay_s(self, now_s: float) -> float:
        """Add a request to the queue, and return the seconds until it may start, 0 or more.

        The request arrives at `now_s`, seconds on a monotonic clock.
        """
        start_s = max(now_s, self._next_start_s)
        self._next_start_s = start_s + self._interval_s
        return start_s - now_s
