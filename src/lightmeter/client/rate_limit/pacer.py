"""Spaces requests evenly, because small limits reject bursts, and counts the requests that a service accepts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_MAX_CATCH_UP_S: Final = 0.05
"""Most seconds by which a request may be sent too early, to make up for a request that was sent too late.

Timers fire late, on a busy machine by tens of milliseconds.
"""

_CATCH_UP_GROWTH: Final = 0.005
"""Seconds by which a request may be early, per second since the last rejection, until `_MAX_CATCH_UP_S` is reached.

Services with strict limits reject early requests.
"""


@dataclass(frozen=True, slots=True)
class SendRecord:
    """What the limiter knew when a request was sent; the limiter needs it to interpret the answer.

    Attributes:
        number: How many requests were sent before this one.
        sent_at: When the request was sent, in seconds on a monotonic clock.
        episode: Number of rejections to which the limiter had reacted before the request was sent.
        probe_step: Step, from 0, of the test of higher rates during which the request was sent; -1 without a test.
        in_flight: How many requests were in flight before this one was sent.
        start_rate: The requests per second that `StartRate` allowed when the request was sent.
    """

    number: int
    sent_at: float
    episode: int
    probe_step: int
    in_flight: int
    start_rate: float


class AcceptedCount:
    """Counts accepted requests from the request `start` on: the requests sent minus those rejected or lost.

    Attributes:
        start: Record of the request at which counting starts.
        not_accepted: How many requests were rejected or lost, from the request `start` on.
    """

    def __init__(self, start: SendRecord, not_accepted: int = 0) -> None:
        self.start = start
        self.not_accepted = not_accepted

    def accepted_before(self, record: SendRecord) -> int:
        """Return how many requests were accepted from the request `start` (included) to that of `record` (excluded)."""
        return record.number - self.start.number - self.not_accepted

    def rate_before(self, record: SendRecord) -> float:
        """Return the accepted requests per second from the request `start` to that of `record`; 0 if there are none."""
        accepted, duration_s = self.accepted_before(record), record.sent_at - self.start.sent_at
        return accepted / duration_s if accepted > 0 and duration_s > 0 else 0.0


class RequestPacer:
    """Spaces requests evenly, `1 / rate` seconds apart (`rate` is in requests per second).

    After a request that was sent late, the gap is shorter. In all methods `now` and `until` are times in seconds on a
    monotonic clock.
    """

    def __init__(self) -> None:
        self._last_due_at = float("-inf")
        self._held_until = float("-inf")
        self._rejected_at = float("-inf")

    def wait_s(self, now: float, rate: float | None) -> float:
        """Return the seconds from `now` (monotonic seconds) until the next request may be sent.

        `rate` is the limit in requests per second, None if there is none.
        """
        return max(0.0, self._held_until - now, 0.0 if rate is None else self._last_due_at + 1 / rate - now)

    def hold(self, until: float) -> None:
        """Let no request be sent before the time `until`, in monotonic seconds."""
        self._held_until = until

    def on_rejected(self, now: float) -> None:
        """Record that the service rejected a request at `now` (monotonic seconds).

        A request that is sent late shortens the gap after it (see `on_admitted`). In the next 10 s, this holds only for
        delays of at most 0.005 s for each second since `now`.
        """
        self._rejected_at = now

    def on_admitted(self, now: float, rate: float | None) -> None:
        """Record that a request is sent at `now` (monotonic seconds); if it is slightly late, shorten the next gap.

        If it is at most 0.05 s late, the next gap is shorter by its delay. After a longer delay, the next gap has its
        full length. A short gap may cause a rejection. So in the first 10 s after a rejection, a delay must not exceed
        0.005 s for each second since then. `rate` is the limit in requests per second; None means no limit.
        """
        due_at = now if rate is None else self._last_due_at + 1 / rate
        catch_up_s = min(_CATCH_UP_GROWTH * (now - self._rejected_at), _MAX_CATCH_UP_S)
        self._last_due_at = due_at if now - catch_up_s <= due_at <= now else now
