"""Spaces requests evenly, because small limits reject bursts, and counts those that a service accepts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_MAX_CATCH_UP_S: Final = 0.05
"""Timers fire late, on a busy machine by tens of milliseconds. A request may be early by at most this much, in seconds,
if the one before it was late."""

_CATCH_UP_GROWTH: Final = 0.005
"""Seconds of catching up gained for each second without a rejection: strict limits reject early requests."""


@dataclass(frozen=True, slots=True)
class SendRecord:
    """The circumstances in which a request was sent: by them, the limiter interprets its answer.

    Attributes:
        number: Requests sent before it.
        sent_at: When it was sent, in seconds on the caller's clock.
        episode: How often the limiter had reacted to rejections before it was sent.
        probe_step: Step of the test of higher rates (see `rate_estimator`) that it belongs to; -1 for none.
        in_flight: Requests in flight before it was sent.
    """

    number: int
    sent_at: float
    episode: int
    probe_step: int
    in_flight: int


class AcceptedCount:
    """Number of requests accepted since `start`: those sent minus those rejected or lost.

    Attributes:
        start: The request at which counting starts.
        not_accepted: Requests rejected or lost since then.
    """

    def __init__(self, start: SendRecord, not_accepted: int = 0) -> None:
        self.start = start
        self.not_accepted = not_accepted

    def until(self, record: SendRecord) -> int:
        """Return the requests accepted between `start` and this one."""
        return record.number - self.start.number - self.not_accepted

    def rate_until(self, record: SendRecord) -> float:
        """Return the requests per second accepted between `start` and this one; 0 if there were none."""
        accepted, duration_s = self.until(record), record.sent_at - self.start.sent_at
        return accepted / duration_s if accepted > 0 and duration_s > 0 else 0.0


class RequestPacer:
    """Keeps requests at least `1 / rate` seconds apart."""

    def __init__(self) -> None:
        self._last_due_at = float("-inf")
        self._held_until = float("-inf")
        self._rejected_at = float("-inf")

    def wait_s(self, now: float, rate: float | None) -> float:
        """Return the seconds until the next request may be sent at `rate` requests per second; None is no limit."""
        return max(0.0, self._held_until - now, 0.0 if rate is None else self._last_due_at + 1 / rate - now)

    def hold(self, until: float) -> None:
        """Send nothing before `until`."""
        self._held_until = until

    def on_rejected(self, now: float) -> None:
        """Let requests catch up less of a delay from now on: the rejected one may have come too soon after another."""
        self._rejected_at = now

    def on_admitted(self, now: float, rate: float | None) -> None:
        """Count a request that may be sent now. If it is late, the next one may catch up some of the delay."""
        due_at = now if rate is None else self._last_due_at + 1 / rate
        catch_up_s = min(_CATCH_UP_GROWTH * (now - self._rejected_at), _MAX_CATCH_UP_S)
        self._last_due_at = due_at if now - catch_up_s <= due_at <= now else now
