"""Backoff: nothing is sent for a while after a rejection, and for longer while only rejections come back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

_FIRST_PAUSE_S: Final = 0.5
_SHORTEST_PAUSE_S: Final = 0.02
"""Longest and shortest pause after a first rejection, in seconds: the longest one while no rate is known."""

_DOUBLINGS: Final = 3
"""Number of times that the pause doubles; then it grows by a half, so that less of the last pause is wasted."""

_LONGEST_PAUSE_S: Final = 60.0
"""Longest pause that is not requested by the service, in seconds."""

_TOKENS_PER_PAUSE: Final = 1.6
"""Tokens that a bucket must regain during a pause, so that the next request does not find it empty again."""

_TRIAL_S: Final = 0.6
"""Seconds granted to a trial request after several rejections, on top of twice the time that a rejection takes."""


class Backoff:
    """Decides how long nothing at all may be sent after rejections.

    While only rejections come back, one trial request at a time is sent after each pause. Times are in seconds, on any
    clock that never steps; in all methods `now` is the present time.

    Args:
        jitter: Returns random numbers from 0 to 1. Half of a pause is fixed and half is random ("equal jitter"), so
            that clients which were rejected together do not return together.

    Attributes:
        blocked_until: Nothing may be sent before this time.
        retry_after_until: The latest time until which the service asked to wait.
        consecutive_rejections: Number of pauses that rejections began since the last accepted request.
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
        """Return the seconds from `now` until a request may be sent.

        They are the rest of a pause, or of the wait for the outcome of a trial request.
        """
        if now < self.blocked_until:
            return self.blocked_until - now
        if self.consecutive_rejections and now < self._trial_until:
            return self._trial_until - now
        return 0.0

    def on_admitted(self, now: float, rejection_rtt_s: float) -> None:
        """Record that a request is sent now; after rejections, it is the trial request.

        The next requests then wait until a rejection of the trial would have arrived. `rejection_rtt_s` is the usual
        number of seconds from sending a request to its rejection.
        """
        if self.consecutive_rejections:
            extra_s = _TRIAL_S if self.consecutive_rejections > 1 or not rejection_rtt_s else 0.0
            self._trial_until = now + extra_s + 2 * rejection_rtt_s

    def start_backoff(self, now: float, rate: float | None) -> None:
        """Begin a pause after a rejection.

        The first pause may be shorter if `rate`, the limit in requests per second, is known; None: unknown.
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
        """Pause until `next_reset_at`, when the service probably renews a quota, but at most 60 s; None: no change.

        A pause that the service itself asked for is not shortened.
        """
        if next_reset_at is not None and next_reset_at > now:
            self.blocked_until = max(self.retry_after_until, min(next_reset_at, now + _LONGEST_PAUSE_S))

    def on_retry_after(self, until: float) -> None:
        """Send nothing before the time `until`, which the service asked for (header Retry-After)."""
        self.retry_after_until = max(self.retry_after_until, until)
        self.blocked_until = max(self.blocked_until, until)

    def on_accepted(self) -> None:
        """End the pauses: a request that was sent after the last rejection was accepted."""
        self.consecutive_rejections = 0
        self._trial_until = float("-inf")
