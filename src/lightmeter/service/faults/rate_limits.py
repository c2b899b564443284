"""Hidden limits as services have them: each says at an instant whether a request goes in, or when one would. Pure."""

from __future__ import annotations

from typing import Protocol

from lightmeter.service.faults.kinds import LimitAlgorithm, RateLimitFault

__all__ = ["ConcurrencyLimit", "FixedWindowLimit", "LeakyBucketQueue", "LimitCounter", "TokenBucketLimit", "counter"]


class LimitCounter(Protocol):
    """What a limit knows of one key. Times are seconds on a clock that never steps."""

    def enter(self, now_s: float) -> float:
        """0 if the request goes in; otherwise seconds until one would."""
        ...

    def leave(self) -> None:
        """A request that went in has been answered."""
        ...


class TokenBucketLimit:
    """Fills evenly, is full at first, and each request takes one.

    Args:
        per_s: Requests a second.
        burst: What it holds when it is full, 1 or more.
    """

    def __init__(self, per_s: float, burst: float) -> None:
        self._per_s = per_s
        self._burst = burst
        self._level = burst
        self._at_s: float | None = None

    def enter(self, now_s: float) -> float:
        """Take one if there is one."""
        if self._at_s is not None:
            self._level = min(self._burst, self._level + (now_s - self._at_s) * self._per_s)
        self._at_s = now_s
        if self._level < 1 - 1e-9:  # what adds up to one over many fractions of a second is one
            return (1 - self._level) / self._per_s
        self._level -= 1
        return 0.0

    def leave(self) -> None:
        """It counts beginnings alone."""


class FixedWindowLimit:
    """So many in each window; windows follow one another from the first request on, whether anybody comes or not."""

    def __init__(self, most: float, seconds: float) -> None:
        self._most = most
        self._seconds = seconds
        self._began_s: float | None = None
        self._count = 0

    def enter(self, now_s: float) -> float:
        """Count it, if the window has room."""
        if self._began_s is None:
            self._began_s = now_s
        elapsed = now_s - self._began_s
        if elapsed >= self._seconds:
            self._began_s += elapsed // self._seconds * self._seconds
            self._count = 0
        if self._count + 1 > self._most:
            return self._began_s + self._seconds - now_s
        self._count += 1
        return 0.0

    def leave(self) -> None:
        """It counts beginnings alone."""


class ConcurrencyLimit:
    """So many at once. When one will leave is not known: a second is said."""

    def __init__(self, most: float) -> None:
        self._most = most
        self._inside = 0

    def enter(self, now_s: float) -> float:  # noqa: ARG002 (of the protocol)
        """Count it, if there is room."""
        if self._inside + 1 > self._most:
            return 1.0
        self._inside += 1
        return 0.0

    def leave(self) -> None:
        """Its place is free."""
        self._inside -= 1


def counter(limit: RateLimitFault) -> LimitCounter:
    """A fresh counter of a limit, for one key."""
    if limit.shape is LimitAlgorithm.BUCKET:
        return TokenBucketLimit(limit.most, limit.burst)
    if limit.shape is LimitAlgorithm.WINDOW:
        return FixedWindowLimit(limit.most, limit.window_s)
    return ConcurrencyLimit(limit.most)


class LeakyBucketQueue:
    """A queue that nobody is turned away from: one after another, evenly.

    Args:
        per_s: How fast it moves.
    """

    def __init__(self, per_s: float) -> None:
        self._every_s = 1 / per_s
        self._free_s = float("-inf")

    def wait(self, now_s: float) -> float:
        """How long whoever comes now waits, in seconds."""
        turn_s = max(now_s, self._free_s)
        self._free_s = turn_s + self._every_s
        return turn_s - now_s
