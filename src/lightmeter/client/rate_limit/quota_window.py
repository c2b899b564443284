"""Infers a limit such as 100 requests (the quota) in each minute (the time window) from rejections.

The quota is used up when rejections begin. The next window begins (a *reset*) between the last rejection and the first
accepted request after it. The time between two resets is the length of the window. The number of requests accepted
between two resets is the quota.
"""

from __future__ import annotations

import math
from typing import Final

from lightmeter.client.rate_limit.pacer import AcceptedCount, SendRecord

_USUAL_LENGTHS_S: Final = (5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0)
"""Lengths of time windows that people configure, in seconds. `QuotaWindow` assumes the shortest possible one.

The next rejection corrects an assumed length that is too short. Nothing corrects one that is too long: it wastes quota.
"""

_LATE_PART: Final = 0.15
"""If a reset is noticed late by more than this fraction of the window, the rate rises for the rest of the window."""

_MIN_USED_PART: Final = 0.7
"""The quota explains a rejection only if at least this fraction of the quota was used since the last reset."""


class QuotaWindow:
    """A limit of `quota` requests in each fixed time window of `length_s` seconds, as inferred from rejections.

    All times are in seconds on a monotonic clock; in all methods `now` is the present time.

    Args:
        first: Record of the first request that is counted. It need not be the first one of its time window.
        not_accepted: How many requests, from `first` on, were not accepted so far.

    Attributes:
        quota: Requests accepted in a whole time window; 0 until a whole window has been observed.
        length_s: Seconds of a time window; 0 while nothing is known.
    """

    def __init__(self, first: SendRecord, not_accepted: int = 0) -> None:
        self.quota = 0.0
        self.length_s = 0.0
        self._accepted = AcceptedCount(first, not_accepted)
        self._reset_observed = False
        self._last_blocked_at = self._unblocked_at = first.sent_at
        self._shortest_s, self._longest_s = 0.0, math.inf

    @property
    def rate(self) -> float:
        """Requests per second that use up the quota just when its time window ends; read it only after `on_reset`."""
        return self.quota / self.length_s

    def catch_up_factor(self, now: float) -> float:
        """Return the factor, 1 or more, by which to raise `rate` so that the quota is used up when the window ends.

        The factor is above 1 only if the start of the present window was noticed late, so that less time is left to use
        the quota.
        """
        late_s = self._unblocked_at - self._last_blocked_at
        rest_ends_at = self._unblocked_at + self.length_s - late_s
        if not self._reset_observed or late_s <= _LATE_PART * self.length_s or now >= rest_ends_at:
            return 1.0
        return self.length_s / max(0.25 * self.length_s, self.length_s - late_s)

    def on_not_accepted(self) -> None:
        """Note that the service rejected a request, or never answered it. Such a request does not use up the quota."""
        self._accepted.not_accepted += 1

    def on_reset(self, record: SendRecord, blocked_since: float, still_blocked_at: float) -> None:
        """Update the quota and the length of the window, now that the window was reset and rejections have ended.

        Args:
            record: Record of the first request accepted after the reset.
            blocked_since: When the rejections before the reset began.
            still_blocked_at: The last time at which the reset had certainly not happened yet.
        """
        accepted = self._accepted.accepted_before(record)
        self._shortest_s = max(self._shortest_s, still_blocked_at - blocked_since)
        if not self._reset_observed:
            self.quota = float(accepted)
        else:
            least_s, most_s = still_blocked_at - self._unblocked_at, record.sent_at - self._last_blocked_at
            most_windows = int(most_s / self._shortest_s) if self._shortest_s > 0 else 1
            windows = max(1, min(round(accepted / max(1.0, self.quota)), most_windows))
            self.quota = float(accepted) if windows == 1 else max(self.quota, accepted / windows)
            self._narrow_length(least_s / windows, most_s / windows)
        self._accepted, self._reset_observed = AcceptedCount(record), True
        self._last_blocked_at, self._unblocked_at = still_blocked_at, record.sent_at
        self.length_s = self._likely_length_s()

    def _narrow_length(self, least_s: float, most_s: float) -> None:
        shortest_s, longest_s = max(self._shortest_s, least_s), min(self._longest_s, most_s)
        if shortest_s > longest_s:  # the limit has changed
            shortest_s, longest_s = max(0.0, least_s), most_s
        self._shortest_s, self._longest_s = shortest_s, longest_s

    def _likely_length_s(self) -> float:
        for usual_s in _USUAL_LENGTHS_S:
            if self._shortest_s <= usual_s <= self._longest_s:
                return usual_s
        return self._shortest_s if math.isinf(self._longest_s) else (self._shortest_s + self._longest_s) / 2

    def is_used_up(self, record: SendRecord) -> bool:
        """Whether most of the quota was used since the last reset, which explains the rejection of request `record`."""
        return self._accepted.accepted_before(record) >= _MIN_USED_PART * self.quota

    def next_reset_at(self, now: float, blocked_since: float) -> float | None:
        """Return the earliest time at which the quota may be renewed; None while no renewal has been observed.

        The service has rejected every request from the time `blocked_since` to `now`.
        """
        if not self._reset_observed:
            return None
        shortest_s = max(self._shortest_s, now - blocked_since)
        longest_s = max(self._longest_s, self.length_s)
        lengths_s = {max(shortest_s, self.length_s)}
        lengths_s.update(usual_s for usual_s in _USUAL_LENGTHS_S if shortest_s <= usual_s <= longest_s)
        since_s = now - self._unblocked_at
        return min(self._unblocked_at + each_s * max(1, math.ceil(since_s / each_s)) for each_s in lengths_s)
