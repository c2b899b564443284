"""Decides when to poll for a result, by how long earlier requests for similar analyses took. No I/O.

After a poll that finds a request unfinished, the schedule considers the earlier similar requests that took longer than
the present age of the request. The next poll comes at the age at which about a fifth of them were finished. Until
enough completion times are known, delays grow from 0.2 s to 2 s; for requests older than 40 s, they grow up to 10 s.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from typing import Final

from lightmeter.wire.constants import RESULT_LIFETIME_S

_FIRST_S: Final = 0.2
_FACTOR: Final = 1.6
_MAX_S: Final = 2.0
"""First delay, the factor by which it grows with each poll, and the longest delay; the delays are in seconds.

A local service needs less than a second; other services recommend polls every 2 s.
"""

_MAX_GROWTHS: Final = 200
"""Delays grow at most so many times: a float overflows after some 1,500."""

_AGED_SHARE: Final = 0.05
_AGED_MAX_S: Final = 10.0
"""Old requests are polled rarely: a delay is at least this share of the request's age, or so many seconds if less."""

_MIN_SAMPLES: Final = 8
"""Completion times of a kind and size that are needed before the schedule uses them."""

_MAX_SAMPLES: Final = 128
"""Completion times that are stored for each kind and size."""

_CHANCE: Final = 0.22
"""Growth of the probability of being done from one poll to the next, 0 to 1."""

_OVERDUE_SHARE: Final = 0.15
"""Delay, as a share of its age, for a request that takes longer than all stored times."""

_MIN_SHARE: Final = 0.04
_MIN_DELAY_S: Final = 0.1
_LONGEST_DELAY_S: Final = 600.0
"""A learned delay is at least this share of the age and so many seconds; no delay is longer than the last figure."""

_RESTART_GAP_S: Final = 0.02
"""Seconds between the first polls of requests that an earlier run left: 50 per second."""


class PollSchedule:
    """Decides how long to wait between polls for the results of requests, and learns how long requests take.

    Args:
        deadline_s: Age of a request, in seconds, at which its polls end; by default 24 h, when results expire.
    """

    def __init__(self, deadline_s: float = RESULT_LIFETIME_S) -> None:
        self.deadline_s: Final = deadline_s
        self._completions: dict[tuple[str, int], deque[float]] = {}

    def next_delay(self, polls_done: int, age_s: float, kind: str = "", size: int = 1) -> float:
        """Return the seconds to wait before the next poll; 0 if the request is older than the deadline.

        Args:
            polls_done: Polls of this request so far, 0 before the first.
            age_s: Seconds since the request was submitted.
            kind: Any text that distinguishes quick from slow requests, such as `image` or `video`.
            size: How much was requested, such as the number of assets.
        """
        times = sorted(self._completions.get(_sample_key(kind, size), ()))
        if len(times) < _MIN_SAMPLES:
            grown = min(_MAX_S, _FIRST_S * _FACTOR ** min(polls_done, _MAX_GROWTHS))
            delay_s = max(grown, min(_AGED_MAX_S, _AGED_SHARE * age_s))
        else:
            least_s = max(_MIN_DELAY_S, _MIN_SHARE * age_s)
            delay_s = min(_LONGEST_DELAY_S, max(least_s, _learned_delay(times, age_s)))
        return max(0.0, min(delay_s, self.deadline_s - age_s))

    def on_done(self, kind: str, size: int, pending_s: float, done_s: float) -> None:
        """Store how long a request took, for later delays: the mean of `pending_s` and `done_s`.

        Args:
            kind: Any text that distinguishes quick from slow requests, such as `image` or `video`.
            size: How much was requested, such as the number of assets.
            pending_s: Seconds from the submission to the last poll that found the request unfinished, 0 if none did.
            done_s: Seconds from the submission to the poll that found the request finished.
        """
        if 0 <= pending_s <= done_s:
            times = self._completions.setdefault(_sample_key(kind, size), deque(maxlen=_MAX_SAMPLES))
            times.append((pending_s + done_s) / 2)

    def resumed_poll_delay(self, position: int) -> float:
        """Return the seconds to wait before the first poll of a request that an earlier process left unanswered.

        All requests left by that process are due at once, so their polls are spread over time: 50 per second for up to
        30,000 requests. `position` is the request's number among them, from 0. No request waits over ten minutes.
        """
        return (position * _RESTART_GAP_S) % _LONGEST_DELAY_S


def _learned_delay(times: list[float], age_s: float) -> float:
    """Return the seconds until the next poll of a request that is unfinished at the age of `age_s` seconds.

    The next poll comes when about a fifth of the earlier requests that took longer than `age_s` were finished. `times`
    are the sorted seconds that earlier requests of the same kind and about the same number of pictures took.
    """
    done = bisect_right(times, age_s)
    longer = len(times) - done
    if longer == 0:
        return _OVERDUE_SHARE * age_s
    rank = done + _CHANCE * longer
    index = min(int(rank), len(times) - 1)
    below_s = max(age_s, times[index - 1]) if index else age_s
    return below_s + (rank - int(rank)) * (times[index] - below_s) - age_s


def _sample_key(kind: str, size: int) -> tuple[str, int]:
    """Return a key that similar requests share: those of the same `kind` and of sizes within a factor of two."""
    return kind, max(1, size).bit_length()
