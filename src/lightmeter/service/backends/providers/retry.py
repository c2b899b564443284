"""Repeats provider calls after throttling and transient errors, with limits on their number and time.

The SDKs' own retries are switched off. They would not hold back other threads after throttling, and the sum of their
calls and pauses would have no limit.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from lightmeter.errors import BackendError
from lightmeter.service.backends.providers.failures import CallFailed, FailureKind, redact
from lightmeter.service.backends.providers.provider import ProviderSettings

FIRST_PAUSE_S: Final = 0.5
"""Pause after the first failed call of a picture, in seconds, if the provider requests no pause. It doubles after
each further failed call."""

JITTER: Final = 0.25
"""Each pause is made longer by a random fraction between 0 and this. Otherwise, calls that failed together would
also be repeated together."""

T = TypeVar("T")

_SENTENCES: Final = {
    FailureKind.THROTTLED: "The provider limits the rate of calls",
    FailureKind.TIMEOUT: "The provider did not answer in time",
    FailureKind.REFUSED: "The provider refused the call",
    FailureKind.BROKEN: "The provider could not be reached or failed",
    FailureKind.MALFORMED: "The provider's answer cannot be read",
}


class Retrier:
    """Repeats failed calls of one provider. All threads that call this provider share one `Retrier`.

    All threads wait before their next call if one call fails because of the provider's rate limit, or if the provider
    requests a pause. They wait for the requested time. If no time is requested, they wait for `FIRST_PAUSE_S`, doubled
    for each earlier failed attempt of the same call. The wait is at most `max_pause_s` of the settings, plus jitter.

    Args:
        settings: Limits, keys, and the metrics that count failures.
        secrets: Strings that no message may show, in addition to the keys.
        monotonic: Returns the time of a monotonic clock, in seconds.
        sleep: Waits for a number of seconds.
        uniform: Returns a random number between two bounds.
    """

    def __init__(
        self,
        settings: ProviderSettings,
        secrets: Iterable[str] = (),
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._settings = settings
        self._secrets = (*settings.secrets, *secrets)
        self._monotonic = monotonic
        self._sleep = sleep
        self._uniform = uniform
        self._lock = threading.Lock()
        self._not_before = 0.0
        self._is_closed = False

    def close(self) -> None:
        """Make no more calls; those that were made already go on."""
        self._is_closed = True

    def deadline(self) -> float:
        """Return the time by which a picture must be analyzed if its first call starts now.

        The time is in seconds on the clock `monotonic`.
        """
        return self._monotonic() + self._settings.deadline_s

    def run(self, call: Callable[[float], T], deadline: float) -> T:
        """Return the result of `call`. Repeat the call after transient failures, while attempts and time are left.

        Args:
            call: Makes one call; its argument is the longest time that the call may take, in seconds.
            deadline: Result of `deadline()`; all calls for one picture have the same deadline.

        Raises:
            BackendError: the call did not succeed, the time was too short for it, or the retrier is closed; the message
                says why, without any key.
        """
        attempt = 0
        while True:
            attempt += 1
            try:
                left_s = self._wait_while_throttled(deadline)
                if self._is_closed:
                    raise BackendError("The service is stopping.")
                return call(min(self._settings.timeout_s, left_s))
            except CallFailed as failure:
                pause_s = self._pause_after(failure, attempt)
                if pause_s is None or self._monotonic() + pause_s >= deadline:
                    calls = f" ({attempt} calls)" if attempt > 1 else ""
                    details = redact(str(failure), self._secrets)
                    raise BackendError(f"{_SENTENCES[failure.kind]}{calls}: {details}") from None
            self._sleep(pause_s)

    def _wait_while_throttled(self, deadline: float) -> float:
        """Wait as long as the rate limit holds back all threads; return the seconds left until `deadline`, above 0.

        Raises:
            BackendError: the wait would reach the deadline, or the deadline has already passed.
        """
        while (wait_s := self._throttled_for_s()) > 0:
            pause_s = self._with_jitter(wait_s)
            if self._monotonic() + pause_s >= deadline:
                raise BackendError(f"{_SENTENCES[FailureKind.THROTTLED]}: too many calls wait for it.")
            self._sleep(pause_s)
        left_s = deadline - self._monotonic()
        if left_s <= 0:
            raise BackendError(f"{_SENTENCES[FailureKind.TIMEOUT]}: no time was left for another call.")
        return left_s

    def _throttled_for_s(self) -> float:
        with self._lock:
            return self._not_before - self._monotonic()

    def _pause_after(self, failure: CallFailed, attempt: int) -> float | None:
        """Record a failed call; return the seconds to wait before the call is repeated.

        Return None if the call must not be repeated. `attempt` is 1 if the first call failed, 2 if its first repetition
        failed, and so on.
        """
        settings = self._settings
        settings.metrics.provider_error(settings.name, failure.kind)
        pause_s = failure.retry_after_s or min(settings.max_pause_s, FIRST_PAUSE_S * 2 ** (attempt - 1))
        if failure.kind is FailureKind.THROTTLED or failure.retry_after_s:
            with self._lock:
                self._not_before = max(self._not_before, self._monotonic() + min(pause_s, settings.max_pause_s))
        if not failure.is_transient or attempt >= settings.max_attempts or pause_s > settings.max_pause_s:
            return None
        return self._with_jitter(pause_s)

    def _with_jitter(self, pause_s: float) -> float:
        return pause_s * self._uniform(1.0, 1.0 + JITTER)
