"""Finds a service's limit on the number of requests in flight (sent, but not answered yet).

A *probe* is a test request that is sent although the limit is reached. If it is accepted, the limit may be higher.
"""

from __future__ import annotations

from typing import Final

from lightmeter.client.rate_limit.pacer import SendRecord

_MIN_REORDER: Final = 2
"""From so many requests in flight on, one may overtake another on the network."""

_EARLY_PROBES_S: Final = (0.5, 2.0)
"""Seconds until the first two probes. They come early because the limit may in truth be one on the rate."""

_FIRST_PROBE_S: Final = 15.0
_LONGEST_PROBE_S: Final = 120.0
"""Seconds until the probe after those; the time doubles with each failed probe, up to the second figure."""

_PROBES_TO_RAISE: Final = 3
"""Requests above the limit that must have been accepted before it is raised."""

_MARGIN_S: Final = 0.01
"""Seconds beyond twice the time of a rejection after which a request counts as accepted."""

_MIN_ACCEPTED_BETWEEN: Final = 3
"""Two rejections below the limit with fewer requests accepted in between are not due to reordering."""

_DOUBT_SPAN: Final = 20
"""Rejections below the limit are rare if, since the last one, at least this many times `limit` requests were sent."""

_CLEAR_LATENCY_RATIO: Final = 10.0
"""If answers take so many times as long as rejections, the number of requests in flight is known exactly."""

_ENOUGH_ACCEPTED: Final = 20
"""Accepted requests in an episode before its rejection counts as evidence for a concurrency limit."""

_EPISODES_NEEDED: Final = 3
"""Episodes in a row that must point to a concurrency limit before a known rate limit is given up for it."""


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
        """Count an accepted request, and remember how many were in flight when it was sent, if that is the most.

        The most counts from the last call of `limit_after_rejection` on.
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

    In all methods `now` is the time in seconds on any clock that never steps.

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
        """Set `next_probe_at`, from when on a test request may exceed the limit, to some seconds after `now`.

        The more test requests were rejected, the later it is.
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
            now: The time.
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
        """Record a sent request (`record`), perhaps a test; return the `limit` on requests in flight, perhaps raised.

        The limit is raised once the service has accepted three test requests above it. A test request counts as
        accepted if no rejection came within about twice the time that rejections take (`rejection_rtt_s`).
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
        """Return how many test requests count as accepted: those sent long before the latest request (`record`).

        "Long" is more than about twice `rejection_rtt_s`, the seconds that a rejection takes to arrive: in this time,
        a rejection of the test request would have come.
        """
        return sum(record.sent_at - at > 2 * rejection_rtt_s + _MARGIN_S for at in self._probes_sent_at)

    def _limit_if_reordered(self, now: float, record: SendRecord, limit: int, latency_s: float) -> int | None:
        """Return the limit on requests in flight, perhaps lowered, after a rejection with fewer in flight than `limit`.

        Later requests may overtake the rejected one on the network: then the service had more requests in flight than
        `record` says. Return None if this cannot explain the rejection, because too many would have overtaken it.

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
