"""`RunHistory`: the credits that a run has paid over time, and the rows and credits per minute of late. No I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Final

from lightmeter.journal.queries.live import Activity
from lightmeter.planning.progress import payable_rows

MAX_POINTS: Final = 240
"""Maximum number of intervals in the history. If there would be more, every two neighbors are merged into one."""

RECENT_S: Final = 60
"""Length of the time over which the recent rates are computed, in seconds."""


@dataclass(frozen=True, slots=True)
class RecentRates:
    """Rates over the last minute, or over the time since the first request if this time is shorter.

    Attributes:
        seconds: Length of this time in seconds, 1 to 60.
        sent: Requests sent, per second.
        throttled: Requests refused because of the service's rate limit, per second.
        rows: Rows whose request was charged, per second.
        charged_requests: Number of requests charged in these `seconds`, not per second.
        charged_rows: Number of rows of these requests.
        paid: Credits charged for these requests.
    """

    seconds: float
    sent: float
    throttled: float
    rows: float
    charged_requests: int
    charged_rows: int
    paid: int

    def seconds_for(self, pending: int, credits_left: int | None = None) -> tuple[float, float | None] | None:
        """Estimate the time until `pending` rows are finished or the budget is spent; return (lower, upper) bounds.

        The bounds are in seconds. `credits_left` are those of the budget, None without one.
        Return None if no request was charged recently, because the rate is then unknown. The number of answers in a
        minute is assumed to have a Poisson distribution, and the range extends two standard deviations to each side.
        The upper bound is None if there are so few answers that the rate may be almost 0.
        """
        if not self.rows or not self.charged_requests:
            return None
        rows = payable_rows(pending, self.charged_rows, self.paid, credits_left)
        deviation = 2 / sqrt(self.charged_requests)
        least = rows / (self.rows * (1 + deviation))
        return least, rows / (self.rows * (1 - deviation)) if deviation < 1 else None


NO_RATES: Final = RecentRates(RECENT_S, 0.0, 0.0, 0.0, 0, 0, 0)
"""The rates of a run on which no process works: all are 0."""


class RunHistory:
    """Credits and rows of a run over time, in at most `MAX_POINTS` intervals, and the activity of the last minute.

    Attributes:
        sent: Number of requests (POSTs) sent since the run began.
        interval_s: Length of each interval in seconds.
    """

    def __init__(self, before: Sequence[Activity] = (), interval_s: int = 1) -> None:
        """Create the history. `before` is the activity so far, counted in intervals of `interval_s` seconds."""
        self.interval_s = interval_s
        self.sent = sum(each.sent for each in before)
        self._sums = {each.interval: (each.rows, each.paid) for each in before if each.answered}
        self._recent: deque[Activity] = deque()
        self._merge_intervals()

    def set_recent(self, seconds: Iterable[Activity]) -> None:
        """Set the activity in each second of the last minute, oldest first, for the recent rates only.

        The history of credits and rows does not change, because it contains this activity already.
        """
        self._recent = deque(seconds)

    def add(self, seconds: Iterable[Activity]) -> None:
        """Add the activity in further seconds, oldest first. The history must not contain it yet."""
        for each in seconds:
            self.sent += each.sent
            self._recent.append(each)
            if each.answered:
                interval = each.interval // self.interval_s
                rows, paid = self._sums.get(interval, (0, 0))
                self._sums[interval] = rows + each.rows, paid + each.paid
        self._merge_intervals()

    def _merge_intervals(self) -> None:
        while self._sums and max(self._sums) - min(self._sums) >= MAX_POINTS:
            merged: dict[int, tuple[int, int]] = {}
            for interval, (rows, paid) in self._sums.items():
                before = merged.get(interval // 2, (0, 0))
                merged[interval // 2] = before[0] + rows, before[1] + paid
            self._sums, self.interval_s = merged, 2 * self.interval_s

    def points(self) -> list[tuple[int, int, int]]:
        """Return a tuple for each interval, oldest first: its end, and the rows and credits charged until its end.

        The end is a time in seconds since the epoch. Intervals without a charge are left out.
        """
        points, rows, paid = [], 0, 0
        for interval, (more_rows, more_paid) in sorted(self._sums.items()):
            rows, paid = rows + more_rows, paid + more_paid
            points.append(((interval + 1) * self.interval_s, rows, paid))
        return points

    def recent_rates(self, now: float, started_at: float | None) -> RecentRates:
        """Return the rates of requests and rows in the minute before `now`, or since `started_at` if that is later.

        `started_at` is the time of the first request, or None if there was no request. Both times are in seconds since
        the epoch.
        """
        while self._recent and self._recent[0].interval < now - RECENT_S:
            self._recent.popleft()
        seconds = 1.0 if started_at is None else min(RECENT_S, max(1.0, now - started_at))
        sums = [sum(column) for column in zip(*self._recent, strict=True)] or [0] * len(Activity._fields)
        total = Activity._make(sums)
        per_s = (total.sent / seconds, total.throttled / seconds, total.rows / seconds)
        return RecentRates(seconds, *per_s, total.answered, total.rows, total.paid)
