"""Schedules polls by how long earlier requests of the same kind and size took. Pure.

Each poll comes when the probability that the request is done has grown by about a fifth since the last poll, which
found it not done. Until enough completion times are known, delays grow from 0.2 s to 2 s, and further with age.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from lightmeter.wire.constants import RESULT_LIFETIME_S

_MAX_GROWTHS: Final = 200
"""Delays grow at most so many times: a float overflows after some 1,500."""

_MIN_SAMPLES: Final = 8
"""Completion times of a kind and size that are needed before the schedule uses them."""

_MAX_SAMPLES: Final = 128
"""Completion times that are stored for each kind and size."""

_OVERDUE_SHARE: Final = 0.15
"""Delay, as a share of its age, for a request that takes longer than all stored times."""

_MIN_SHARE: Final = 0.04
_MIN_DELAY_S: Final = 0.1
"""A learned delay is at least this share of the age, and at least so many seconds."""

_RESTART_GAP_S: Final = 0.02
"""Seconds between the first polls of requests that an earlier run left: 50 per second."""


@dataclass(slots=True)
class _CompletionTimes:
    """The last completion times of one kind and size, in seconds: once in order of arrival, once sorted."""

    recent: deque[float] = field(default_factory=deque)
    ordered: list[float] = field(default_factory=list)

    def add(self, seconds: float) -> None:
        if len(self.recent) == _MAX_SAMPLES:
            self.ordered.remove(self.recent.popleft())
        self.recent.append(seconds)
        insort(self.ordered, seconds)


@dataclass(frozen=True, slots=True)
class PollSchedule:
    """Delays between polls of a request, in seconds. All requests that use a schedule share what it learns.

    Attributes:
        first_s: Delay before the first poll; short, because a local service is done within a second.
        factor: Growth of each next delay, above 1.
        max_s: Longest delay of that growth; the service recommends an interval of 2 s.
        aged_share: Shortest delay as a share of the request's age, so that old requests are polled rarely.
        aged_max_s: Longest delay while nothing is learned.
        learned_max_s: Longest delay of all.
        chance: Growth of the probability of being done from one poll to the next, 0 to 1.
        deadline_s: Age at which to give up; results expire after 24 h.
    """

    first_s: float = 0.2
    factor: float = 1.6
    max_s: float = 2.0
    aged_share: float = 0.05
    aged_max_s: float = 10.0
    learned_max_s: float = 600.0
    chance: float = 0.22
    deadline_s: float = float(RESULT_LIFETIME_S)
    _completions: dict[tuple[str, int], _CompletionTimes] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        grows = 0 < self.first_s <= self.max_s <= self.aged_max_s <= self.learned_max_s and self.factor > 1
        if not grows or not 0 < self.chance < 1 or self.deadline_s <= 0:
            raise ValueError(
                f"{self} is no schedule: 0 < first <= max <= aged max <= learned max, factor > 1, 0 < chance < 1, "
                "deadline > 0."
            )

    def next_delay(self, polls_done: int, age_s: float, kind: str = "", size: int = 1) -> float:
        """Return the seconds to wait before the next poll, never past the deadline.

        Args:
            polls_done: Polls of this request so far, 0 before the first.
            age_s: Seconds since it was submitted.
            kind: What was requested, as any text that distinguishes quick from slow requests.
            size: How much was requested, such as the number of assets; similar sizes are learned together.

        Returns:
            Above 0 while the deadline is ahead, 0 from then on.
        """
        times = self._completions.get(_sample_key(kind, size))
        if times is None or len(times.ordered) < _MIN_SAMPLES:
            delay_s = self._initial_delay(polls_done, age_s)
        else:
            least_s = max(_MIN_DELAY_S, _MIN_SHARE * age_s)
            delay_s = min(self.learned_max_s, max(least_s, self._learned_delay(times.ordered, age_s)))
        return max(0.0, min(delay_s, self.deadline_s - age_s))

    def _initial_delay(self, polls_done: int, age_s: float) -> float:
        grown = min(self.max_s, self.first_s * self.factor ** min(polls_done, _MAX_GROWTHS))
        return max(grown, min(self.aged_max_s, self.aged_share * age_s))

    def _learned_delay(self, ordered: list[float], age_s: float) -> float:
        """Return the delay until a share `chance` of the requests that took longer than this age was done."""
        done = bisect_right(ordered, age_s)
        longer = len(ordered) - done
        if longer == 0:
            return _OVERDUE_SHARE * age_s
        rank = done + self.chance * longer
        index = min(int(rank), len(ordered) - 1)
        below_s = max(age_s, ordered[index - 1]) if index else age_s
        return below_s + (rank - int(rank)) * (ordered[index] - below_s) - age_s

    def on_done(self, kind: str, size: int, pending_s: float, done_s: float) -> None:
        """Learn a completion time: the middle between the ages at the last two polls.

        Args:
            kind: As for `next_delay`.
            size: As for `next_delay`.
            pending_s: Age at the last poll that found it not done, 0 if there was none.
            done_s: Age at the poll that found it done.
        """
        if 0 <= pending_s <= done_s:
            self._completions.setdefault(_sample_key(kind, size), _CompletionTimes()).add((pending_s + done_s) / 2)

    def resumed_poll_delay(self, position: int) -> float:
        """Return the seconds before the first poll of a request that an earlier process left unanswered.

        All such requests are due at once. Their polls are spread over time by `position`, the place of the request in
        their order: 50 per second for up to 30,000 requests. No request waits longer than `learned_max_s`.
        """
        return (position * _RESTART_GAP_S) % self.learned_max_s

    def expired(self, age_s: float) -> bool:
        """Return whether a request has reached the age at which its polls end."""
        return age_s >= self.deadline_s


def _sample_key(kind: str, size: int) -> tuple[str, int]:
    """Return the key under which completion times are learned; sizes within a factor of two share one."""
    return kind, max(1, size).bit_length()
