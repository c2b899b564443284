"""Backoff: nothing is sent for a while after a rejection, and for longer while only rejections come back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

_FIRST_PAUSE_S: Final = 0.5
"""Seconds of the pause after a first rejection, if no rate is known; the most seconds of this pause otherwise."""

_SHORTEST_PAUSE_S: Final = 0.02
"""Least seconds of the pause after a first rejection, if a rate is known."""

_DOUBLINGS: Final = 3
"""Number of rejections in a row that double the pause.

At each further rejection the pause grows by a half, so that the last pause is not much longer than necessary.
"""

_LONGEST_PAUSE_S: Final = 60.0
"""Most seconds of a pause, unless the service itself asks for a longer one."""

_TOKENS_PER_PAUSE: Final = 1.6
"""Number of tokens that the service's token bucket must regain during the pause after a first rejection.

Each accepted request takes one token, so the next request does not find the bucket empty again.
"""

_TRIAL_S: Final = 0.6
"""Seconds added, after several rejections in a row, to the wait for the outcome of a trial request.

Without this addition, the wait is twice the time that a rejection takes to arrive.
"""


class Backoff:
    """Decides how long nothing at all may be sent after rejections.

    While only rejections come back, a single trial request is sent after each pause. Times are in seconds on a
    monotonic clock; in all methods `now` is the present time.

    Args:
        jitter: Returns random numbers from 0 to 1. Half of a pause is fixed and half is random ("equal jitter"), so
            that clients which were rejected together do not return together.

    Attributes:
        blocked_until: Nothing may be sent before this time.
        retry_after_until: The latest time until which the service asked to wait.
        consecutive_rejections: How many pauses rejections have caused since the last accepted request.
        blocked_since: Time of the first rejection since the last accepted request.
        last_rejected_at: Time of the last rejection.
    """

    def __init__(self, jitter: Callable[[], float]) -> None:
        self._jitter = jitter
        self.blocked_until = float("-inf")
        self.retry_after_until = float("-inf")
        self.blocked_since = float("-inf")
        self.last_rejected_at = float("-inf")
        self.consecutive_rejections = 0
        self._trial_until = float("-inf")

    def wait_s(self, now: float) -> float:
        """Return the seconds from `now` (monotonic seconds) until a request may be sent; 0 if it may be sent now.

        During a pause, these are the rest of the pause. After a trial request, they are the rest of the time in which a
        rejection of the trial request may arrive.
        """
        if now < self.blocked_until:
            return self.blocked_until - now
        if self.consecutive_rejections and now < self._trial_until:
            return self._trial_until - now
        return 0.0

    def on_admitted(self, now: float, rejection_rtt_s: float) -> None:
        """Record that a request is sent at `now`, in monotonic seconds. After a rejection, it is the trial request.

        The next requests then wait until a rejection of the trial request would have arrived. `rejection_rtt_s` is the
        usual number of seconds from sending a request to its rejection; 0 if unknown.
        """
        if self.consecutive_rejections:
            extra_s = _TRIAL_S if self.consecutive_rejections > 1 or not rejection_rtt_s else 0.0
            self._trial_until = now + extra_s + 2 * rejection_rtt_s

    def start_backoff(self, now: float, rate: float | None) -> None:
        """Begin a pause at `now` (monotonic seconds) after a rejection; it is longer after each further one in a row.

        `rate` is the limit in requests per second, None if unknown. If it is known, the first pause is often shorter.
        """
        if not self.consecutive_rejections:
            self.blocked_since = now
        self.last_rejected_at = now
        if self.consecutive_rejections or rate is None:
            doublings = min(self.consecutive_rejections, _DOUBLINGS)
            increases = min(max(0, self.consecutive_rejections - _DOUBLINGS), 20)
            pause_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0**doublings * 1.5**increases)
        else:
            pause_s = min(_FIRST_PAUSE_S, max(_SHORTEST_PAUSE_S, _TOKENS_PER_PAUSE / rate))
        self.consecutive_rejections += 1
        self._trial_until = float("-inf")
        self.blocked_until = max(self.blocked_until, now + pause_s * (0.5 + 0.5 * min(1.0, max(0.0, self._jitter()))))

    def on_expected_reset(self, now: float, next_reset_at: float | None) -> None:
        """Replace the present pause by one until `next_reset_at`, when the service probably renews a quota.

        `now` and `next_reset_at` are in monotonic seconds. The new pause lasts at most 60 s, but never ends before the
        time that the service itself asked for. If `next_reset_at` is None or past, the present pause does not change.
        """
        if next_reset_at is not None and next_reset_at > now:
            self.blocked_until = max(self.retry_after_until, min(next_reset_at, now + _LONGEST_PAUSE_S))

    def on_retry_after(self, until: float) -> None:
        """Send nothing before the time `until`, in monotonic seconds.

        The service asked for this, by the header Retry-After or by a quota that is used up (header RateLimit).
        """
        self.retry_after_until = max(self.retry_after_until, until)
        self.blocked_until = max(self.blocked_until, until)

    def on_accepted(self) -> None:
        """End the series of rejections, because the service accepted a request that was sent after the last one."""
        self.consecutive_rejections = 0
        self._trial_until = float("-inf")
