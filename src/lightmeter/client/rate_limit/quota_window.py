"""What is known of a limit that counts requests in fixed windows: its quota, its length, and when it opens again.

A window is used up when rejections begin, and opens again between the last rejection and the first request that is
taken. Two openings bound the length; what was taken between them is the quota.
"""

from __future__ import annotations

import math
from typing import Final

from lightmeter.client.rate_limit.pacer import SendRecord

__all__ = ["QuotaWindow"]

# Windows have lengths that people choose: where one of them fits what was seen, it is taken, the shortest first. One
# that is too short is found out at the next closing; one that is too long wastes quota and shows in nothing.
_USUAL_S: Final = (5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0)
_LATE: Final = 0.15
_MAX_OF: Final = 0.7


class QuotaWindow:
    """Fixed windows, as far as they are known.

    Args:
        first: The request from which taken ones are counted; a window had begun at that time or before.
        untaken: How many sent since were not taken.

    Attributes:
        quota: Requests taken in a whole window; 0 while none has been seen.
        length_s: Seconds of a window; 0 while nothing is known.
    """

    def __init__(self, first: SendRecord, untaken: int) -> None:
        self.quota = 0.0
        self.length_s = 0.0
        self._first = first
        self._untaken = untaken
        self._begun = False
        self._shut_at = self._open_at = first.sent_at
        self._shortest_s, self._longest_s = 0.0, math.inf

    @property
    def rate(self) -> float:
        """Requests per second that use up the quota, no more."""
        return self.quota / self.length_s

    def catch_up(self, now: float) -> float:
        """How much faster to send for the rest of a window that was found open late."""
        late_s = self._open_at - self._shut_at
        if not self._begun or late_s <= _LATE * self.length_s or now >= self._open_at + self.length_s - late_s:
            return 1.0
        return self.length_s / max(0.25 * self.length_s, self.length_s - late_s)

    def on_not_accepted(self) -> None:
        """A request was rejected or lost."""
        self._untaken += 1

    def on_accepted(self, ticket: SendRecord, blocked_since: float, still_blocked_at: float) -> None:
        """The first request is taken after a closing from `blocked_since` to `still_blocked_at` or longer."""
        taken = ticket.number - self._first.number - self._untaken
        self._shortest_s = max(self._shortest_s, still_blocked_at - blocked_since)
        if not self._begun:
            self.quota = float(taken)
        else:
            least_s, most_s = still_blocked_at - self._open_at, ticket.sent_at - self._shut_at
            windows = max(1, min(round(taken / max(1.0, self.quota)), int(most_s / self._shortest_s)))
            self.quota = float(taken) if windows == 1 else max(self.quota, taken / windows)
            self._narrow(least_s / windows, most_s / windows)
        self._first, self._untaken, self._begun = ticket, 0, True
        self._shut_at, self._open_at = still_blocked_at, ticket.sent_at
        self.length_s = self._fit()

    def _narrow(self, least_s: float, most_s: float) -> None:
        shortest_s, longest_s = max(self._shortest_s, least_s), min(self._longest_s, most_s)
        if shortest_s > longest_s:  # it is another one now
            shortest_s, longest_s = max(0.0, least_s), most_s
        self._shortest_s, self._longest_s = shortest_s, longest_s

    def _fit(self) -> float:
        fitting = [each_s for each_s in _USUAL_S if self._shortest_s <= each_s <= self._longest_s]
        if fitting:
            return fitting[0]
        return self._shortest_s if math.isinf(self._longest_s) else (self._shortest_s + self._longest_s) / 2

    def used_up(self, ticket: SendRecord) -> bool:
        """Whether a rejection can be explained by the quota."""
        return ticket.number - self._first.number - self._untaken >= _MAX_OF * self.quota

    def opening(self, now: float, blocked_since: float) -> float | None:
        """When the next window may open at the soonest, shut since `blocked_since`; None while there is no idea."""
        if not self._begun:
            return None
        shortest_s = max(self._shortest_s, now - blocked_since)
        lengths = {max(shortest_s, self.length_s)}
        lengths.update(each_s for each_s in _USUAL_S if shortest_s <= each_s <= max(self._longest_s, self.length_s))
        return min(self._open_at + each_s * max(1, math.ceil((now - self._open_at) / each_s)) for each_s in lengths)
