"""Calls a provider again after throttling and passing errors, within limits.

The SDKs retry by themselves, but a throttled call of theirs does not hold back the other threads, and the sum of calls
and pauses has no limit. So their retries are switched off, and this takes their place.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

from lightmeter.service.backends.providers.description.failures import DescriptionCallFailed, FailureKind
from lightmeter.service.backends.providers.provider import ProviderSettings

__all__ = ["DescriptionRetrier"]

FIRST_PAUSE_S: Final = 0.5
"""Pause after the first failure where the provider names none; doubled after each further one."""

_SPREAD: Final = 0.25
"""Pauses vary by up to this share, so that calls that failed together are not repeated together."""

T = TypeVar("T")


class DescriptionRetrier:
    """Calls one provider; used by several threads at once.

    Throttling holds back all threads: after "too many requests" no call is sent before the time that the provider
    named, whichever thread it was said to.

    Args:
        settings: Of the provider: limits, and where failures are counted.
        now: Monotonic clock, in seconds.
        sleep: Waits for so many seconds.
    """

    def __init__(
        self,
        settings: ProviderSettings,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._settings = settings
        self._now = now
        self._sleep = sleep
        self._lock = threading.Lock()
        self._not_before = 0.0

    def call(self, once: Callable[[float], T]) -> T:
        """Call until it succeeds, or until attempts or time are used up.

        Args:
            once: Makes one call that takes at most so many seconds.

        Returns:
            What `once` returns.

        Raises:
            CallFailed: the last failure.
        """
        deadline = self._now() + self._settings.deadline_s
        attempt = 0
        while True:
            attempt += 1
            left_s = self._await_turn(deadline)
            try:
                return once(min(self._settings.timeout_s, left_s))
            except DescriptionCallFailed as failed:
                self._settings.metrics.provider_error(self._settings.name, failed.kind)
                self._pause(attempt, failed, deadline)

    def _await_turn(self, deadline: float) -> float:
        """Wait while the provider throttles; the seconds left then, more than 0."""
        while (held_back_s := self._held_back_s()) > 0:
            pause = self._spread(held_back_s)
            if self._now() + pause >= deadline:
                raise DescriptionCallFailed(
                    "The provider is throttling; too many calls wait for it.", FailureKind.THROTTLED
                )
            self._sleep(pause)
        left_s = deadline - self._now()
        if left_s <= 0:  # a sleep lasted longer than it should
            raise DescriptionCallFailed("The provider did not answer in time.", FailureKind.TIMEOUT)
        return left_s

    def _held_back_s(self) -> float:
        with self._lock:
            return self._not_before - self._now()

    def _pause(self, attempt: int, failed: DescriptionCallFailed, deadline: float) -> None:
        """Wait before another call, or raise where there is to be none."""
        longest = self._settings.max_pause_s
        own = min(longest, FIRST_PAUSE_S * 2 ** (attempt - 1))
        pause = failed.wait_s or own
        is_last = not failed.retry or attempt >= self._settings.max_attempts or pause > longest
        if failed.kind is FailureKind.THROTTLED or failed.wait_s:
            with self._lock:
                self._not_before = max(self._not_before, self._now() + min(pause, longest))
        pause = self._spread(pause)
        if is_last or self._now() + pause >= deadline:
            raise failed
        self._sleep(pause)

    @staticmethod
    def _spread(pause: float) -> float:
        return pause * (1 + _SPREAD * random.random())  # noqa: S311 (spreads calls, guards nothing)
