"""Even spacing: requests leave one by one, never in bursts, because a burst is what small limits reject."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["RequestPacer", "SendRecord"]

# Timers wake late, on a busy machine by tens of milliseconds, and what that costs is caught up: with one early request
# for each late one. Where nothing may come early, rejections say so: after one nothing is caught up, then ever more.
_LEAST_CATCH_UP_S: Final = 0.0
_MAX_CATCH_UP_S: Final = 0.05
_CATCH_UP_GROWTH: Final = 0.005


@dataclass(frozen=True, slots=True)
class SendRecord:
    """What a request carries home, so that its answer is read in the light of when it left.

    Attributes:
        number: Requests sent before it.
        sent_at: When it left.
        episode: Episodes of rejection before it left.
        step: Step of the probe it belongs to, 0 or more; -1 for none.
        in_flight: Requests on the wire before it.
    """

    number: int
    sent_at: float
    episode: int
    step: int
    in_flight: int


class RequestPacer:
    """Keeps requests `1 / rate` apart."""

    def __init__(self) -> None:
        self._last = float("-inf")
        self._held_until = float("-inf")
        self._rejected_at = float("-inf")

    def wait_s(self, now: float, rate: float | None) -> float:
        """Seconds until the next may leave at so many requests per second; None means no limit."""
        return max(0.0, self._held_until - now, 0.0 if rate is None else self._last + 1 / rate - now)

    def hold(self, until: float) -> None:
        """None leaves before."""
        self._held_until = until

    def on_rejected(self, now: float) -> None:
        """One was turned away, perhaps because it came too soon after another."""
        self._rejected_at = now

    def take(self, now: float, rate: float | None) -> None:
        """One leaves."""
        due = now if rate is None else self._last + 1 / rate
        grown_s = _LEAST_CATCH_UP_S + _CATCH_UP_GROWTH * (now - self._rejected_at)
        self._last = due if now - min(grown_s, _MAX_CATCH_UP_S) <= due <= now else now
