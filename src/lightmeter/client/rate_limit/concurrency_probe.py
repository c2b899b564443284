"""Finds a service's limit on the number of requests in flight (sent, but not answered yet).

The module estimates this limit. A *probe* is an ordinary request of the run that is sent when the number of requests in
flight has already reached the estimate. If the service accepts several probes, the estimate is raised.
"""

from __future__ import annotations

from typing import Final

from lightmeter.client.rate_limit.pacer import SendRecord

_MIN_REORDER: Final = 2
"""Number of requests in flight from which on one request may overtake another on the network."""

_EARLY_PROBES_S: Final = (0.5, 2.0)
"""Seconds to wait before probes while the service has rejected no probe, and after it has rejected one.

These probes come early because the limit may really be a limit on the rate.
"""

_FIRST_PROBE_S: Final = 15.0
"""Seconds to wait before probes after the service has rejected two. Each further rejected probe doubles the wait."""

_LONGEST_PROBE_S: Final = 120.0
"""Most seconds to wait before a probe."""

_PROBES_TO_RAISE: Final = 3
"""Number of probes above the limit that the service must accept before the limit is raised."""

_MARGIN_S: Final = 0.01
"""Seconds added to twice the usual time of a rejection: if no rejection came by then, a probe counts as accepted."""

_MIN_ACCEPTED_BETWEEN: Final = 3
"""If no more requests than this were accepted between two rejections below the limit, the limit is not the cause.

Only after more accepted requests does reordering on the network explain the second rejection.
"""

_DOUBT_SPAN: Final = 20
"""A rejection below the limit is rare if more than this many times `limit` requests were sent since the previous one.

A rare rejection does not lower the limit.
"""

_CLEAR_LATENCY_RATIO: Final = 10.0
"""If answers take more than this many times as long as rejections, the count of requests in flight is taken as exact.

Then hardly any request ends while a rejection is on its way.
"""

_ENOUGH_ACCEPTED: Final = 20
"""A rejection is evidence for or against a concurrency limit only if this many requests were accepted before it.

Only requests since the previous rejection count.
"""

_EPISODES_NEEDED: Final = 3
"""Number of rejections in a row that must be evidence for a concurrency limit before the known rate limit is dropped.

Each time this happens, the number doubles.
"""


class ConcurrencyEvidence:
    """Decides whether a limit on requests in flight explains rejections better than the known rate limit does.

    In all methods `record` is what the limiter recorded when it sent the request in question.
    """

    def __init__(self) -> None:
        self._most_accepted = -1
        self._accepted_in_episode = 0
        self._episodes = 0
        self._episodes_needed = _EPISODES_NEEDED

    def on_accepted(self, record: SendRecord) -> None:
        """Count an accepted request, and note how many requests were in flight when it was sent.

        The highest such number since the last call of `limit_after_rejection` is kept.
        """
        self._most_accepted = max(self._most_accepted, record.in_flight)
        self._accepted_in_episode += 1

    def limit_after_rejection(self, record: SendRecord, *, in_row: bool) -> int | None:
        """Return the limit on requests in flight if it explains recent rejections better than a rate limit; else None.

        Args:
            record: Record of the rejected request; of several requests rejected at once, the first one.
            in_row: Whether no request was accepted since the previous rejection.
        """
        most = self._most_accepted
        above = record.in_flight > most or record.in_flight == most >= _MIN_REORDER
        enough = self._accepted_in_episode >= _ENOUGH_ACCEPTED
        self._most_accepted, self._accepted_in_episode = 0, 0
        if enough:
            self._episodes = self._episodes + 1 if above and not in_row else 0
        if self._episodes < self._episodes_needed:
            return None
        self._episodes, self._episodes_needed = 0, self._episodes_needed * 2
        return record.in_flight


class ConcurrencyProbe:
    """Decides when a test request may exceed the known limit on requests in flight by one, and learns from the outcome.

    In all methods `now` is the time in seconds on a monotonic clock.

    Attributes:
        next_probe_at: From this time on, one request more than the limit may be in flight.
    """

    def __init__(self) -> None:
        self.next_probe_at = float("inf")
        self._failed = 0
        self._probes_sent_at: list[float] = []
        self._step = 1
        self._last_doubt = 0
        self._not_accepted_since_doubt = 0
        self._lowered_by = 0

    def schedule_next(self, now: float) -> None:
        """Set `next_probe_at`, the time of the next test request above the limit, to some seconds after `now`.

        The more test requests the service has rejected, the longer the wait.
        """
        if self._failed < len(_EARLY_PROBES_S):
            wait_s = _EARLY_PROBES_S[self._failed]
        else:
            wait_s = min(_LONGEST_PROBE_S, _FIRST_PROBE_S * 2.0 ** min(10, self._failed - len(_EARLY_PROBES_S)))
        self.next_probe_at, self._probes_sent_at, self._step = now + wait_s, [], 1

    def on_rejected(
        self, now: float, record: SendRecord, limit: int, rejection_rtt_s: float, latency_s: float
    ) -> int | None:
        """Return the limit on requests in flight, perhaps lowered, if it caused a rejection; None if it did not.

        Args:
            now: When the rejection came.
            record: Record of the rejected request.
            limit: The limit on requests in flight that is known so far.
            rejection_rtt_s: Seconds that rejections take to arrive.
            latency_s: Seconds that answers take to arrive.
        """
        if record.in_flight < limit:
            return self._limit_if_reordered(now, record, limit, latency_s)
        exact = latency_s > _CLEAR_LATENCY_RATIO * rejection_rtt_s
        if limit == 1 and self._accepted_probes(record, rejection_rtt_s) and exact:
            return None  # other requests were accepted with one in flight
        self._failed += 1
        self.schedule_next(now)
        return limit

    def on_not_accepted(self) -> None:
        """Count a request that the service rejected or never answered; all other sent requests count as accepted."""
        self._not_accepted_since_doubt += 1

    def on_sent(self, record: SendRecord, limit: int, rejection_rtt_s: float) -> int:
        """Record a sent request (`record`), which may be a test request; return the `limit`, perhaps raised.

        The limit on requests in flight is raised once the service has accepted three test requests above it. A test
        request counts as accepted if no rejection came within about twice the time that rejections take to arrive
        (`rejection_rtt_s`, in seconds).
        """
        if record.in_flight < limit or record.sent_at < self.next_probe_at:
            return limit
        self._probes_sent_at.append(record.sent_at)
        if self._accepted_probes(record, rejection_rtt_s) < _PROBES_TO_RAISE:
            return limit
        limit += self._step
        self._probes_sent_at, self._step = [], min(2 * self._step, 1 + limit // 4)
        self._last_doubt = record.number - _DOUBT_SPAN * limit  # a first rejection below a proven limit is rare
        return limit

    def _accepted_probes(self, record: SendRecord, rejection_rtt_s: float) -> int:
        """Return how many test requests count as accepted, because a rejection would have come by now.

        These are the test requests sent more than about twice `rejection_rtt_s` (the seconds that a rejection takes to
        arrive) before the latest request, `record`.
        """
        return sum(record.sent_at - at > 2 * rejection_rtt_s + _MARGIN_S for at in self._probes_sent_at)

    def _limit_if_reordered(self, now: float, record: SendRecord, limit: int, latency_s: float) -> int | None:
        """Return the limit on requests in flight, perhaps lowered, after a rejection with fewer in flight than `limit`.

        Later requests may overtake the rejected one on the network. Then the service had more requests in flight than
        `record` says. Return None if overtaking cannot explain the rejection.

        Args:
            now: When the rejection came.
            record: Record of the rejected request.
            limit: The limit that is known so far.
            latency_s: Seconds that answers take to arrive.
        """
        rejection_rtt_s = max(0.0, now - record.sent_at)
        slack = max(1, round(limit * rejection_rtt_s / max(rejection_rtt_s, latency_s)))
        if limit < _MIN_REORDER or record.in_flight < limit - slack:
            return None
        accepted = record.number - self._last_doubt - self._not_accepted_since_doubt
        if record.number > self._last_doubt + _DOUBT_SPAN * limit:  # rare
            self._lowered_by = 0
        elif self._lowered_by < slack and accepted > _MIN_ACCEPTED_BETWEEN:
            self._lowered_by += 1
            limit = max(1, record.in_flight)
        else:
            return None
        self._last_doubt, self._not_accepted_since_doubt = record.number, 0
        self.schedule_next(now)
        return limit
