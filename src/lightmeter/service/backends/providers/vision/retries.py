"""Retries of one provider's calls: which failures pass, how long to wait, and when to give up."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final, Literal, TypeAlias, TypeVar

from lightmeter.errors import BackendError
from lightmeter.service.backends.providers.provider import ProviderSettings, Usage

__all__ = [
    "BACKOFF_S",
    "MAX_BACKOFF_S",
    "FailureKind",
    "VisionCallFailed",
    "VisionRetrier",
    "retry_after_seconds",
]

T = TypeVar("T")

FailureKind: TypeAlias = Literal["throttled", "timeout", "refused", "broken", "malformed"]

BACKOFF_S: Final = 0.5
"""Longest random wait before the second call, in seconds; it doubles with each further call."""

MAX_BACKOFF_S: Final = 8.0
"""Bound of the random wait, in seconds."""

MAX_MESSAGE_CHARS: Final = 200
"""Length to which a provider's own text is shortened."""

_MIN_SECRET_CHARS: Final = 4
"""Shorter strings are no keys, and would be cut out of ordinary words."""

_HTTP_THROTTLED: Final = 429
_HTTP_TIMEOUT: Final = 408
_HTTP_BROKEN: Final = 500

_SENTENCES: Final[dict[FailureKind, str]] = {
    "throttled": "the provider limits the rate of calls",
    "timeout": "the provider did not answer in time",
    "refused": "the provider refused the call",
    "broken": "the provider could not be reached or failed",
    "malformed": "the provider's answer cannot be read",
}


class VisionCallFailed(Exception):
    """One call of a provider failed. Raised by the code that makes the call, caught by `Retries.run`.

    Args:
        kind: What went wrong, as `ProviderMetrics` counts it.
        message: The provider's own text, or that of the connection.
        passing: Whether the same call may succeed a moment later.
        retry_after_s: Seconds that the provider asks to wait; None where it does not say.
    """

    def __init__(
        self, kind: FailureKind, message: str, *, passing: bool = False, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.passing = passing
        self.retry_after_s = retry_after_s

    @classmethod
    def from_status(cls, status: int, message: str, retry_after_s: float | None = None) -> VisionCallFailed:
        """The failure that an HTTP status other than 2xx stands for.

        Args:
            status: 429 is throttling; 408 and 500 to 599 may pass; everything else is a refusal.
            message: The provider's own text; empty where it gave none.
            retry_after_s: Seconds that the provider asks to wait.
        """
        text = f"HTTP {status}: {message}" if message else f"HTTP {status}"
        if status == _HTTP_THROTTLED:
            return cls("throttled", text, passing=True, retry_after_s=retry_after_s)
        if status == _HTTP_TIMEOUT:
            return cls("timeout", text, passing=True, retry_after_s=retry_after_s)
        if status >= _HTTP_BROKEN:
            return cls("broken", text, passing=True, retry_after_s=retry_after_s)
        return cls("refused", text)


def retry_after_seconds(value: str | None, now: float) -> float | None:
    """Read the header `Retry-After` (RFC 9110, section 10.2.3).

    Args:
        value: Seconds, also with a fraction, or an HTTP date; None where the header is missing.
        now: Seconds since the epoch.

    Returns:
        Seconds from now, 0 or more; None for what is neither form.
    """
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            date = parsedate_to_datetime(value)
        except ValueError:
            return None
        seconds = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - now
        return max(0.0, seconds)
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


class VisionRetrier:
    """Makes calls of one provider until one succeeds, with bounded waits between them.

    Before call n + 1 it waits for as long as the provider asks, plus a random time between 0 and
    min(`MAX_BACKOFF_S`, `BACKOFF_S` * 2^(n-1)) seconds, so that callers that were throttled together do not come back
    together. It gives up when a failure does not pass, after `max_attempts` calls, and where the wait would be longer
    than `max_pause_s` or end after the deadline of the picture.

    Args:
        settings: Name, limits, metrics and keys.
        secrets: Further strings that no message may show, beside the keys.
        sleep: Waits so many seconds.
        monotonic: Seconds on a clock that never steps.
        uniform: A random number between two bounds.
    """

    def __init__(
        self,
        settings: ProviderSettings,
        secrets: Sequence[str] = (),
        *,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._name = settings.name
        self._max_attempts = settings.max_attempts
        self._deadline_s = settings.deadline_s
        self._max_pause_s = settings.max_pause_s
        self._metrics = settings.metrics
        keys = (settings.api_key, settings.api_secret)
        self._secrets = [*secrets, *(key.get_secret_value() for key in keys if key is not None)]
        self._sleep = sleep
        self._monotonic = monotonic
        self._uniform = uniform

    def deadline(self) -> float:
        """The deadline of a picture whose first call starts now, on the clock `monotonic`."""
        return self._monotonic() + self._deadline_s

    def run(self, model: str, call: Callable[[], T], deadline: float) -> T:
        """Make a call until it succeeds; count each.

        Args:
            model: Model or operation that is called, for the metrics.
            call: Makes one call and reads its answer; raises `CallFailed`.
            deadline: From `deadline()`; all calls for a picture share one.

        Raises:
            BackendError: it gave up; the message is what the caller of the service reads, without any secret.
        """
        if self._monotonic() > deadline:  # an earlier call for the same picture took too long
            raise BackendError(f"{_SENTENCES['timeout']}: no time was left for {model}")
        attempt = 1
        while True:
            try:
                answer = call()
            except VisionCallFailed as failure:
                self._metrics.provider_error(self._name, failure.kind)
                wait = (failure.retry_after_s or 0.0) + self._backoff(attempt)
                last = not failure.passing or attempt >= self._max_attempts or wait > self._max_pause_s
                if last or self._monotonic() + wait > deadline:
                    raise BackendError(self._sentence(failure, attempt)) from None
                self._sleep(wait)
                attempt += 1
            else:
                self._metrics.provider_usage(self._name, Usage(model))
                return answer

    def _backoff(self, attempt: int) -> float:
        return self._uniform(0.0, min(MAX_BACKOFF_S, BACKOFF_S * 2 ** min(attempt - 1, 10)))

    def _sentence(self, failure: VisionCallFailed, attempts: int) -> str:
        calls = f" ({attempts} calls)" if attempts > 1 else ""
        return f"{_SENTENCES[failure.kind]}{calls}: {self._shortened(str(failure))}"

    def _shortened(self, text: str) -> str:
        for secret in self._secrets:
            if len(secret) >= _MIN_SECRET_CHARS:
                text = text.replace(secret, "***")
        printable = "".join(char if char.isprintable() else " " for char in text)
        words = " ".join(printable.split())
        return words if len(words) <= MAX_MESSAGE_CHARS else f"{words[: MAX_MESSAGE_CHARS - 1]}…"
