"""Trials of a cap on requests in flight: one more now and then, and what a rejection below the cap says about it."""

from __future__ import annotations

from typing import Final

from lightmeter.client.rate_limit.pacer import SendRecord

__all__ = ["MIN_REORDER_IN_FLIGHT", "ConcurrencyProbe"]

MIN_REORDER_IN_FLIGHT: Final = 2

# A cap is doubted soon after it was found: it may have been a limit on the rate. Then ever less often.
_EARLY_TRIALS_S: Final = (0.5, 2.0)
_FIRST_TRIAL_S: Final = 15.0
_LONGEST_TRIAL_S: Final = 120.0
_TRIALS: Final = 3
_MARGIN_S: Final = 0.01
# Rejections below a cap with fewer requests taken in between are none of requests that overtook each other.
_APART: Final = 3
_NEAR: Final = 20
# With latencies of so many times what a rejection takes, the number in flight is known to one.
_CLEAR: Final = 10.0


class ConcurrencyProbe:
    """When more in flight than a cap is tried, and what comes of it.

    Attributes:
        at: From then on more is tried.
    """

    def __init__(self) -> None:
        self.at = float("inf")
        self._failed = 0
        self._sent: list[float] = []
        self._step = 1
        self._near = 0
        self._untaken_near = 0
        self._lowered = 0

    def plan(self, now: float) -> None:
        """The next trial, ever later the more have failed."""
        failed, early = self._failed, len(_EARLY_TRIALS_S)
        if failed < early:
            wait_s = _EARLY_TRIALS_S[failed]
        else:
            wait_s = min(_LONGEST_TRIAL_S, _FIRST_TRIAL_S * 2.0 ** min(10, failed - early))
        self.at, self._sent, self._step = now + wait_s, [], 1

    def on_rejected(
        self, now: float, ticket: SendRecord, cap: int, rejection_rtt_s: float, latency_s: float
    ) -> int | None:
        """A request was rejected; returns the cap that explains it, None if the number in flight does not.

        Args:
            now: The time.
            ticket: The request's.
            cap: The cap that is believed in.
            rejection_rtt_s: Seconds that rejections take to come.
            latency_s: Seconds that answers take.
        """
        if ticket.in_flight < cap:
            return self._overtaken(now, ticket, cap, latency_s)
        if cap == 1 and self._passed(ticket, rejection_rtt_s) and latency_s > _CLEAR * rejection_rtt_s:
            return None  # others were taken with one in flight
        self._failed += 1
        self.plan(now)
        return cap

    def on_not_accepted(self) -> None:
        """A request was rejected or lost."""
        self._untaken_near += 1

    def on_sent(self, ticket: SendRecord, cap: int, rejection_rtt_s: float) -> int:
        """A request leaves; returns the cap, larger after three trials that were not rejected.

        They are judged as soon as a rejection would have come, after `rejection_rtt_s`: answers may take long.
        """
        if ticket.in_flight < cap or ticket.sent_at < self.at:
            return cap
        self._sent.append(ticket.sent_at)
        if self._passed(ticket, rejection_rtt_s) < _TRIALS:
            return cap
        cap += self._step
        self._sent, self._step = [], min(2 * self._step, 1 + cap // 4)
        self._near = ticket.number - _NEAR * cap  # what the trials have shown stands a first doubt
        return cap

    def _passed(self, ticket: SendRecord, rejection_rtt_s: float) -> int:
        return sum(ticket.sent_at - at > 2 * rejection_rtt_s + _MARGIN_S for at in self._sent)

    def _overtaken(self, now: float, ticket: SendRecord, cap: int, latency_s: float) -> int | None:
        """The cap after a rejection below it, if requests that overtook each other explain that; else None.

        As many can have been overtaken as travel at once.
        """
        rejection_rtt_s = max(0.0, now - ticket.sent_at)
        slack = max(1, round(cap * rejection_rtt_s / max(rejection_rtt_s, latency_s)))
        if cap < MIN_REORDER_IN_FLIGHT or ticket.in_flight < cap - slack:
            return None
        if ticket.number > self._near + _NEAR * cap:  # seldom
            self._lowered = 0
        elif self._lowered < slack and ticket.number - self._near - self._untaken_near > _APART:
            self._lowered += 1
            cap = max(1, ticket.in_flight)
        else:
            return None
        self._near, self._untaken_near = ticket.number, 0
        self.plan(now)
        return cap
