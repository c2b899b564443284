"""Permission to send: how many in flight, and when to be quiet. Pure: the time is always handed in.

A window of concurrent requests grows by one for each full round of answers and shrinks once for each episode
of throttling; a throttled answer also closes the door, until its Retry-After ends or for a pause that doubles
while nothing but rejections come back.
"""

from __future__ import annotations

from typing import Final

__all__ = ["Pace"]

_FIRST_WINDOW: Final = 8.0
_DECREASE: Final = 0.7
_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 60.0
_LATENCY_WEIGHT: Final = 0.2
_SHORTEST_WAIT_S: Final = 0.005
_LONGEST_WAIT_S: Final = 1.0


class Pace:
    """Decides when the next request may leave.

    Args:
        max_in_flight: Most requests at once, 1 or more; the window starts at 8 or this, whichever is less.

    Attributes:
        window: How many requests may be in flight now, 1 to `max_in_flight`.
        closed_until: The instant before which nothing may leave, on the clock the caller uses.
    """

    def __init__(self, max_in_flight: int = 64) -> None:
        if max_in_flight < 1:
            raise ValueError(f"{max_in_flight} requests at once: at least 1 is needed.")
        self.max_in_flight: Final = max_in_flight
        self.window = min(_FIRST_WINDOW, float(max_in_flight))
        self.closed_until = float("-inf")
        self._pause_s = _FIRST_PAUSE_S
        self._latency_s = 0.1
        self._last_sent = float("-inf")

    def wait_s(self, now: float, in_flight: int) -> float:
        """Seconds to wait before asking again; 0 means: send one now, and say so with `on_sent`.

        Args:
            now: The time, on any clock that never steps.
            in_flight: Requests sent and not answered yet.

        Returns:
            While closed, the time left. While the window is full, about the time until an answer frees a
            place; asking again as soon as an answer comes is better still.
        """
        if now < self.closed_until:
            return self.closed_until - now
        if in_flight < int(self.window):
            return 0.0
        return min(_LONGEST_WAIT_S, max(_SHORTEST_WAIT_S, self._latency_s / max(1, in_flight)))

    def on_sent(self, now: float) -> None:
        """A request leaves now."""
        self._last_sent = now

    def on_answer(self, now: float, latency_s: float) -> None:
        """A request was answered, with anything but a plea to slow down, `latency_s` after it left.

        Only an answer to a request sent since the last closing shows that the door is open again.
        """
        self._latency_s += _LATENCY_WEIGHT * (max(0.0, latency_s) - self._latency_s)
        self.window = min(float(self.max_in_flight), self.window + 1 / self.window)
        if now - latency_s >= self.closed_until:
            self._pause_s = _FIRST_PAUSE_S

    def on_throttled(self, now: float, retry_after_s: float | None) -> None:
        """A request was turned away.

        `retry_after_s` is how long the service asks to wait, None when it does not say.
        Rejections that arrive while closed belong to the same episode: they can lengthen it, but cost no more
        window.
        """
        if now >= self.closed_until and self._last_sent >= self.closed_until:
            self.window = max(1.0, self.window * _DECREASE)
            if retry_after_s is None:
                self._close(now + self._pause_s)
                self._pause_s = min(_LONGEST_PAUSE_S, self._pause_s * 2)
        if retry_after_s is not None:
            self._close(now + max(0.0, retry_after_s))

    def _close(self, until: float) -> None:
        self.closed_until = max(self.closed_until, until)
