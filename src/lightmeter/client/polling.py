"""When to ask for a result: learned from how long requests of the same kind and size took before. Pure.

The next poll comes when the chance that the request is done by then, given that it was not done at the last one, has
grown by about a fifth. Until enough has been seen: quick at first, soon every two seconds, rarely for what is old.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from lightmeter.models.vocabulary import RESULT_LIFETIME_S

__all__ = ["PollSchedule"]

# A float overflows after some 1500 doublings; the growth is over long before.
_MANY_POLLS: Final = 200
_ENOUGH: Final = 8
_KEPT: Final = 128
# A request that outlasts all that were seen: wait so much of its age more.
_BEYOND: Final = 0.15
# Asking again sooner than this finds nothing new, whatever the quantiles say: a share of the age.
_LEAST_SHARE: Final = 0.04
_LEAST_S: Final = 0.1
_RESTART_GAP_S: Final = 0.02


@dataclass(slots=True)
class _Seen:
    """The last completion times of one kind and size, in seconds: in order of arrival, and sorted."""

    recent: deque[float] = field(default_factory=deque)
    ordered: list[float] = field(default_factory=list)

    def add(self, seconds: float) -> None:
        if len(self.recent) == _KEPT:
            self.ordered.remove(self.recent.popleft())
        self.recent.append(seconds)
        insort(self.ordered, seconds)


@dataclass(frozen=True, slots=True)
class PollSchedule:
    """Delays between polls of one request, in seconds; what is learned is shared by all that use the schedule.

    Attributes:
        first_s: Before the first poll: short, because a local service is done within a second.
        factor: How much longer each next delay is, above 1.
        max_s: Where that growth ends: the recommended interval is 2 s.
        aged_share: Of an old request's age, how much the next delay is at least: it bounds the latency added.
        aged_max_s: The longest delay while nothing is known.
        learned_max_s: The longest delay of all: no request goes unpolled for longer.
        chance: By how much the chance of being done must have grown before the next poll, 0 to 1.
        deadline_s: Age at which to give up; results are kept 24 h, so waiting longer finds nothing.
    """

    first_s: float = 0.2
    factor: float = 1.6
    max_s: float = 2.0
    aged_share: float = 0.05
    aged_max_s: float = 10.0
    learned_max_s: float = 600.0
    chance: float = 0.22
    deadline_s: float = float(RESULT_LIFETIME_S)
    _seen: dict[tuple[str, int], _Seen] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        grows = 0 < self.first_s <= self.max_s <= self.aged_max_s <= self.learned_max_s and self.factor > 1
        if not grows or not 0 < self.chance < 1 or self.deadline_s <= 0:
            raise ValueError(
                f"{self} is no schedule: 0 < first <= max <= aged max <= learned max, factor > 1, 0 < chance < 1, "
                "deadline > 0."
            )

    def next_delay(self, polls_done: int, age_s: float, kind: str = "", size: int = 1) -> float:
        """Seconds to wait before the next poll, never past the deadline.

        Args:
            polls_done: Polls of this request so far, 0 before the first.
            age_s: Seconds since it was submitted.
            kind: What was asked, in any words that tell quick from slow.
            size: How much was asked, such as assets in the request; times of like sizes are learned together.

        Returns:
            Above 0 while the deadline is ahead, 0 from then on.
        """
        seen = self._seen.get(_class(kind, size))
        if seen is None or len(seen.ordered) < _ENOUGH:
            delay_s = self._unlearned(polls_done, age_s)
        else:
            least_s = max(_LEAST_S, _LEAST_SHARE * age_s)
            delay_s = min(self.learned_max_s, max(least_s, self._learned(seen.ordered, age_s)))
        return max(0.0, min(delay_s, self.deadline_s - age_s))

    def _unlearned(self, polls_done: int, age_s: float) -> float:
        grown = min(self.max_s, self.first_s * self.factor ** min(polls_done, _MANY_POLLS))
        return max(grown, min(self.aged_max_s, self.aged_share * age_s))

    def _learned(self, ordered: list[float], age_s: float) -> float:
        """Until `chance` of those that took longer than this age were done; between two of them, in proportion."""
        done = bisect_right(ordered, age_s)
        longer = len(ordered) - done
        if longer == 0:
            return _BEYOND * age_s
        place = done + self.chance * longer
        index = min(int(place), len(ordered) - 1)
        below_s = max(age_s, ordered[index - 1]) if index else age_s
        return below_s + (place - int(place)) * (ordered[index] - below_s) - age_s

    def on_done(self, kind: str, size: int, pending_s: float, done_s: float) -> None:
        """Learn from a completion: it lay between these two ages, and is taken for the middle.

        Args:
            kind: As for `next_delay`.
            size: Likewise.
            pending_s: Age at the last poll that found it not done, 0 if there was none.
            done_s: Age at the poll that found it done.
        """
        if 0 <= pending_s <= done_s:
            self._seen.setdefault(_class(kind, size), _Seen()).add((pending_s + done_s) / 2)

    def resumed_poll_delay(self, position: int) -> float:
        """Seconds before the first poll of the request at this place, 0 or more, among those an earlier run left.

        All of them are due at once; they are asked for one by one, fifty a second up to 30,000 of them, and none
        waits longer than `learned_max_s`.
        """
        return (position * _RESTART_GAP_S) % self.learned_max_s

    def expired(self, age_s: float) -> bool:
        """Whether to give up on a request of this age."""
        return age_s >= self.deadline_s


def _class(kind: str, size: int) -> tuple[str, int]:
    """Sizes within a factor of two are learned together."""
    return kind, max(1, size).bit_length()
