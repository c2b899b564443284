"""The search for a limit on the rate, from the first rejections until it is known within some percent.

A token bucket is empty at each rejection. What it takes between two of them is what flows in, at most one token more,
whatever it holds: requests taken / time is a lower bound of its rate, and the more were taken, the closer. It is no
more than that because a bucket that is full loses what flows in. The rate at which the rejection came is an upper
bound. The search ends when the two are near each other.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from lightmeter.client.rate_limit.pacer import SendRecord

__all__ = ["RateSearch", "first_rate"]

_STEPS: Final = (1.0, 1.04, 1.08, 1.12, 1.18, 1.25, 1.35, 1.5)
_AFTER_MEASURE: Final = 1
_AFTER_CUT: Final = 3
_STEP_S: Final = 0.8
_STEP_REQUESTS: Final = 5
_SENT_SHARE: Final = 0.85
_FEW: Final = 5
_ENOUGH: Final = 12
_NEAR: Final = 1.15
_CUT: Final = 0.45
_MEASURED: Final = 0.95
_MAX_REJECTIONS: Final = 5


class _Rejection(NamedTuple):
    at: float
    taken: int


class RateSearch:
    """Raises a rate step by step, and lowers it to what was measured at each rejection.

    Args:
        rate: First estimate, requests per second, above 0.
        now: The time.
        first: The request that was rejected last.

    Attributes:
        passed: The largest rate that is thought to be taken, requests per second.
        done: Whether `passed` is the limit, within some percent.
    """

    def __init__(self, rate: float, now: float, first: SendRecord) -> None:
        self.passed = rate
        self.done = False
        self._step = self._first_step = 0
        self._began_at, self._sent = now, 0
        self._untaken = 0
        self._rejections = [_Rejection(first.sent_at, first.number)]

    @property
    def rate(self) -> float:
        """Requests per second that are tried now; when the search is done, the limit."""
        if self.done:
            return self.passed
        return self.passed * _STEPS[self._step]

    def on_sent(self, now: float) -> None:
        """A request leaves: the next step begins when this one has lasted."""
        self._sent += 1
        lasted_s = now - self._began_at
        if lasted_s < max(_STEP_S, _STEP_REQUESTS / self.passed):
            return
        if self._sent >= _SENT_SHARE * self.rate * lasted_s:
            self.passed = self.rate
            self._step = min(self._step + 1, len(_STEPS) - 1)
        self._began_at, self._sent = now, 0

    def on_not_accepted(self) -> None:
        """A request was rejected or lost."""
        self._untaken += 1

    def on_rejected(self, now: float, ticket: SendRecord) -> None:
        """The first rejection of an episode."""
        tried, climbed = self.rate, self._step > self._first_step
        here = _Rejection(ticket.sent_at, ticket.number - self._untaken + 1)
        least, taken = self._measured(here)
        self._rejections.append(here)
        self._step = _AFTER_MEASURE
        if taken >= _ENOUGH and (tried <= _NEAR * least or len(self._rejections) > _MAX_REJECTIONS):
            self.passed, self.done = min(tried, least), True
        elif taken >= _FEW:
            self.passed = min(0.95 * tried, (least * self.passed) ** 0.5 if climbed and self.passed > least else least)
        else:
            self.passed, self._step = _CUT * tried, _AFTER_CUT
        self._first_step = self._step
        self._began_at, self._sent = now, 0

    def _measured(self, here: _Rejection) -> tuple[float, int]:
        """The largest lower bound of the rate, and the number of requests it rests on; 0 if they are too few."""
        bounds = [
            ((here.taken - one.taken) / (here.at - one.at), here.taken - one.taken)
            for one in self._rejections
            if here.taken - one.taken >= _FEW and here.at > one.at
        ]
        return max(bounds, default=(0.0, 0))


def first_rate(measured: float, taken: int, tried: float) -> float:
    """What to search from after the first two rejections.

    Args:
        measured: Requests per second that got through between them.
        taken: How many those were: of a few one learns little.
        tried: Requests per second that were sent; a bucket that was full may have paid for nearly all.
    """
    return min(measured, (_CUT if taken < _FEW else _MEASURED) * tried)
