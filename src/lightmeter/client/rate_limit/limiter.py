"""The controller: one for each key, asked before each request and told of each answer.

It begins without a limit, with 16 requests per second, evenly spaced, twice as many each second, and with 20 in flight,
one more with each answer. What stops that decides the mode:

========================================  ==========================================================
what is seen                              what is then kept
========================================  ==========================================================
nothing                                   as many in flight as the caller allows
rejections above a number in flight       that number in flight; one more is tried now and then
any other rejections                      requests per second, evenly spaced: `ceiling.Ceiling`, which begins
                                          with a `search.RateSearch`
... that last for seconds                 the quota of a window over its length: `window.QuotaWindow`
answers getting slower, no rejections     requests per second, just under the completions measured
========================================  ==========================================================

A Retry-After beats a RateLimit header beats all of this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from lightmeter.client.rate_limit.backoff import Backoff
from lightmeter.client.rate_limit.concurrency_probe import MIN_REORDER_IN_FLIGHT, ConcurrencyProbe
from lightmeter.client.rate_limit.congestion import CongestionDetector
from lightmeter.client.rate_limit.headers import Quota
from lightmeter.client.rate_limit.pacer import RequestPacer, SendRecord
from lightmeter.client.rate_limit.rate_estimator import RateEstimator
from lightmeter.client.rate_limit.rate_search import first_rate

__all__ = ["AdaptiveLimiter"]

_FIRST_WINDOW: Final = 20.0
_GROWTH: Final = 1.0
# While no limit is known: requests per second at first, and how much each request sent adds; they double each second.
_START_RATE: Final = 16.0
_START_GROWTH: Final = 0.7
_WARM: Final = 0.7
# Who asks to wait for longer, and for longer than so many latencies, counts by time, not in flight.
_CLOSED_S: Final = 2.0
_CLOSED_LATENCIES: Final = 3.0
_SHORTEST_WAIT_S: Final = 0.005
_LONGEST_WAIT_S: Final = 1.0
_FIRST_RATE: Final = 1.0
_TRIAL_EXCESS: Final = 0.5
# Trials come at this part of the rate at which the cap was found, at least.
_TRIAL_PART: Final = 0.25
# In flight again after a pause: so many times what a cap would use in a latency, and so many requests more.
_REFILL: Final = 2.0
_REFILL_MORE: Final = 6
_ENOUGH: Final = 20
_ABOVE: Final = 3
# Parts of a shared limit that differ by less are equal.
_ALIKE: Final = 0.05


class AdaptiveLimiter:
    """Decides when the next request may leave.

    Args:
        max_in_flight: Most requests at once, 1 or more.
        watch_latency: Whether to hold back when answers become slower; a service that is ours alone need not be
            spared.
        jitter: Numbers from 0 to 1 for the pauses after rejections; always the middle unless given.

    Attributes:
        window: How many requests may be in flight now, 1 to `max_in_flight`.
        ceiling: The limit on the rate; None while none is known.
        cap: The number in flight above which the service rejects; None while none is known.
    """

    def __init__(
        self, max_in_flight: int = 64, *, watch_latency: bool = True, jitter: Callable[[], float] = lambda: 0.5
    ) -> None:
        if max_in_flight < 1:
            raise ValueError(f"{max_in_flight} requests at once: at least 1 is needed.")
        self.max_in_flight: Final = max_in_flight
        self.window = min(_FIRST_WINDOW, float(max_in_flight))
        self.ceiling: RateEstimator | None = None
        self.cap: int | None = None
        self._door = Backoff(jitter)
        self._spacing = RequestPacer()
        self._watch = CongestionDetector()
        self._watches = watch_latency
        self._rejected = False
        self._no_cap = False
        self._cap_holds = False
        self._episode = 0
        self._number = 0
        self._flying = 0
        self._untaken = 0
        self._first: SendRecord | None = None
        self._since: SendRecord | None = None
        self._untaken_since = 0
        self._trials = ConcurrencyProbe()
        self._tried_rate = 0.0
        self._travel_s = 0.0
        self._knock: SendRecord | None = None
        self._most_taken = -1
        self._taken_since_episode = 0
        self._above = 0
        self._above_needed = _ABOVE
        self._sharers = 1
        self._quota_rate: float | None = None
        self._quota_until = float("-inf")

    @property
    def latency_s(self) -> float:
        """Seconds from sending to answer, about: of the last round."""
        return self._watch.latency_s

    @property
    def requests_per_s(self) -> float | None:
        """The learned limit on requests; None while none is known, or where the service merely gets slower."""
        return None if self.ceiling is None or self.ceiling.crowded else self.ceiling.rate

    @property
    def closed_until(self) -> float:
        """The instant before which nothing may leave."""
        return self._door.blocked_until

    def wait_s(self, now: float, in_flight: int) -> float:
        """Seconds to wait before asking again; 0 means: one may leave, and whoever lets it says so with `on_admitted`.

        Args:
            now: The time, on any clock that never steps.
            in_flight: Requests let through and not answered yet.
        """
        wait_s = self._door.wait_s(now)
        if wait_s > 0:
            return wait_s
        if in_flight >= self._limit(now):
            return min(_LONGEST_WAIT_S, max(_SHORTEST_WAIT_S, self._watch.latency_s / max(1, in_flight)))
        return self._spacing.wait_s(now, self._rate(now))

    @property
    def _latency_s(self) -> float:
        return max(_SHORTEST_WAIT_S, self._watch.latency_s)

    def _limit(self, now: float) -> int:
        if self.cap is None:
            return int(self.window)
        return min(self.max_in_flight, self.cap + (now >= self._trials.at))

    def _rate(self, now: float) -> float | None:
        own = self._start_rate() if self.ceiling is None else self.ceiling.allowed(now)
        if self.cap is not None and now >= self._trials.at:
            # Sent at once, one more would also meet a limit on the rate, and prove nothing about the number in flight.
            own = max(_TRIAL_PART * self._tried_rate, (self.cap + _TRIAL_EXCESS) / self._latency_s)
        elif self.cap is not None and self._watches:
            # All at once they would overtake each other on the way, and one below the cap would be rejected.
            own = _REFILL * (self.cap + _REFILL_MORE) / self._latency_s
        if self._quota_rate is None or now >= self._quota_until:
            return own
        return self._quota_rate if own is None else min(own, self._quota_rate)

    def _start_rate(self) -> float | None:
        """Before anything is known: ever faster, evenly; a service of our own is not to be found out about."""
        if self.cap is not None or not self._watches or self._quota_until > float("-inf"):
            return None
        return _START_RATE + _START_GROWTH * self._number

    def on_admitted(self, now: float) -> None:
        """The caller lets one request through: it will be sent as soon as it is written down."""
        self._spacing.take(now, self._rate(now))
        self._door.on_admitted(now, self._travel_s)
        if self.ceiling is not None:
            self.ceiling.on_sent(now)

    def on_sent(self, now: float) -> SendRecord:
        """A request leaves now; its ticket goes with its answer."""
        step = -1 if self.ceiling is None else self.ceiling.step
        ticket = SendRecord(self._number, now, self._episode, step, self._flying)
        self._number += 1
        self._flying += 1
        if self._door.misses and self._knock is None:
            self._knock = ticket
        elif self._door.misses:
            self._opened(now)  # the first would have been turned away by now
        self._first = self._first or ticket
        if self.cap is not None:
            self.cap = min(self.max_in_flight, self._trials.on_sent(ticket, self.cap, self._travel_s))
        return ticket

    def on_lost(self, ticket: SendRecord) -> None:
        """A request ended without any answer."""
        self._flying = max(0, self._flying - 1)
        self._not_taken(ticket)

    def on_answer(self, now: float, latency_s: float, ticket: SendRecord) -> None:
        """A request was answered, with anything but a plea to slow down, `latency_s` after it left."""
        self._flying = max(0, self._flying - 1)
        if ticket.episode == self._episode and self._door.misses:
            self._knock = self._knock or ticket
            self._opened(now)
        round_ended = self._watch.on_answer(now, max(0.0, latency_s))
        if self._watches and not self._rejected and round_ended and self._watch.crowded:
            self._crowded(now)
        self._most_taken = max(self._most_taken, ticket.in_flight)
        self._taken_since_episode += 1
        self._cap_holds = True
        if self.ceiling is not None:
            self.window = float(self.max_in_flight)
        elif self.cap is None and (not self._watches or (self._watch.knows and not self._watch.slow_rounds)):
            self.window = min(float(self.max_in_flight), self.window + _GROWTH)

    def _opened(self, now: float) -> None:
        """A request was taken, or may be thought so, after rejections."""
        misses, knock = self._door.misses, self._knock
        self._door.on_accepted()
        self._knock = None
        was_closed = misses > 1 or self._door.retry_after_until >= self._door.blocked_since
        if knock is not None and self.ceiling is not None and was_closed:
            still_blocked_at = max(
                self._door.last_rejected_at, self._door.retry_after_until - 1
            )  # whole seconds are asked for
            self.ceiling.on_reopened(now, knock, self._door.blocked_since, still_blocked_at)

    def _crowded(self, now: float) -> None:
        if self.ceiling is None:
            self.ceiling = RateEstimator(self._watch.rate, now, None)
        self.ceiling.on_congestion(now, self._watch.rate)
        self._watch.reset_round()
        # What has queued up goes first.
        self._spacing.hold(now + self._flying / max(1.0, self._watch.rate) / 2)

    def on_throttled(self, now: float, retry_after_s: float | None, ticket: SendRecord) -> None:
        """A request was turned away; `retry_after_s` is how long the service asks to wait, None if it does not say.

        A rejection of a request that left before the last episode began belongs to that episode: it can lengthen
        the silence, and costs nothing more.
        """
        self._flying = max(0, self._flying - 1)
        self._not_taken(ticket)
        self._rejected = True
        self._spacing.on_rejected(now)
        rejection_rtt_s = max(0.0, now - ticket.sent_at)
        self._travel_s += (1.0 if rejection_rtt_s > self._travel_s else 0.1) * (rejection_rtt_s - self._travel_s)
        if ticket.episode == self._episode:
            self._episode += 1
            self._knock = None
            if retry_after_s is not None and self._most_taken < 0 and self.ceiling is None:
                self._begin_later(now)
            elif self._closed_for(retry_after_s) or not self._goes_by_number(now, ticket):
                self._limit_rate(now, ticket)
            else:
                self._spacing.hold(now + 2 * self._travel_s)  # those on their way say whether it was only this one
        if retry_after_s is not None:
            self._door.on_retry_after(now + max(0.0, retry_after_s))

    def _closed_for(self, retry_after_s: float | None) -> bool:
        """Whether the service asks for far longer than one in flight takes to end: that says, it counts by time."""
        return retry_after_s is not None and retry_after_s > max(_CLOSED_S, _CLOSED_LATENCIES * self._watch.latency_s)

    def _begin_later(self, now: float) -> None:
        """Nothing was taken yet, and the service says when to come back: how much it takes will show only then."""
        self._door.start_backoff(now, None)
        self.cap, self._first, self._untaken = None, None, 0

    def _goes_by_number(self, now: float, ticket: SendRecord) -> bool:
        """Whether the rejection can be explained by too many in flight: then fewer are enough, and no silence."""
        if self.ceiling is not None:
            return self._separates(now, ticket)
        # Of the very first ones, the first may have been overtaken by all others.
        most = ticket.in_flight or (self._flying if self.cap is None else 0)
        if self._no_cap or self._door.misses or most == 0:
            return False
        if self.cap is None:
            self._tried_rate = self._start_rate() or 0.0
            self._keep_cap(now, ticket, most)
            return True
        if not self._cap_holds and 0 < ticket.in_flight < self.cap:
            self._keep_cap(now, ticket, ticket.in_flight)  # it was taken from a first volley, and taken too high
            return True
        kept = self._trials.on_rejected(now, ticket, self.cap, self._travel_s, self._latency_s)
        self.cap = kept or self.cap
        return kept is not None

    def _keep_cap(self, now: float, ticket: SendRecord, cap: int) -> None:
        self.cap, self._since, self._untaken_since = cap, ticket, 0
        self._cap_holds = False
        self._trials.plan(now)

    def _separates(self, now: float, ticket: SendRecord) -> bool:
        """Whether rejections under a limit on the rate go by number in flight, episode after episode."""
        above = ticket.in_flight > self._most_taken or ticket.in_flight == self._most_taken >= MIN_REORDER_IN_FLIGHT
        enough = self._taken_since_episode >= _ENOUGH
        self._most_taken, self._taken_since_episode = 0, 0
        if enough:
            self._above = self._above + 1 if above and not self._door.misses else 0
        if self._above < self._above_needed:
            return False
        self._above, self._above_needed = 0, self._above_needed * 2
        self.ceiling, self._no_cap = None, False
        self._keep_cap(now, ticket, ticket.in_flight)
        return True

    def _limit_rate(self, now: float, ticket: SendRecord) -> None:
        """Rejections that do not go by number in flight: a limit on the rate, first taken for what got through."""
        self._door.start_backoff(now, None if self.ceiling is None else self.ceiling.rate)
        if self._door.misses > 1 and self.ceiling is not None:
            self._door.on_expected_reset(now, self.ceiling.opening(now, ticket, self._door.blocked_since))
        if self.ceiling is not None:
            self.ceiling.on_rejected(now, ticket, self._door.misses)
            return
        self.cap, self._no_cap = None, True
        self.window = float(self.max_in_flight)
        rate = self._through(self._since, self._untaken_since, ticket)
        if rate is None:
            rate = self._through(self._first, self._untaken, ticket)
        counted = 0 if self._since is None else ticket.number - self._since.number - self._untaken_since
        tried = _START_RATE + _START_GROWTH * ticket.number
        self.ceiling = RateEstimator(_FIRST_RATE if rate is None else first_rate(rate, counted, tried), now, ticket)
        if self._first is not None:
            self.ceiling.start_window(self._first, self._untaken)

    @staticmethod
    def _through(since: SendRecord | None, untaken: int, ticket: SendRecord) -> float | None:
        if since is None or ticket.sent_at <= since.sent_at:
            return None
        taken = ticket.number - since.number - untaken
        return taken / (ticket.sent_at - since.sent_at) if taken > 0 else None

    def _not_taken(self, ticket: SendRecord) -> None:
        if self._first is not None and ticket.number >= self._first.number:
            self._untaken += 1
        self._trials.on_not_accepted()
        if self._since is not None and ticket.number >= self._since.number:
            self._untaken_since += 1
        if self.ceiling is not None:
            self.ceiling.on_not_accepted()

    def hold(self, until: float) -> None:
        """Send nothing before `until`, for a reason that says nothing about limits."""
        self._door.blocked_until = max(self._door.blocked_until, until)

    def on_quota(self, now: float, quota: Quota) -> None:
        """An answer's headers say what is left: no more than that until it is renewed."""
        self._quota_until = now + quota.reset_s
        if quota.remaining < 1:
            self._door.on_retry_after(self._quota_until)
            self._quota_rate = None
        else:
            self._quota_rate = quota.remaining / quota.reset_s

    def state(self) -> dict[str, float]:
        """What is worth keeping and telling: `rate` (requests per second) or `cap` (in flight), or nothing.

        Both are of this process alone; with `sharers`, how many share the limit, they are those of the key.
        """
        if self.ceiling is not None:
            return {"rate": self.ceiling.rate, "crowded": float(self.ceiling.crowded), "sharers": float(self._sharers)}
        return {} if self.cap is None else {"cap": float(self.cap), "sharers": float(self._sharers)}

    def warm_start(self, state: Mapping[str, float], now: float) -> None:
        """Go on with what an earlier run learned, at 0.7 of it: others may use the key by now."""
        sharers = max(1.0, state.get("sharers", 1.0)) / self._sharers
        if state.get("rate", 0) > 0:
            self._set_rate(_WARM * state["rate"] * sharers, now, crowded=bool(state.get("crowded", 0)))
        elif state.get("cap", 0) >= 1:
            self._set_cap(_WARM * state["cap"] * sharers, now)

    def share(self, others: Sequence[Mapping[str, float]], now: float) -> None:
        """Take an equal part of what this process and `others` (their `state`) have learned of the limit.

        Each counts only its own requests, so each learns its own part; a part is the mean of what all think the
        whole is, divided by their number. Small differences and probes under way are left alone.
        """
        sharers, before = len(others) + 1, self._sharers
        self._sharers = sharers
        mine = [{"rate": self.ceiling.rate if self.ceiling else 0, "cap": self.cap or 0, "sharers": before}]
        rates, caps = (
            [one[name] * max(1.0, one.get("sharers", 1.0)) for one in (*mine, *others) if one.get(name, 0) > 0]
            for name in ("rate", "cap")
        )
        if rates:
            part = sum(rates) / len(rates) / sharers
            probing = self.ceiling is not None and self.ceiling.is_probing
            near = self.ceiling is not None and abs(self.ceiling.rate - part) <= _ALIKE * part
            if sharers != before or not (probing or near):
                self._set_rate(part, now, crowded=any(one.get("crowded", 0) for one in others))
        elif caps and (sharers != before or self.cap is None):
            self._set_cap(sum(caps) / len(caps) / sharers, now)

    def _set_rate(self, rate: float, now: float, *, crowded: bool) -> None:
        if self.ceiling is None:
            self.ceiling = RateEstimator(rate, now, None)
            self.ceiling.crowded = crowded
            self.cap, self._no_cap = None, True
            self.window = float(self.max_in_flight)
        else:
            self.ceiling.moved(rate, now)

    def _set_cap(self, cap: float, now: float) -> None:
        self.cap = max(1, min(self.max_in_flight, int(cap)))
        self._trials.at = now
