"""The adaptive rate limiter: one for each API key, consulted before each request and informed of each answer.

It knows no limit at first: it sends requests evenly spaced, at a rate that doubles again and again (`StartRate`). It
allows 20 requests in flight, and one more with each answer. Rejections that depend on the number of requests in flight
lead to a concurrency limit. Other rejections and slower answers lead to a rate limit (`mode_transitions.TRANSITIONS`).

The header Retry-After takes precedence over the header RateLimit, and both take precedence over the learned limits.
Requests that are already on their way when the limiter reacts to a rejection may be rejected, too: all of these
rejections are one *episode*. The limiter reacts once to each episode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from lightmeter.client.rate_limit.concurrency_probe import ConcurrencyEvidence, ConcurrencyProbe
from lightmeter.client.rate_limit.congestion import CongestionDetector
from lightmeter.client.rate_limit.headers import Quota
from lightmeter.client.rate_limit.mode_transitions import LimiterEvent, LimiterMode, next_mode
from lightmeter.client.rate_limit.pacer import AcceptedCount, RequestPacer, SendRecord
from lightmeter.client.rate_limit.rate_estimator import RateEstimator
from lightmeter.client.rate_limit.rate_search import first_rate
from lightmeter.client.rate_limit.send_pause import Backoff
from lightmeter.client.rate_limit.start_rate import StartRate

_START_IN_FLIGHT: Final = 20.0
"""Most requests in flight at the start; each answer allows one more."""

_WARM_START: Final = 0.7
"""Fraction of a limit from an earlier run that is used at first: other processes may use the key by now."""

_LONG_WAIT_S: Final = 2.0
"""Seconds that a Retry-After must exceed to show that the service limits the rate, not the requests in flight."""
_LONG_WAIT_LATENCIES: Final = 3.0
"""Number of mean latencies that a Retry-After must also exceed to show that the service limits the rate."""

_SHORTEST_WAIT_S: Final = 0.005
"""Least seconds that `AdaptiveLimiter.wait_s` returns while too many requests are in flight."""
_LONGEST_WAIT_S: Final = 1.0
"""Most seconds that `AdaptiveLimiter.wait_s` returns while too many requests are in flight."""

_PROBE_EXCESS: Final = 0.5
"""While a higher concurrency limit is tested, the rate is (limit + this value) requests per latency, evenly spaced."""
_PROBE_MIN_PART: Final = 0.25
"""Least rate while a higher concurrency limit is tested, as a fraction of the rate at which the limit was found."""

_REFILL_FACTOR: Final = 2.0
"""With a concurrency limit, the highest rate is this value times (limit + `_REFILL_EXTRA`) requests per latency."""
_REFILL_EXTRA: Final = 6
"""Number of requests that is added to the concurrency limit before `_REFILL_FACTOR` is applied."""

_MIN_SHARE_CHANGE: Final = 0.05
"""A new share of the limit is adopted only if it differs from the present one by more than this fraction."""


class AdaptiveLimiter:
    """Decides when the next request may be sent to a service. All times are in seconds on a monotonic clock.

    It learns the limits of the service from the answers. In all methods, `record` is what `on_sent` returned.

    Args:
        max_in_flight: Most requests in flight at the same time, 1 or more.
        watch_latency: Whether to slow down when answers become slower; not needed for the embedded service.
        jitter: Returns random numbers from 0 to 1 for the pauses after rejections; always 0.5 by default.

    Attributes:
        mode: What is limited: nothing, requests in flight, or the rate (after rejections, or after slower answers).
        in_flight_limit: Most requests that may be in flight now, 1 or more; used while `concurrency_limit` is None.
        rate_estimator: Learns the limit on requests per second; None while no such limit is known.
        concurrency_limit: The most requests in flight that the service accepts; None while this is unknown.
    """

    def __init__(
        self, max_in_flight: int = 64, *, watch_latency: bool = True, jitter: Callable[[], float] = lambda: 0.5
    ) -> None:
        if max_in_flight < 1:
            raise ValueError(f"{max_in_flight} requests at once: at least 1 is needed.")
        self.max_in_flight: Final = max_in_flight
        self.mode = LimiterMode.UNLIMITED
        self.in_flight_limit = min(_START_IN_FLIGHT, float(max_in_flight))
        self.rate_estimator: RateEstimator | None = None
        self.concurrency_limit: int | None = None
        self._backoff = Backoff(jitter)
        self._pacer = RequestPacer()
        self._congestion = CongestionDetector()
        self._probe = ConcurrencyProbe()
        self._watch_latency = watch_latency
        self._was_rejected = False
        self._episode = 0
        self._sent = 0
        self._start = StartRate()
        self._in_flight = 0
        self._any_accepted = False
        self._since_start: AcceptedCount | None = None
        self._since_found: AcceptedCount | None = None  # counts from the rejection that showed the concurrency limit
        self._accepted_since_found = False
        self._rate_when_found = 0.0
        self._rejection_rtt_s = 0.0
        self._trial: SendRecord | None = None
        self._evidence = ConcurrencyEvidence()
        self._sharers = 1
        self._quota_rate: float | None = None
        self._quota_until = float("-inf")

    @property
    def latency_s(self) -> float:
        """Smoothed seconds from sending a request to its answer."""
        return self._congestion.latency_s

    @property
    def requests_per_s(self) -> float | None:
        """The learned limit on requests per second; None if unknown, or if higher rates only slow the service down."""
        return self.rate_estimator.rate if self.rate_estimator and self.mode is LimiterMode.RATE else None

    def wait_s(self, now: float, in_flight: int) -> float:
        """Return the seconds to wait before calling this method again; 0 means that one request may be sent now.

        A caller that gets 0 calls `on_admitted` and then sends one request. `in_flight` is the number of requests for
        which `on_admitted` was called and which have no answer yet.
        """
        wait_s = self._backoff.wait_s(now)
        if wait_s > 0:
            return wait_s
        if in_flight >= self._allowed_in_flight(now):
            return min(_LONGEST_WAIT_S, max(_SHORTEST_WAIT_S, self.latency_s / max(1, in_flight)))
        return self._pacer.wait_s(now, self._allowed_rate(now))

    def _allowed_in_flight(self, now: float) -> int:
        if self.concurrency_limit is None:
            return int(self.in_flight_limit)
        return min(self.max_in_flight, self.concurrency_limit + (now >= self._probe.next_probe_at))

    def _allowed_rate(self, now: float) -> float | None:
        """Return the requests per second that may be sent now; None means no limit."""
        rate = self._start_rate() if self.rate_estimator is None else self.rate_estimator.allowed(now)
        limit, latency_s = self.concurrency_limit, max(_SHORTEST_WAIT_S, self.latency_s)
        if limit is not None and now >= self._probe.next_probe_at:
            # In a burst, a limit on the rate could cause the rejection, which then proves nothing about the number.
            rate = max(_PROBE_MIN_PART * self._rate_when_found, (limit + _PROBE_EXCESS) / latency_s)
        elif limit is not None and self._watch_latency:
            # In a burst, requests overtake each other, and one that was sent below the limit would be rejected.
            rate = _REFILL_FACTOR * (limit + _REFILL_EXTRA) / latency_s
        if self._quota_rate is None or now >= self._quota_until:
            return rate
        return self._quota_rate if rate is None else min(rate, self._quota_rate)

    def _start_rate(self) -> float | None:
        """Return the requests per second that may be sent while no limit is known; each sent request raises the rate.

        None means no limit: for the embedded service, or once a concurrency limit or a header RateLimit is known.
        """
        if self.concurrency_limit is not None or not self._watch_latency or self._quota_until > float("-inf"):
            return None
        return self._start.rate

    def on_admitted(self, now: float) -> None:
        """Count a request that is about to be sent at `now`; call this after `wait_s` returned 0."""
        self._pacer.on_admitted(now, self._allowed_rate(now))
        self._backoff.on_admitted(now, self._rejection_rtt_s)
        if self.rate_estimator is not None:
            self.rate_estimator.on_sent(now)

    def on_sent(self, now: float) -> SendRecord:
        """Count a request sent at `now`; return the record to pass to `on_answer`, `on_throttled` or `on_lost`."""
        step = -1 if self.rate_estimator is None else self.rate_estimator.probe_step
        record = SendRecord(self._sent, now, self._episode, step, self._in_flight, self._start.rate)
        self._sent += 1
        self._start.on_sent()
        self._in_flight += 1
        if self._backoff.consecutive_rejections and self._trial is None:
            self._trial = record
        elif self._backoff.consecutive_rejections:
            self._end_backoff(now)  # a rejection of the trial request would have arrived by now
        self._since_start = self._since_start or AcceptedCount(record)
        if self.concurrency_limit is not None:
            raised = self._probe.on_sent(record, self.concurrency_limit, self._rejection_rtt_s)
            self.concurrency_limit = min(self.max_in_flight, raised)
        return record

    def on_lost(self, record: SendRecord) -> None:
        """Count a request that ended without any answer; `record` is what `on_sent` returned for it."""
        self._in_flight = max(0, self._in_flight - 1)
        self._count_not_accepted(record)

    def on_answer(self, now: float, latency_s: float, record: SendRecord) -> None:
        """Learn from an answer that is no rejection; it came `latency_s` seconds after its request (`record`)."""
        self._in_flight = max(0, self._in_flight - 1)
        if record.episode == self._episode and self._backoff.consecutive_rejections:
            self._trial = self._trial or record
            self._end_backoff(now)
        round_ended = self._congestion.on_answer(now, max(0.0, latency_s))
        if self._congestion.has_baseline:
            self._start.on_latency(self.latency_s)
        if self._watch_latency and not self._was_rejected and round_ended and self._congestion.congested:
            self._limit_congestion(now)
        self._evidence.on_accepted(record)
        self._any_accepted = True
        self._accepted_since_found = True
        steady = self._congestion.has_baseline and not self._congestion.slow_rounds
        if self.rate_estimator is not None:
            self.in_flight_limit = float(self.max_in_flight)
        elif self.concurrency_limit is None and (steady or not self._watch_latency):
            self.in_flight_limit = min(float(self.max_in_flight), self.in_flight_limit + 1)

    def _end_backoff(self, now: float) -> None:
        """End the pauses after rejections at `now` (monotonic seconds); tell `rate_estimator` how long they were."""
        backoff, trial = self._backoff, self._trial
        was_blocked = backoff.consecutive_rejections > 1 or backoff.retry_after_until >= backoff.blocked_since
        backoff.on_accepted()
        self._trial = None
        if trial is not None and self.rate_estimator is not None and was_blocked:
            # (a Retry-After is rounded up to whole seconds)
            still_blocked_at = max(backoff.last_rejected_at, backoff.retry_after_until - 1)
            self.rate_estimator.on_backoff_ended(now, trial, backoff.blocked_since, still_blocked_at)

    def _limit_congestion(self, now: float) -> None:
        self.mode = next_mode(self.mode, LimiterEvent.SLOWER_ANSWERS)
        if self.rate_estimator is None:
            self.rate_estimator = RateEstimator(self._congestion.rate, now, None)
        self.rate_estimator.on_congestion(now, self._congestion.rate)
        self._congestion.reset_round()
        # The service first works off what it has queued.
        self._pacer.hold(now + self._in_flight / max(1.0, self._congestion.rate) / 2)

    def on_throttled(self, now: float, retry_after_s: float | None, record: SendRecord) -> None:
        """Learn from the rejection (such as HTTP 429) of the request `record`; it came at `now`, in monotonic seconds.

        `retry_after_s` is the wait that the rejection asks for, None if none. If the request was sent before the
        limiter reacted to an earlier rejection, this rejection can only lengthen the pause.
        """
        self._in_flight = max(0, self._in_flight - 1)
        self._count_not_accepted(record)
        self._was_rejected = True
        self._pacer.on_rejected(now)
        rtt_s = max(0.0, now - record.sent_at)
        self._rejection_rtt_s += (1.0 if rtt_s > self._rejection_rtt_s else 0.1) * (rtt_s - self._rejection_rtt_s)
        if record.episode == self._episode:
            long_wait = (retry_after_s or 0.0) > max(_LONG_WAIT_S, _LONG_WAIT_LATENCIES * self.latency_s)
            self._episode += 1
            self._trial = None
            if retry_after_s is not None and not self._any_accepted and self.rate_estimator is None:
                self._defer(now)
            elif long_wait or not self._limit_by_concurrency(now, record):
                self._limit_by_rate(now, record)
            else:
                self._pacer.hold(now + 2 * self._rejection_rtt_s)  # others on their way may be rejected, too
        if retry_after_s is not None:
            self._backoff.on_retry_after(now + max(0.0, retry_after_s))

    def _defer(self, now: float) -> None:
        """Begin a pause after a rejection that came before any request was accepted.

        This rejection does not show the limit: forget the concurrency limit, and count accepted requests from 0 again.
        """
        self.mode = next_mode(self.mode, LimiterEvent.DEFERRED)
        self._backoff.start_backoff(now, None)
        self.concurrency_limit, self._since_start = None, None

    def _limit_by_concurrency(self, now: float, record: SendRecord) -> bool:
        """Return whether the number in flight explains the rejection of `record`; if so, set a concurrency limit."""
        if self.rate_estimator is not None:
            limit = self._evidence.limit_after_rejection(record, in_row=self._backoff.consecutive_rejections > 0)
        elif self._backoff.consecutive_rejections or (self.concurrency_limit is not None and record.in_flight == 0):
            limit = None
        elif self.concurrency_limit is None:
            self._rate_when_found = self._start_rate() or 0.0
            limit = record.in_flight or self._in_flight or None  # (the first request may have been overtaken by all)
        elif not self._accepted_since_found and record.in_flight < self.concurrency_limit:
            limit = record.in_flight  # the limit inferred from the first burst was too high
        else:
            return self._confirm_concurrency(now, record, self.concurrency_limit)
        if limit is None:
            return False
        self.mode = next_mode(self.mode, LimiterEvent.CONCURRENCY_REJECTION)
        self.rate_estimator, self.concurrency_limit = None, limit
        self._since_found, self._accepted_since_found = AcceptedCount(record), False
        self._probe.schedule_next(now)
        return True

    def _confirm_concurrency(self, now: float, record: SendRecord, known: int) -> bool:
        """Return whether the `known` concurrency limit explains the rejection of `record`; if so, keep or lower it.

        If fewer than `known` were in flight before `record`, and such rejections are not rare, it falls to that number.
        """
        latency_s = max(_SHORTEST_WAIT_S, self.latency_s)
        limit = self._probe.on_rejected(now, record, known, self._rejection_rtt_s, latency_s)
        if limit is None:
            return False
        self.mode = next_mode(self.mode, LimiterEvent.CONCURRENCY_REJECTION)
        self.concurrency_limit = limit
        return True

    def _limit_by_rate(self, now: float, record: SendRecord) -> None:
        """Let no request be sent for a while after the rejection of `record`; set or correct the limit on the rate.

        This pause lasts at most 0.5 s after a first rejection, and longer after further ones in a row (see `Backoff`).
        """
        self.mode = next_mode(self.mode, LimiterEvent.RATE_REJECTION)
        backoff, estimator = self._backoff, self.rate_estimator
        backoff.start_backoff(now, None if estimator is None else estimator.rate)
        if estimator is not None:
            if backoff.consecutive_rejections > 1:
                backoff.on_expected_reset(now, estimator.next_reset_at(now, record, backoff.blocked_since))
            estimator.on_rejected(now, record, backoff.consecutive_rejections)
            return
        self.concurrency_limit = None
        self.in_flight_limit = float(self.max_in_flight)
        since_found, since_start = self._since_found, self._since_start
        rate = since_found.rate_before(record) if since_found else 0.0
        rate = rate or (since_start.rate_before(record) if since_start else 0.0)
        accepted = since_found.accepted_before(record) if since_found else 0
        self.rate_estimator = RateEstimator(first_rate(rate, accepted, record.start_rate), now, record)
        if since_start is not None:
            self.rate_estimator.start_window(since_start)

    def _count_not_accepted(self, record: SendRecord) -> None:
        for count in (self._since_start, self._since_found):
            if count is not None and record.number >= count.start.number:
                count.not_accepted += 1
        self._probe.on_not_accepted()
        if self.rate_estimator is not None:
            self.rate_estimator.on_not_accepted()

    def hold(self, until: float) -> None:
        """Let no request be sent before `until` (monotonic seconds), for example while the service is unreachable."""
        self._backoff.blocked_until = max(self._backoff.blocked_until, until)

    def on_quota(self, now: float, quota: Quota) -> None:
        """Spread the requests that remain in a `quota` evenly until it is renewed; if none remain, pause until then."""
        self._quota_until = now + quota.reset_s
        if quota.remaining < 1:
            self._backoff.on_retry_after(self._quota_until)
            self._quota_rate = None
        else:
            self._quota_rate = quota.remaining / quota.reset_s

    def state(self) -> dict[str, float]:
        """Return the learned limit for later runs and other processes; empty if none is known.

        The keys are `rate` (requests per second) and `crowded` (1 if slower answers showed the limit, else 0), or `cap`
        (requests in flight). `rate` and `cap` are this process's share; `sharers` is the number of processes.
        """
        if self.rate_estimator is not None:
            congested = float(self.mode is LimiterMode.CONGESTION)
            return {"rate": self.rate_estimator.rate, "crowded": congested, "sharers": float(self._sharers)}
        if self.concurrency_limit is not None:
            return {"cap": float(self.concurrency_limit), "sharers": float(self._sharers)}
        return {}

    def warm_start(self, state: Mapping[str, float], now: float) -> None:
        """Start at `now` (monotonic seconds) with 0.7 of the limit that an earlier run learned: others may use the key.

        `state` is what the method `state` returned in that run. If it is empty, nothing changes.
        """
        sharers = max(1.0, state.get("sharers", 1.0)) / self._sharers
        if state.get("rate", 0) > 0:
            self._use_known_rate(_WARM_START * state["rate"] * sharers, now, congested=bool(state.get("crowded", 0)))
        elif state.get("cap", 0) >= 1:
            self._use_known_concurrency(_WARM_START * state["cap"] * sharers, now)

    def adopt_share(self, others: Sequence[Mapping[str, float]], now: float) -> None:
        """Adopt an equal share of the service's limit, which this process and others use together.

        From its own share, each process estimates the whole limit. The new share is the mean of these estimates,
        divided by the number of processes. If the number of processes is unchanged, a share that differs little is not
        adopted, and none is adopted while a higher rate is tested. `others` has the `state` of each other process.
        """
        sharers, before = len(others) + 1, self._sharers
        self._sharers = sharers
        estimator = self.rate_estimator
        own = [{"rate": estimator.rate if estimator else 0, "cap": self.concurrency_limit or 0, "sharers": before}]
        rates, limits = (
            [one[name] * max(1.0, one.get("sharers", 1.0)) for one in (*own, *others) if one.get(name, 0) > 0]
            for name in ("rate", "cap")
        )
        if rates:
            share = sum(rates) / len(rates) / sharers
            probing = estimator is not None and estimator.is_probing
            similar = estimator is not None and abs(estimator.rate - share) <= _MIN_SHARE_CHANGE * share
            if sharers != before or not (probing or similar):
                self._use_known_rate(share, now, congested=any(one.get("crowded", 0) for one in others))
        elif limits and (sharers != before or self.concurrency_limit is None):
            self._use_known_concurrency(sum(limits) / len(limits) / sharers, now)

    def _use_known_rate(self, rate: float, now: float, *, congested: bool) -> None:
        self.mode = next_mode(self.mode, LimiterEvent.KNOWN_CONGESTION if congested else LimiterEvent.KNOWN_RATE)
        if self.rate_estimator is not None:
            self.rate_estimator.reset_to(rate, now)
            return
        self.rate_estimator = RateEstimator(rate, now, None)
        self.rate_estimator.congested = congested
        self.concurrency_limit = None
        self.in_flight_limit = float(self.max_in_flight)

    def _use_known_concurrency(self, limit: float, now: float) -> None:
        self.mode = next_mode(self.mode, LimiterEvent.KNOWN_CONCURRENCY)
        self.concurrency_limit = max(1, min(self.max_in_flight, int(limit)))
        self._probe.next_probe_at = now
