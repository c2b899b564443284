"""Decides when to poll for a result, by how long earlier requests for similar analyses took. No I/O.

Suppose that a poll finds a request unfinished. The schedule considers those earlier, similar requests that took longer
than the request has taken so far. The next poll comes at the age at which about a fifth of them were finished.

While too few completion times are known, delays grow with each poll, from 0.2 s to 2 s. If a request is older than
40 s, its delays grow further with its age, up to 10 s.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from typing import Final

from lightmeter.wire.constants import RESULT_LIFETIME_S

_FIRST_S: Final = 0.2
"""Seconds before the first poll, while too few completion times are known. A local service needs less than 1 s."""

_FACTOR: Final = 1.6
"""Factor by which the delay grows with each poll, while too few completion times are known."""

_MAX_S: Final = 2.0
"""Seconds up to which the delay grows by `_FACTOR`. Services other than local ones recommend polls every 2 s."""

_MAX_GROWTHS: Final = 200
"""Most times that `_FACTOR` is applied: after some 1,500 times, a float would overflow."""

_AGED_SHARE: Final = 0.05
"""Least delay as a fraction of the request's age, while too few completion times are known: old requests can wait."""

_AGED_MAX_S: Final = 10.0
"""Most seconds of the least delay that `_AGED_SHARE` demands."""

_MIN_SAMPLES: Final = 8
"""Number of completion times, of one kind and size of requests, from which on the schedule uses them."""

_MAX_SAMPLES: Final = 128
"""Number of latest completion times that are kept for each kind and size of requests."""

_CHANCE: Final = 0.22
"""Probability, 0 to 1, with which the next poll should find a request finished that this poll found unfinished."""

_OVERDUE_SHARE: Final = 0.15
"""Delay as a fraction of the request's age, if the request takes longer than all earlier ones."""

_MIN_SHARE: Final = 0.04
"""Least delay that is chosen by completion times, as a fraction of the request's age."""

_MIN_DELAY_S: Final = 0.1
"""Least delay that is chosen by completion times, in seconds."""

_LONGEST_DELAY_S: Final = 600.0
"""Longest delay before any poll, in seconds."""

NEW_ID_S: Final = 60.0
"""Age of a request, in seconds, up to which a 404 only means `poll again`.

A service may not know an id yet that it has just issued.
"""

_RESTART_GAP_S: Final = 0.02
"""Seconds between the first polls for two requests that an earlier process left unanswered: 50 polls per second."""


class PollSchedule:
    """Decides how long to wait between polls for the results of requests, and learns how long requests take.

    Args:
        deadline_s: Age in seconds at which a request is no longer polled for; by default 24 h, when results expire.
    """

    def __init__(self, deadline_s: float = RESULT_LIFETIME_S) -> None:
        self.deadline_s: Final = deadline_s
        self._completions: dict[tuple[str, int], deque[float]] = {}

    def next_delay(self, polls_done: int, age_s: float, kind: str = "", size: int = 1) -> float:
        """Return the seconds to wait before the next poll, which comes at the deadline at the latest.

        After the deadline, return 0; the caller must compare the age with `deadline_s` to know when to give up.

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
        """Store how long a request took, so that later delays can be chosen by it.

        The request finished between two polls, so the mean of `pending_s` and `done_s` is stored. Nothing is stored if
        `pending_s` is greater than `done_s`.

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

        All requests left by that process are due at once, so their first polls are spread over time: 50 per second, and
        more if there are over 30,000 requests, so that none waits longer than ten minutes. `position` is the request's
        number among these requests, from 0.
        """
        return (position * _RESTART_GAP_S) % _LONGEST_DELAY_S


def _learned_delay(times: list[float], age_s: float) -> float:
    """Return the seconds until the next poll for a request that is unfinished at the age of `age_s` seconds.

    `times` are the seconds, in ascending order, that earlier requests of the same kind and about the same size took.
    Consider only the times longer than `age_s`. The poll comes at the age that about a fifth of them do not exceed. If
    no time is longer, the delay is 15 % of `age_s`.
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
    """Return a key that similar requests share: the same `kind`, such as `image`, and about the same `size`.

    `size` is the number of assets in the request. Sizes from 4 to 7 count as about the same, sizes from 8 to 15, and so
    on by powers of two.
    """
    return kind, max(1, size).bit_length()
