"""Finds a limit on requests per second to within a few percent, starting from the first rejections.

The service may use a token bucket: tokens flow into it at the rate of the limit, and each accepted request takes one.
The bucket is empty at each rejection. So between two rejections, the service accepts as many requests as tokens flow
in, and at most one more for a part of a token, whatever the size of the bucket. It accepts fewer if the bucket was full
for a time, because a full bucket loses tokens. So the accepted requests divided by the seconds are a lower bound of the
limit; with more requests it is closer. The rate at which a rejection came is an upper bound. The search ends when both
bounds are close to each other.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from lightmeter.client.rate_limit.pacer import SendRecord

_STEPS: Final = (1.0, 1.04, 1.08, 1.12, 1.18, 1.25, 1.35, 1.5)
"""Factors by which the accepted rate is multiplied to get the rates to try, in this order."""

_STEP_AFTER_MEASUREMENT: Final = 1
"""Index in `_STEPS` with which the search goes on after a rejection, if a rate was measured."""

_STEP_AFTER_CUT: Final = 3
"""Index in `_STEPS` with which the search goes on after a rejection, if the rate was cut without a measurement."""

_STEP_S: Final = 0.8
"""Least seconds for which a rate is tried."""

_STEP_REQUESTS: Final = 5
"""A rate is tried at least for the time that this many requests take at the accepted rate."""

_MIN_SENT: Final = 0.85
"""A rate counts as accepted only if at least this fraction of the requests that it allows were sent."""

_MIN_ACCEPTED: Final = 5
"""Number of requests accepted between two rejections from which on their rate counts as measured."""

_ACCEPTED_TO_FINISH: Final = 12
"""Number of requests accepted between two rejections from which on their rate may end the search."""

_MAX_BOUND_RATIO: Final = 1.15
"""The search ends if the upper bound of the limit is at most this many times the lower bound."""

_CUT_FACTOR: Final = 0.45
"""After a rejection without a measurement, the new accepted rate is this fraction of the rate that was tried."""

_MAX_MEASURED_FACTOR: Final = 0.95
"""After a rejection with a measurement, the new accepted rate is at most this fraction of the rate that was tried."""

_MAX_REJECTIONS: Final = 5
"""After more rejections than this, a measured rate ends the search even if the bounds are far apart."""

_UNMEASURED_RATE: Final = 1.0
"""Requests per second with which a search starts if no rate could be measured."""


class _Rejection(NamedTuple):
    """A rejected request: when it was sent, and how many requests the service had accepted before it."""

    sent_at: float
    accepted: int


class RateSearch:
    """Searches for a limit on requests per second: raises the rate in steps, and lowers it at each rejection.

    Args:
        rate: First estimate, requests per second, above 0.
        now: The present time in seconds on a monotonic clock, as in all methods.
        first: Record of the rejected request that caused the search.

    Attributes:
        accepted_rate: The largest rate that is thought to be accepted, in requests per second.
        done: Whether the search has ended: then `accepted_rate` is the limit, to within a few percent.
    """

    def __init__(self, rate: float, now: float, first: SendRecord) -> None:
        self.accepted_rate = rate
        self.done = False
        self._step = self._first_step = 0
        self._step_began_at, self._sent = now, 0
        self._not_accepted = 0
        self._rejections = [_Rejection(first.sent_at, first.number)]

    @property
    def rate(self) -> float:
        """Requests per second to send now: the rate under test, or the limit once the search has found it."""
        return self.accepted_rate * (1.0 if self.done else _STEPS[self._step])

    def on_sent(self, now: float) -> None:
        """Count a request sent at `now`, in monotonic seconds; raise the rate once this one was tested long enough."""
        self._sent += 1
        duration_s = now - self._step_began_at
        if duration_s < max(_STEP_S, _STEP_REQUESTS / self.accepted_rate):
            return
        if self._sent >= _MIN_SENT * self.rate * duration_s:
            self.accepted_rate = self.rate
            self._step = min(self._step + 1, len(_STEPS) - 1)
        self._step_began_at, self._sent = now, 0

    def on_not_accepted(self) -> None:
        """Count a request that the service rejected or never answered."""
        self._not_accepted += 1

    def on_rejected(self, now: float, record: SendRecord) -> None:
        """Lower the rate after a rejection, or end the search if the limit is now known to within a few percent.

        `record` is the record of the rejected request; the rejection came at the time `now`, in monotonic seconds. If
        several requests are rejected at once, the caller reports only the first rejection.
        """
        tried, raised = self.rate, self._step > self._first_step
        rejection = _Rejection(record.sent_at, record.number - self._not_accepted + 1)
        lower_bound, accepted = self._lower_bound(rejection)
        self._rejections.append(rejection)
        self._step = _STEP_AFTER_MEASUREMENT
        if accepted >= _ACCEPTED_TO_FINISH and (
            tried <= _MAX_BOUND_RATIO * lower_bound or len(self._rejections) > _MAX_REJECTIONS
        ):
            self.accepted_rate, self.done = min(tried, lower_bound), True
        elif accepted >= _MIN_ACCEPTED:
            known = self.accepted_rate
            measured = (lower_bound * known) ** 0.5 if raised and known > lower_bound else lower_bound
            self.accepted_rate = min(_MAX_MEASURED_FACTOR * tried, measured)
        else:
            self.accepted_rate, self._step = _CUT_FACTOR * tried, _STEP_AFTER_CUT
        self._first_step = self._step
        self._step_began_at, self._sent = now, 0

    def _lower_bound(self, rejection: _Rejection) -> tuple[float, int]:
        """Return (lower bound of the limit in requests per second, number of accepted requests that prove the bound).

        For each earlier rejection there is a rate of the requests accepted between it and `rejection`. The bound is the
        highest of these rates. Return (0, 0) if too few requests were accepted.
        """
        bounds = [
            ((rejection.accepted - one.accepted) / (rejection.sent_at - one.sent_at), rejection.accepted - one.accepted)
            for one in self._rejections
            if rejection.accepted - one.accepted >= _MIN_ACCEPTED and rejection.sent_at > one.sent_at
        ]
        return max(bounds, default=(0.0, 0))


def first_rate(measured: float, accepted: int, tried: float) -> float:
    """Return the requests per second at which to start the search for a limit, after the first rejections.

    Args:
        measured: Requests per second accepted so far; 0 if none were accepted.
        accepted: Requests accepted between the first two rejections. If this number is low, the search starts lower.
        tried: Requests per second sent before these rejections. The search starts below this rate.
    """
    if not measured:
        return _UNMEASURED_RATE
    return min(measured, (_CUT_FACTOR if accepted < _MIN_ACCEPTED else _MAX_MEASURED_FACTOR) * tried)
