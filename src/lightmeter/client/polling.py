"""When to ask for a result: quick at first, soon every two seconds, rarely for what is old. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lightmeter.models.vocabulary import RESULT_LIFETIME_S

__all__ = ["PollSchedule"]

# A float overflows after some 1500 doublings; the growth is over long before.
_MANY_POLLS: Final = 200


@dataclass(frozen=True, slots=True)
class PollSchedule:
    """Delays between polls of one request, in seconds.

    Attributes:
        first_s: Before the first poll: short, because a local service is done within a second.
        factor: How much longer each next delay is, above 1.
        max_s: Where that growth ends: the recommended interval is 2 s.
        aged_share: Of an old request's age, how much the next delay is at least: it bounds the latency added.
        aged_max_s: The longest delay of all.
        deadline_s: Age at which to give up; results are kept 24 h, so waiting longer finds nothing.
    """

    first_s: float = 0.2
    factor: float = 1.6
    max_s: float = 2.0
    aged_share: float = 0.05
    aged_max_s: float = 10.0
    deadline_s: float = float(RESULT_LIFETIME_S)

    def __post_init__(self) -> None:
        if not 0 < self.first_s <= self.max_s <= self.aged_max_s or self.factor <= 1 or self.deadline_s <= 0:
            raise ValueError(f"{self} is no schedule: 0 < first <= max <= aged max, factor > 1, deadline > 0.")

    def next_delay(self, polls_done: int, age_s: float) -> float:
        """Seconds to wait before the next poll, never past the deadline.

        Args:
            polls_done: Polls of this request so far, 0 before the first.
            age_s: Seconds since it was submitted.

        Returns:
            Above 0 while the deadline is ahead, 0 from then on.
        """
        grown = min(self.max_s, self.first_s * self.factor ** min(polls_done, _MANY_POLLS))
        aged = min(self.aged_max_s, self.aged_share * age_s)
        return max(0.0, min(max(grown, aged), self.deadline_s - age_s))

    def expired(self, age_s: float) -> bool:
        """Whether to give up on a request of this age."""
        return age_s >= self.deadline_s
