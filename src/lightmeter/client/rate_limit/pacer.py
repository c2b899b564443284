"""Request pacer: spaces requests evenly, because small limits reject bursts."""

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
    """The circumstances in which a request was sent; the limiter interprets its answer by them.

    Attributes:
        number: Requests sent before it.
        sent_at: When it was sent, in seconds on the caller's clock.
        episode: Episodes of rejections before it was sent.
        probe_step: Step of the rate probe that it belongs to, 0 or more; -1 for none.
        in_flight: Requests in flight before it was sent.
    """

    number: int
    sent_at: float
    episode: int
    probe_step: int
    in_flight: int


class RequestPacer:
    """Keeps requests at least `1 / rate` seconds apart."""

    def __init__(self) -> None:
        self._last_slot_at = float("-inf")
        self._held_until = float("-inf")
        self._rejected_at = float("-inf")

    def wait_s(self, now: float, rate: float | None) -> float:
        """Return the seconds until the next request may be sent at `rate` requests per second; None is no limit."""
        return max(0.0, self._held_until - now, 0.0 if rate is None else self._last_slot_at + 1 / rate - now)

    def hold(self, until: float) -> None:
        """Send nothing before `until`."""
        self._held_until = until

    def on_rejected(self, now: float) -> None:
        """Note a rejection: the request may have come too soon after another one."""
        self._rejected_at = now

    def on_admitted(self, now: float, rate: float | None) -> None:
        """Take the next time slot. A late request takes the slot it missed, so that the next one may catch up."""
        due_at = now if rate is None else self._last_slot_at + 1 / rate
        catch_up_s = min(_CATCH_UP_GROWTH * (now - self._rejected_at), _MAX_CATCH_UP_S)
        self._last_slot_at = due_at if now - catch_up_s <= due_at <= now else now
