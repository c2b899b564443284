"""The modes of the limiter and the events that change them, as one literal table."""

from __future__ import annotations

from enum import Enum
from typing import Final


class LimiterMode(Enum):
    """What kind of limit the service has, as far as the limiter has learned; the values describe the kinds."""

    UNLIMITED = "no limit known"
    CONCURRENCY = "limit on requests in flight"
    RATE = "limit on requests per second"
    CONGESTION = "no rejections, but answers become slower above some rate"


class LimiterEvent(Enum):
    """What may change the limiter's mode: a rejection, slower answers, or a limit that another process learned."""

    DEFERRED = "a Retry-After came before any request was accepted"
    CONCURRENCY_REJECTION = "a rejection that the number in flight explains"
    RATE_REJECTION = "a rejection that the number in flight does not explain"
    SLOWER_ANSWERS = "answers became slower although nothing was rejected"
    KNOWN_CONCURRENCY = "an earlier run or another process knows a limit on requests in flight"
    KNOWN_RATE = "an earlier run or another process knows a limit on the rate"
    KNOWN_CONGESTION = "an earlier run or another process knows the rate above which answers become slower"


TRANSITIONS: Final[dict[tuple[LimiterMode, LimiterEvent], LimiterMode]] = {
    (LimiterMode.UNLIMITED, LimiterEvent.DEFERRED): LimiterMode.UNLIMITED,
    (LimiterMode.UNLIMITED, LimiterEvent.CONCURRENCY_REJECTION): LimiterMode.CONCURRENCY,
    (LimiterMode.UNLIMITED, LimiterEvent.RATE_REJECTION): LimiterMode.RATE,
    (LimiterMode.UNLIMITED, LimiterEvent.SLOWER_ANSWERS): LimiterMode.CONGESTION,
    (LimiterMode.UNLIMITED, LimiterEvent.KNOWN_CONCURRENCY): LimiterMode.CONCURRENCY,
    (LimiterMode.UNLIMITED, LimiterEvent.KNOWN_RATE): LimiterMode.RATE,
    (LimiterMode.UNLIMITED, LimiterEvent.KNOWN_CONGESTION): LimiterMode.CONGESTION,
    (LimiterMode.CONCURRENCY, LimiterEvent.DEFERRED): LimiterMode.UNLIMITED,
    (LimiterMode.CONCURRENCY, LimiterEvent.CONCURRENCY_REJECTION): LimiterMode.CONCURRENCY,
    (LimiterMode.CONCURRENCY, LimiterEvent.RATE_REJECTION): LimiterMode.RATE,
    (LimiterMode.CONCURRENCY, LimiterEvent.SLOWER_ANSWERS): LimiterMode.CONGESTION,
    (LimiterMode.CONCURRENCY, LimiterEvent.KNOWN_CONCURRENCY): LimiterMode.CONCURRENCY,
    (LimiterMode.CONCURRENCY, LimiterEvent.KNOWN_RATE): LimiterMode.RATE,
    (LimiterMode.CONCURRENCY, LimiterEvent.KNOWN_CONGESTION): LimiterMode.CONGESTION,
    (LimiterMode.RATE, LimiterEvent.CONCURRENCY_REJECTION): LimiterMode.CONCURRENCY,
    (LimiterMode.RATE, LimiterEvent.RATE_REJECTION): LimiterMode.RATE,
    (LimiterMode.RATE, LimiterEvent.SLOWER_ANSWERS): LimiterMode.CONGESTION,
    (LimiterMode.RATE, LimiterEvent.KNOWN_RATE): LimiterMode.RATE,
    (LimiterMode.RATE, LimiterEvent.KNOWN_CONGESTION): LimiterMode.RATE,
    (LimiterMode.CONGESTION, LimiterEvent.CONCURRENCY_REJECTION): LimiterMode.CONCURRENCY,
    (LimiterMode.CONGESTION, LimiterEvent.RATE_REJECTION): LimiterMode.CONGESTION,
    (LimiterMode.CONGESTION, LimiterEvent.SLOWER_ANSWERS): LimiterMode.CONGESTION,
    (LimiterMode.CONGESTION, LimiterEvent.KNOWN_RATE): LimiterMode.CONGESTION,
    (LimiterMode.CONGESTION, LimiterEvent.KNOWN_CONGESTION): LimiterMode.CONGESTION,
}
"""(Mode before an event, event) → mode after the event; a pair that is missing cannot happen.

A limit on requests in flight that another process has learned does not replace a limit on the rate.
"""


def next_mode(mode: LimiterMode, event: LimiterEvent) -> LimiterMode:
    """Return the limiter's new mode, after `event` happened in the mode `mode`.

    Raises:
        ValueError: the event cannot happen in this mode: a bug.
    """
    try:
        return TRANSITIONS[mode, event]
    except KeyError:
        raise ValueError(f"The event {event.name} cannot happen in the mode {mode.name}.") from None
