"""Detects congestion: answers become slower, which means that the service queues requests.

A *round* is a number of consecutive answers whose mean latency is measured.
"""

from __future__ import annotations

from typing import Final

_FIRST_ROUND: Final = 16
"""Number of answers in the first round, which is short so that a baseline is known soon."""

_ROUND: Final = 32
"""Number of answers in each later round."""

_SLOWDOWN: Final = 1.3
"""A round is slow only if its mean latency is more than this many times the baseline (the lowest recent mean)."""

_MIN_SLOWDOWN_S: Final = 0.1
"""A round is slow only if its mean latency is more than this many seconds above the baseline."""

_BASELINE_S: Final = 60.0
"""Seconds after which a new baseline is measured, because requests may now be of another kind.

The previous baseline stays valid for as long again.
"""


class CongestionDetector:
    """Compares the mean latency of every 32 answers (a *round*) with the lowest such mean of the last minute or two.

    In all methods `now` is the time in seconds on a monotonic clock.

    Attributes:
        latency_s: Smoothed latency of about the last five answers, in seconds.
        rate: Answers per second in the last round; 0 before the first one has ended.
        slow_rounds: How many rounds in a row, up to the latest one, had a mean latency far above the lowest mean.
    """

    def __init__(self) -> None:
        self.latency_s = 0.1
        self.rate = 0.0
        self.slow_rounds = 0
        self._least_s = self._previous_least_s = float("inf")
        self._baseline_at: float | None = None
        self._round_began_at: float | None = None
        self._answers = 0
        self._latency_sum_s = 0.0

    @property
    def has_baseline(self) -> bool:
        """Whether a first mean latency is known, with which the mean latencies of later answers can be compared."""
        return self._baseline_at is not None

    @property
    def congested(self) -> bool:
        """Whether the last two mean latencies (of 32 answers each) were far above the lowest one of recent minutes."""
        return self.slow_rounds > 1

    def on_answer(self, now: float, latency_s: float) -> bool:
        """Count an answer that came at `now`, `latency_s` seconds after its request; return True if it ends a round."""
        self.latency_s += 0.2 * (latency_s - self.latency_s)
        if self._round_began_at is None:
            self._round_began_at = now
            return False
        self._answers += 1
        self._latency_sum_s += latency_s
        if self._answers < (_ROUND if self.has_baseline else _FIRST_ROUND) or now <= self._round_began_at:
            return False
        self._end_round(now, self._latency_sum_s / self._answers, now - self._round_began_at)
        return True

    def _end_round(self, now: float, mean_latency_s: float, duration_s: float) -> None:
        if self._baseline_at is None:
            self._baseline_at = now
        if now - self._baseline_at > _BASELINE_S:
            self._baseline_at, self._previous_least_s, self._least_s = now, self._least_s, float("inf")
        self._least_s = min(self._least_s, mean_latency_s)
        baseline_s = min(self._least_s, self._previous_least_s)
        slow = mean_latency_s > _SLOWDOWN * baseline_s and mean_latency_s - baseline_s > _MIN_SLOWDOWN_S
        self.slow_rounds = self.slow_rounds + 1 if slow else 0
        self.rate = self._answers / duration_s
        self._round_began_at, self._answers, self._latency_sum_s = now, 0, 0.0

    def reset_round(self) -> None:
        """Discard the latencies of the round under way: the limiter has slowed down, so they are outdated."""
        self.slow_rounds, self._round_began_at, self._answers, self._latency_sum_s = 0, None, 0, 0.0
