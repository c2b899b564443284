"""The learned limit in requests per second: kept just below, probed rarely, measured exactly where that is possible.

Between two rejections a token bucket is empty twice, so what it took in between is what flowed in: requests taken /
time is its rate, whatever its size. Between two openings of a fixed window it is the window's quota / its length.
"""

from __future__ import annotations

import math
from typing import Final

from lightmeter.client.rate_limit.pacer import SendRecord
from lightmeter.client.rate_limit.quota_window import QuotaWindow
from lightmeter.client.rate_limit.rate_search import RateSearch

__all__ = ["RateEstimator"]

CRUISE: Final = 0.97
_CRUISE_CLOSED: Final = 0.985
_CRUISE_CROWDED: Final = 0.97
_AFTER_REJECTION: Final = 0.92
_STEPS: Final = (0.04, 0.08, 0.16, 0.5, 1.0)
_LEAST_RISE: Final = 2
_FIRST_STEP_S: Final = 30.0
_FIRST_STEP_UNSETTLED_S: Final = 8.0
_LONGEST_STEP_S: Final = 90.0
_STEP_S: Final = 6.0
_STEP_REQUESTS: Final = 8
_MAX_CUTS: Final = 3
_FIRST_INTERVAL_S: Final = 5.0
_LONGEST_INTERVAL_S: Final = 40.0
_LONGEST_FOR_COST_S: Final = 60.0
_LONGEST_FOR_COST_CLOSED_S: Final = 240.0
_COST: Final = 0.006
_COST_CLOSED: Final = 0.02
_ENOUGH: Final = 8
_RECENT_S: Final = 30.0
_SLOWEST: Final = 0.02
_SHUT_S: Final = 2.0
# A limit that has fallen below so much of itself is another one.
_ANOTHER: Final = 0.9


class RateEstimator:
    """A limit on the rate, and the search for it.

    Args:
        rate: First estimate, requests per second.
        now: The time.
        since: The request that was rejected last; what is sent after it is counted.

    Attributes:
        rate: The estimate.
        step: Step of the probe that is going on, -1 when there is none.
        crowded: Whether the limit shows by latency, not by rejections.
        closed: Whether the service closes for seconds at a time, as fixed windows do.
    """

    def __init__(self, rate: float, now: float, since: SendRecord | None) -> None:
        self.rate = max(_SLOWEST, rate)
        self._search = None if since is None else RateSearch(self.rate, now, since)
        if self._search is not None:
            self.rate = self._search.rate
        self.step = -1
        self.crowded = False
        self.closed = False
        self._since = since
        self._window: QuotaWindow | None = None
        self._untaken = 0
        self._interval_s = _FIRST_INTERVAL_S
        self._probe_at = now + self._interval_s
        self._step_began_at = now
        self._sent_in_step = 0
        self._passed: list[float] = []
        self._catching_up = False
        self._rate_at_closing = self.rate
        self._drained = 0.0
        self._burst = 0.0
        self._cost = 0
        self._doubts: list[float] = []
        self._ease_until = now

    @property
    def is_probing(self) -> bool:
        """Whether more than what is known to be taken is tried: a search or a probe is going on."""
        return self._search is not None or self.step >= 0

    def allowed(self, now: float) -> float:
        """Requests per second that may be sent now."""
        if self._search is not None:
            return self.rate
        if self.step >= 0:
            return self.rate * (1 + _STEPS[self.step])
        if self.crowded:
            return self.rate * _CRUISE_CROWDED
        if self.closed and self._window is not None:
            return self.rate * _CRUISE_CLOSED
        return self.rate * (_AFTER_REJECTION if now < self._ease_until else CRUISE)

    def on_sent(self, now: float) -> None:
        """A request leaves: begin a probe, or its next step, when it is time."""
        if self._search is not None:
            self._search.on_sent(now)
            self.rate = max(_SLOWEST, self._search.rate)
            return
        if self._catching_up and self._window is not None and self._window.catch_up(now) == 1:
            self.rate, self._catching_up = self._window.rate, False
        if self.step < 0:
            if now >= self._probe_at:
                self._drained, self._cost, self._passed = 0.0, 0, []
                self._begin_step(now, 0)
            return
        self._sent_in_step += 1
        lasted_s = now - self._step_began_at
        if lasted_s >= self._step_length_s():
            self._end_step(now, lasted_s)

    def _step_length_s(self) -> float:
        enough_s = _STEP_REQUESTS / self.rate
        if self.step > 0:
            return max(_STEP_S, enough_s)
        settled = self._interval_s > 2 * _FIRST_INTERVAL_S
        first_s = _FIRST_STEP_S if settled else _FIRST_STEP_UNSETTLED_S
        drains_s = 1.3 * self._burst / (_STEPS[0] * self.rate)
        return max(
            first_s, enough_s, min(_LONGEST_STEP_S, max(drains_s, 1.5 * self._window.length_s if self._window else 0.0))
        )

    def _begin_step(self, now: float, step: int) -> None:
        self.step, self._step_began_at, self._sent_in_step = step, now, 0
        del self._passed[step:]
        self._passed.append(self.rate)

    def _end_step(self, now: float, lasted_s: float) -> None:
        tried = self.allowed(now)
        if self._sent_in_step < 0.85 * tried * lasted_s:
            self._end_probe(now, self._interval_s)  # something else is the limit: nothing was learned
            return
        self._drained += lasted_s * (tried - self._passed[0])
        self.rate = tried
        self._begin_step(now, min(self.step + 1, len(_STEPS) - 1))

    def _end_probe(self, now: float, interval_s: float) -> None:
        cost_s = self._cost / ((_COST_CLOSED if self.closed else _COST) * self.rate)
        self._interval_s = min(_LONGEST_INTERVAL_S, interval_s)
        most_s = _LONGEST_FOR_COST_CLOSED_S if self.closed else _LONGEST_FOR_COST_S
        self._probe_at = now + max(self._interval_s, min(most_s, cost_s))
        self.step = -1

    def moved(self, rate: float, now: float) -> None:
        """The limit is another now, for a reason outside: what was counted and tried under the old one is void."""
        self.rate = max(_SLOWEST, rate)
        self._since, self._window, self._search, self._doubts = None, None, None, []
        self._untaken = 0
        self._end_probe(now, _FIRST_INTERVAL_S)

    def on_not_accepted(self) -> None:
        """A request was rejected or lost: it does not count as taken."""
        self._untaken += 1
        self._cost += 1
        if self._search is not None:
            self._search.on_not_accepted()
        if self._window is not None:
            self._window.on_not_accepted()

    def on_rejected(self, now: float, ticket: SendRecord, misses: int) -> None:
        """The first rejection of an episode: decide what it says about the limit.

        Of several `misses` in a row the first has said it; how long the door stays shut will say more.
        """
        before = self.rate
        if misses == 1:
            self._rate_at_closing = before
        if self._search is not None:
            self._search_failed(now, ticket, misses)
            return
        if misses > 1 and not self._doubts:
            return
        if ticket.step >= 0 and self._passed:
            self._probe_failed(now, ticket)
            self._count_from(ticket)
        else:
            self._cruise_failed(ticket)
            moved = self.rate < _ANOTHER * before
            self._end_probe(now, _FIRST_INTERVAL_S if moved else self._interval_s)
        self._ease_until = now + max(1.0, 20 / self.rate) if not self.crowded else now

    def _search_failed(self, now: float, ticket: SendRecord, misses: int) -> None:
        assert self._search is not None  # noqa: S101 (only asked then)
        if misses > _MAX_CUTS:
            return
        self._search.on_rejected(now, ticket)
        self.rate = max(_SLOWEST, self._search.rate)
        self._count_from(ticket)
        if self._search.done:
            self._search = None
            self._end_probe(now, self._interval_s)

    def _probe_failed(self, now: float, ticket: SendRecord) -> None:
        step = min(ticket.step, len(self._passed) - 1)
        confirmed = self._passed[0]
        if step == 0:
            self.rate = confirmed
            self._end_probe(now, self._interval_s * 2)
            return
        # Either the limit is higher, or a full bucket paid for the excess: the next requests will tell.
        self.rate, self._doubts = self._passed[step], [confirmed]
        if step >= _LEAST_RISE:
            self._doubts.append(self.rate)
            self.rate *= math.sqrt(1 + _STEPS[step])  # between what was taken and what was not
            self._cost = 0  # worth it: the limit is known to be far above what it was thought to be
        self._end_probe(now, _FIRST_INTERVAL_S)

    def _cruise_failed(self, ticket: SendRecord) -> None:
        taken, lasted_s = self._taken(ticket)
        measured = taken / lasted_s if lasted_s > 0 and taken >= _ENOUGH else 0.0
        if self._doubts and taken < 3 * _ENOUGH:
            self._fall_back(measured)
            self._count_from(ticket)
            return
        self._doubts = []
        before = self.rate
        if taken < _ENOUGH:
            self.rate = max(_SLOWEST, 0.8 * before)
        elif lasted_s <= _RECENT_S or taken <= 8 * _ENOUGH:
            self.rate = max(_SLOWEST, min(0.99 * before, max(0.5 * before, measured)))
            self._count_from(ticket)
        else:
            self.rate = max(_SLOWEST, 0.95 * before)
            self._count_from(ticket)
        if self.rate < _ANOTHER * before:
            self._burst = 0.0  # learned of another limit, or it was this fall that looked like a burst's end

    def _fall_back(self, measured: float) -> None:
        """What a probe seemed to show does not hold: what was known before does, or what was measured since."""
        least = self._doubts[0] if measured else self._doubts.pop()
        self.rate = max(_SLOWEST, min(self.rate, max(least, measured)))
        if measured or not self._doubts:
            self._doubts = []
            self._burst = max(self._burst, self._drained)

    def _taken(self, ticket: SendRecord) -> tuple[int, float]:
        if self._since is None:
            return 0, 0.0
        return max(0, ticket.number - self._since.number - self._untaken), ticket.sent_at - self._since.sent_at

    def _count_from(self, ticket: SendRecord) -> None:
        self._since, self._untaken = ticket, 0

    def on_reopened(self, now: float, ticket: SendRecord, blocked_since: float, last_rejected_at: float) -> None:
        """The first request is taken after a door that was shut at `blocked_since`, and still at `last_rejected_at`."""
        shut_s = ticket.sent_at - blocked_since
        if shut_s < _SHUT_S or shut_s * self._rate_at_closing < 2 * _ENOUGH:
            return
        if self._window is None:
            self._window = QuotaWindow(ticket, 0)
        self._window.on_accepted(ticket, blocked_since, last_rejected_at)
        self._count_from(ticket)
        # A limit that was settled before it ever closed is none of windows: it was an outage.
        most = self.rate if self._search is None and not self.closed else math.inf
        self.closed, self._search = True, None
        self._ease_until = now
        if self._window.quota >= _ENOUGH:
            self.rate = max(_SLOWEST, min(most, self._window.rate * self._window.catch_up(now)))
            self._catching_up = self.rate > self._window.rate
            self._doubts = []
            self._end_probe(now, self._interval_s)
            self._probe_at = max(self._probe_at, now + 1.5 * self._window.length_s)

    def opening(self, now: float, ticket: SendRecord, blocked_since: float) -> float | None:
        """When a limit that is used up may be renewed at the soonest; None while there is no idea."""
        if self._window is None or not self.closed or not self._window.used_up(ticket):
            return None
        return self._window.opening(now, blocked_since)

    def start_window(self, ticket: SendRecord, untaken: int) -> None:
        """Windows are counted from this request; of those since, so many were not taken."""
        self._window = QuotaWindow(ticket, untaken)

    def on_congestion(self, now: float, measured: float) -> None:
        """Answers have become slower with nothing rejected: `measured` came back per second."""
        if self.step >= 0 and self._passed:
            confirmed = self._passed[0]
            self.rate = max(measured, 0.8 * confirmed) if self._drained > confirmed else confirmed
            self._end_probe(now, self._interval_s * 2)
        else:
            self.rate = max(_SLOWEST, 0.98 * self.rate) if self.crowded else measured
            self._probe_at = now + self._interval_s
        self.crowded, self._search = True, None
