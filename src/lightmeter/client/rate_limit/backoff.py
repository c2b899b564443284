"""The door: shut for a while after a rejection, longer while only rejections come back, and knocked at one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

__all__ = ["Backoff"]

_FIRST_PAUSE_S: Final = 0.5
_SHORTEST_PAUSE_S: Final = 0.02
# Pauses double so often, then grow by a half: who doubles them on comes back half of the time too late.
_DOUBLED: Final = 3
_LONGEST_PAUSE_S: Final = 60.0
# What a bucket must regain, so that the next request does not find it empty again.
_TOKENS: Final = 1.6
_KNOCK_S: Final = 0.6


class Backoff:
    """When nothing may leave at all.

    Args:
        jitter: Numbers from 0 to 1: pauses of our own are half fixed, half by chance ("equal jitter"), so that
            clients that were rejected together do not come back together.

    Attributes:
        blocked_until: Nothing may leave before.
        retry_after_until: The part of it that the service asked for.
        misses: Episodes in a row with nothing taken in between.
        blocked_since: When the present series of episodes began.
        last_rejected_at: When its last one began.
    """

    def __init__(self, jitter: Callable[[], float]) -> None:
        self._jitter = jitter
        self.blocked_until = float("-inf")
        self.retry_after_until = float("-inf")
        self.blocked_since = float("-inf")
        self.last_rejected_at = float("-inf")
        self.misses = 0
        self._knocked_until = float("-inf")

    def wait_s(self, now: float) -> float:
        """Seconds until the door may be open; after a miss, one request finds out whether it is."""
        if now < self.blocked_until:
            return self.blocked_until - now
        if self.misses and now < self._knocked_until:
            return self._knocked_until - now
        return 0.0

    def on_admitted(self, now: float, rejection_rtt_s: float) -> None:
        """A request may leave; after a miss it is the one that knocks.

        It is waited for as long as rejections take to come, `rejection_rtt_s`, not until its answer comes.
        """
        if self.misses:
            self._knocked_until = (
                now + (_KNOCK_S if self.misses > 1 or not rejection_rtt_s else 0.0) + 2 * rejection_rtt_s
            )

    def start_backoff(self, now: float, rate: float | None) -> None:
        """An episode begins; `rate` is the learned limit, None while there is none."""
        if not self.misses:
            self.blocked_since = now
        self.last_rejected_at = now
        if self.misses or rate is None:
            doubled, grown = min(self.misses, _DOUBLED), min(max(0, self.misses - _DOUBLED), 20)
            pause_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0**doubled * 1.5**grown)
        else:
            pause_s = min(_FIRST_PAUSE_S, max(_SHORTEST_PAUSE_S, _TOKENS / rate))
        self.misses += 1
        self._knocked_until = float("-inf")
        self.blocked_until = max(self.blocked_until, now + pause_s * (0.5 + 0.5 * min(1.0, max(0.0, self._jitter()))))

    def on_expected_reset(self, now: float, opening: float | None) -> None:
        """It will be open again at `opening` at the soonest, as far as is known: no use in knocking before."""
        if opening is not None and opening > now:
            self.blocked_until = max(self.retry_after_until, min(opening, now + _LONGEST_PAUSE_S))

    def on_retry_after(self, until: float) -> None:
        """The service said when to come back: that counts, and not our own guess, unless it is sooner than that."""
        self.retry_after_until = max(self.retry_after_until, until)
        self.blocked_until = max(self.blocked_until, until)

    def on_accepted(self) -> None:
        """A request sent since the last episode was taken."""
        self.misses = 0
        self._knocked_until = float("-inf")
