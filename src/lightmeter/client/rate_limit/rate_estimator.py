"""Learns a service's limit in requests per second, allows a little less than that, and sometimes tests higher rates.

Such a test (a *probe*) raises the rate step by step until a request is rejected. A *search* (`RateSearch`) finds the
limit after the first rejections.

Many services use a token bucket: tokens flow into it at the rate of the limit, and each accepted request takes one. The
bucket is empty at each rejection. So the limit is the number of requests accepted between two rejections, divided by
the seconds between them, whatever the size of the bucket. Other services count requests in fixed time windows: their
limit is the quota of a window divided by its length.
"""

from __future__ import annotations

import math
from typing import Final

from lightmeter.client.rate_limit.pacer import AcceptedCount, SendRecord
from lightmeter.client.rate_limit.quota_window import QuotaWindow
from lightmeter.client.rate_limit.rate_search import RateSearch

_USED_PART: Final = 0.97
"""Fraction of the estimated limit that is usually used.

All constants here are from simulation (tests/bench/rate_limit).
"""

_USED_PART_OF_WINDOW: Final = 0.985
"""Fraction of the estimated limit that is used if the service has fixed time windows, whose quota is known exactly."""

_USED_PART_AFTER_REJECTION: Final = 0.92
"""Fraction of the estimated limit that is used shortly after a rejection, while a token bucket has to fill again."""

_PROBE_STEPS: Final = (0.04, 0.08, 0.16, 0.5, 1.0)
"""Fractions by which a probe raises the rate, one per step. Each one refers to the rate accepted in the step before."""

_CLEARLY_HIGHER_STEP: Final = 2
"""A probe that has reached this step, counted from 0, has shown that the limit is far above the estimate."""

_FIRST_STEP_S: Final = 30.0
"""Least seconds of a probe's first step; they usually suffice to empty a full token bucket."""

_FIRST_STEP_AFTER_CHANGE_S: Final = 8.0
"""Least seconds of a probe's first step if the limit has changed recently."""

_LONGEST_STEP_S: Final = 90.0
"""Most seconds to which a first step is prolonged to empty a large token bucket or to span a time window."""

_STEP_S: Final = 6.0
"""Least seconds of each later step of a probe."""

_STEP_REQUESTS: Final = 8
"""Each step of a probe lasts at least as long as this many requests take at the estimated rate."""

_MIN_SENT: Final = 0.85
"""A step counts only if at least this fraction of the requests that it allows were sent; otherwise the probe ends."""

_MAX_SEARCH_CUTS: Final = 3
"""Most rejections in a row that lower the rate of a search; further ones leave it unchanged."""

_FIRST_INTERVAL_S: Final = 5.0
"""Seconds between two probes at first; the interval doubles with each failed probe."""

_LONGEST_INTERVAL_S: Final = 40.0
"""Seconds up to which the interval between two probes grows."""

_REJECTED_PART: Final = 0.006
"""Highest fraction of all requests that may be rejected because of a probe.

After a probe, the next one waits until so many requests were allowed that the rejections are at most this fraction.
"""

_REJECTED_PART_OF_WINDOW: Final = 0.02
"""Value that replaces `_REJECTED_PART` if the service has fixed time windows."""

_LONGEST_FOR_REJECTIONS_S: Final = 60.0
"""Most seconds that a probe waits because of `_REJECTED_PART`."""

_LONGEST_FOR_REJECTIONS_OF_WINDOW_S: Final = 240.0
"""Most seconds that a probe waits because of `_REJECTED_PART_OF_WINDOW`."""

_MIN_ACCEPTED: Final = 8
"""Number of accepted requests from which on their rate counts as measured."""

_RECENT_S: Final = 30.0
"""A measured rate of many requests over more seconds than this is not used: it may mix an old and a new limit."""

_MIN_RATE: Final = 0.02
"""The estimate never falls below this, in requests per second."""

_WINDOW_BLOCK_S: Final = 2.0
"""If a service rejects everything for at least this many seconds, it has fixed time windows (or an outage)."""

_CHANGED_BELOW: Final = 0.9
"""If a rejection lowers the estimate below this fraction of its value, the service is assumed to have a new limit."""


class RateEstimator:
    """Estimates how many requests per second a service accepts, from its rejections or slower answers.

    All times are in seconds on a monotonic clock; in all methods `now` is the present time.

    Args:
        rate: First estimate, in requests per second.
        now: The present time.
        since: Record of the rejected request after which a search for the limit begins. None if `rate` is known to be
            the limit: then there is no search.

    Attributes:
        rate: The estimate, in requests per second.
        probe_step: Number, from 0, of the present step of the test of higher rates; -1 if no test is under way.
        congested: Whether the limit was found by slower answers instead of rejections.
        window_limited: Whether the service has fixed time windows: it rejects everything for seconds at a time.
    """

    def __init__(self, rate: float, now: float, since: SendRecord | None) -> None:
        self.rate = max(_MIN_RATE, rate)
        self._search = None if since is None else RateSearch(self.rate, now, since)
        if self._search is not None:
            self.rate = self._search.rate
        self.probe_step = -1
        self.congested = False
        self.window_limited = False
        self._accepted = None if since is None else AcceptedCount(since)
        self._window: QuotaWindow | None = None
        self._catching_up = False
        self._interval_s = _FIRST_INTERVAL_S
        self._probe_at = now + self._interval_s
        self._step_began_at = now
        self._sent_in_step = 0
        self._probed_rates: list[float] = []  # accepted so far in the probe under way; first the one before it
        self._excess_sent = 0.0  # requests beyond the rate before the probe
        self._bucket_size = 0.0  # the largest excess that was paid for by a full bucket
        self._rejected_in_probe = 0
        self._fallback_rates: list[float] = []  # used if what a probe has shown does not hold
        self._rate_before_block = self.rate
        self._reduced_until = now

    @property
    def is_probing(self) -> bool:
        """Whether the limiter now tries a higher rate than the service is known to accept."""
        return self._search is not None or self.probe_step >= 0

    def allowed(self, now: float) -> float:
        """Return the requests per second that may be sent at `now`, in monotonic seconds."""
        if self._search is not None:
            return self.rate
        if self.probe_step >= 0:
            return self.rate * (1 + _PROBE_STEPS[self.probe_step])
        if self.congested:
            return self.rate * _USED_PART
        if self.window_limited and self._window is not None:
            return self.rate * _USED_PART_OF_WINDOW
        return self.rate * (_USED_PART_AFTER_REJECTION if now < self._reduced_until else _USED_PART)

    def on_sent(self, now: float) -> None:
        """Count a request sent at `now`, in monotonic seconds.

        If a test of higher rates or the next step of a test is due, begin it.
        """
        if self._search is not None:
            self._search.on_sent(now)
            self.rate = max(_MIN_RATE, self._search.rate)
            return
        if self._catching_up and self._window is not None and self._window.catch_up_factor(now) == 1:
            self.rate, self._catching_up = self._window.rate, False
        if self.probe_step < 0:
            if now >= self._probe_at:
                self._excess_sent, self._rejected_in_probe, self._probed_rates = 0.0, 0, []
                self._begin_step(now, 0)
            return
        self._sent_in_step += 1
        duration_s = now - self._step_began_at
        if duration_s >= self._step_length_s():
            self._end_step(now, duration_s)

    def _step_length_s(self) -> float:
        requests_s = _STEP_REQUESTS / self.rate
        if self.probe_step > 0:
            return max(_STEP_S, requests_s)
        unchanged = self._interval_s > 2 * _FIRST_INTERVAL_S
        empties_bucket_s = 1.3 * self._bucket_size / (_PROBE_STEPS[0] * self.rate)
        spans_windows_s = 1.5 * self._window.length_s if self._window else 0.0
        longer_s = min(_LONGEST_STEP_S, max(empties_bucket_s, spans_windows_s))
        return max(_FIRST_STEP_S if unchanged else _FIRST_STEP_AFTER_CHANGE_S, requests_s, longer_s)

    def _begin_step(self, now: float, step: int) -> None:
        self.probe_step, self._step_began_at, self._sent_in_step = step, now, 0
        del self._probed_rates[step:]
        self._probed_rates.append(self.rate)

    def _end_step(self, now: float, duration_s: float) -> None:
        tried = self.allowed(now)
        if self._sent_in_step < _MIN_SENT * tried * duration_s:
            self._end_probe(now, self._interval_s)  # there was too little to send: nothing was learned
            return
        self._excess_sent += duration_s * (tried - self._probed_rates[0])
        self.rate = tried
        self._begin_step(now, min(self.probe_step + 1, len(_PROBE_STEPS) - 1))

    def _end_probe(self, now: float, interval_s: float) -> None:
        rejected_part = _REJECTED_PART_OF_WINDOW if self.window_limited else _REJECTED_PART
        longest_s = _LONGEST_FOR_REJECTIONS_OF_WINDOW_S if self.window_limited else _LONGEST_FOR_REJECTIONS_S
        pays_off_s = self._rejected_in_probe / (rejected_part * self.rate)
        self._interval_s = min(_LONGEST_INTERVAL_S, interval_s)
        self._probe_at = now + max(self._interval_s, min(longest_s, pays_off_s))
        self.probe_step = -1

    def reset_to(self, rate: float, now: float) -> None:
        """Replace the estimate by a `rate` that another process or run learned; discard all counts and tests.

        `rate` is in requests per second. `now` is the present time in monotonic seconds.
        """
        self.rate = max(_MIN_RATE, rate)
        self._accepted, self._window, self._search, self._fallback_rates = None, None, None, []
        self._end_probe(now, _FIRST_INTERVAL_S)

    def on_not_accepted(self) -> None:
        """Count a request that the service rejected or never answered."""
        if self._accepted is not None:
            self._accepted.not_accepted += 1
        self._rejected_in_probe += 1
        if self._search is not None:
            self._search.on_not_accepted()
        if self._window is not None:
            self._window.on_not_accepted()

    def on_rejected(self, now: float, record: SendRecord, consecutive_rejections: int) -> None:
        """Correct the estimate after a rejection; of several simultaneous rejections, the caller reports only one.

        Args:
            now: The present time, in monotonic seconds.
            record: Record of the rejected request.
            consecutive_rejections: Number of rejections since the last accepted request, including this one. Only the
                first one of such a series tells something about the rate. A long series shows a fixed time window.
        """
        before = self.rate
        if consecutive_rejections == 1:
            self._rate_before_block = before
        if self._search is not None:
            self._search_rejected(self._search, now, record, consecutive_rejections)
            return
        if consecutive_rejections > 1 and not self._fallback_rates:
            return
        if record.probe_step >= 0 and self._probed_rates:
            self._probe_rejected(now, record)
            self._accepted = AcceptedCount(record)
        else:
            self._rejected_between_probes(record)
            changed = self.rate < _CHANGED_BELOW * before
            self._end_probe(now, _FIRST_INTERVAL_S if changed else self._interval_s)
        self._reduced_until = now if self.congested else now + max(1.0, 20 / self.rate)

    def _search_rejected(self, search: RateSearch, now: float, record: SendRecord, rejections: int) -> None:
        if rejections > _MAX_SEARCH_CUTS:
            return
        search.on_rejected(now, record)
        self.rate = max(_MIN_RATE, search.rate)
        self._accepted = AcceptedCount(record)
        if search.done:
            self._search = None
            self._end_probe(now, self._interval_s)

    def _probe_rejected(self, now: float, record: SendRecord) -> None:
        step = min(record.probe_step, len(self._probed_rates) - 1)
        confirmed = self._probed_rates[0]
        if step == 0:
            self.rate = confirmed
            self._end_probe(now, self._interval_s * 2)
            return
        # Either the limit is higher, or a full bucket paid for the excess: the next requests will tell.
        self.rate, self._fallback_rates = self._probed_rates[step], [confirmed]
        if step >= _CLEARLY_HIGHER_STEP:
            self._fallback_rates.append(self.rate)
            self.rate *= math.sqrt(1 + _PROBE_STEPS[step])  # between the last accepted rate and the rejected one
            self._rejected_in_probe = 0  # they taught something: they do not delay the next probe
        self._end_probe(now, _FIRST_INTERVAL_S)

    def _rejected_between_probes(self, record: SendRecord) -> None:
        """Lower the estimate after the rejection of a request (`record`) that did not belong to a probe."""
        count = self._accepted
        accepted = count.accepted_before(record) if count else 0
        measured = count.rate_before(record) if count and accepted >= _MIN_ACCEPTED else 0.0
        if self._fallback_rates and accepted < 3 * _MIN_ACCEPTED:
            self._fall_back(measured)
            self._accepted = AcceptedCount(record)
            return
        self._fallback_rates = []
        before = self.rate
        if accepted < _MIN_ACCEPTED:
            self.rate = max(_MIN_RATE, 0.8 * before)
        elif accepted <= _RECENT_S * measured or accepted <= 8 * _MIN_ACCEPTED:
            self.rate = max(_MIN_RATE, min(0.99 * before, max(0.5 * before, measured)))
            self._accepted = AcceptedCount(record)
        else:
            self.rate = max(_MIN_RATE, 0.95 * before)
            self._accepted = AcceptedCount(record)
        if self.rate < _CHANGED_BELOW * before:
            self._bucket_size = 0.0  # the limit is another one, or its fall looked like the end of a burst

    def _fall_back(self, measured: float) -> None:
        """Lower an estimate that a test of higher rates has set too high.

        `measured` is the number of requests per second that were accepted after the test, 0 if it was not measured. If
        it was measured, the estimate falls to it, but not below the rate before the test. Otherwise the estimate falls
        to the last of `_fallback_rates`. This is the highest rate accepted in the test, if the rejection that ended the
        test came in its third step or later, and if the estimate has not fallen to this rate before. Else it is the
        rate before the test.
        """
        least = self._fallback_rates[0] if measured else self._fallback_rates.pop()
        self.rate = max(_MIN_RATE, min(self.rate, max(least, measured)))
        if measured or not self._fallback_rates:
            self._fallback_rates = []
            self._bucket_size = max(self._bucket_size, self._excess_sent)

    def on_backoff_ended(self, now: float, record: SendRecord, blocked_since: float, still_blocked_at: float) -> None:
        """Learn from a period of rejections: a long one shows that the service has fixed time windows.

        The period is long if it lasted at least 2 s, and if at least 16 requests would have been sent in it at the rate
        before. A long period ends when a new time window begins. Then the length and the quota of the windows are
        inferred again. If the quota is at least 8 requests, the estimate follows from them. But a first long period
        while no search is under way counts as an outage: the estimate returns to its value before. A short period
        changes nothing.

        Args:
            now: The present time. All times are in monotonic seconds.
            record: Record of the first request accepted after the rejections.
            blocked_since: When the rejections began.
            still_blocked_at: The last time at which the rejections had certainly not ended yet.
        """
        blocked_s = record.sent_at - blocked_since
        if blocked_s < _WINDOW_BLOCK_S or blocked_s * self._rate_before_block < 2 * _MIN_ACCEPTED:
            return
        if self._window is None:
            self._window = QuotaWindow(record)
        self._window.on_reset(record, blocked_since, still_blocked_at)
        self._accepted = AcceptedCount(record)
        # A limit that was known before the first long block is not a window's: the block was an outage.
        was_outage = self._search is None and not self.window_limited
        self.window_limited, self._search = True, None
        self._reduced_until = now
        if was_outage:
            self.rate = self._rate_before_block
        elif self._window.quota >= _MIN_ACCEPTED:
            self.rate = max(_MIN_RATE, self._window.rate * self._window.catch_up_factor(now))
            self._catching_up = self.rate > self._window.rate
        if self._window.quota >= _MIN_ACCEPTED:
            self._fallback_rates = []
            self._end_probe(now, self._interval_s)
            self._probe_at = max(self._probe_at, now + 1.5 * self._window.length_s)

    def next_reset_at(self, now: float, record: SendRecord, blocked_since: float) -> float | None:
        """Return the earliest time, not before `now`, at which the quota of a time window may be renewed.

        Return None if the service is not known to have time windows, or if the quota is not used up.

        Args:
            now: The present time. All times are in monotonic seconds.
            record: Record of the latest rejected request.
            blocked_since: When the rejections began. A time window is assumed to last at least from then to `now`.
        """
        if self._window is None or not self.window_limited or not self._window.is_used_up(record):
            return None
        return self._window.next_reset_at(now, blocked_since)

    def start_window(self, count: AcceptedCount) -> None:
        """Begin to infer whether the service accepts a quota of requests in each fixed time window.

        The accepted requests are counted from the first one that `count` has counted; `count` is not changed.
        """
        self._window = QuotaWindow(count.start, count.not_accepted)

    def on_congestion(self, now: float, measured: float) -> None:
        """Lower the estimate because answers became slower.

        `now` is the present time in monotonic seconds. `measured` is the number of answers per second in the recent
        past.
        """
        if self.probe_step >= 0 and self._probed_rates:
            confirmed = self._probed_rates[0]
            self.rate = max(measured, 0.8 * confirmed) if self._excess_sent > confirmed else confirmed
            self._end_probe(now, self._interval_s * 2)
        else:
            self.rate = max(_MIN_RATE, 0.98 * self.rate) if self.congested else measured
            self._probe_at = now + self._interval_s
        self.congested, self._search = True, None
