"""Whether a service that rejects nothing is getting slower: its queue is then as full as it should ever be."""

from __future__ import annotations

from typing import Final

__all__ = ["CongestionDetector"]

_FIRST_ROUND: Final = 16
_ROUND: Final = 32
_GROWTH: Final = 1.3
# Less than this is noise of a fast service, and no queue that anybody would notice.
_LEAST_GROWTH_S: Final = 0.1
# How long the least latency stands; after that it may have been another kind of work.
_STANDS_S: Final = 60.0


class CongestionDetector:
    """Compares the latency of each round of answers with the least of the last minute or two.

    Attributes:
        latency_s: The latency of about the last round, smoothed.
        crowded: Whether the last two rounds were slower than the least by three tenths.
        rate: Answers per second in the last round; 0 before the first has ended.
    """

    def __init__(self) -> None:
        self.latency_s = 0.1
        self.rate = 0.0
        self.slow_rounds = 0
        self._least = self._least_before = float("inf")
        self._renewed_at: float | None = None
        self._began_at: float | None = None
        self._answers = 0
        self._sum_s = 0.0

    @property
    def knows(self) -> bool:
        """Whether a first round has ended: before, nothing can be compared with it."""
        return self._renewed_at is not None

    @property
    def crowded(self) -> bool:
        """Whether two rounds in a row were clearly slower than the least."""
        return self.slow_rounds > 1

    def on_answer(self, now: float, latency_s: float) -> bool:
        """Count an answer; True when it ends a round."""
        self.latency_s += 0.2 * (latency_s - self.latency_s)
        if self._began_at is None:
            self._began_at = now
            return False
        self._answers += 1
        self._sum_s += latency_s
        if self._answers < (_FIRST_ROUND if self._renewed_at is None else _ROUND) or now <= self._began_at:
            return False
        self._end_round(now, self._sum_s / self._answers, now - self._began_at)
        return True

    def _end_round(self, now: float, mean_s: float, lasted_s: float) -> None:
        if self._renewed_at is None:
            self._renewed_at = now
        if now - self._renewed_at > _STANDS_S:
            self._renewed_at, self._least_before, self._least = now, self._least, float("inf")
        self._least = min(self._least, mean_s)
        least = min(self._least, self._least_before)
        slow = mean_s > _GROWTH * least and mean_s - least > _LEAST_GROWTH_S
        self.slow_rounds = self.slow_rounds + 1 if slow else 0
        self.rate = self._answers / lasted_s
        self._began_at, self._answers, self._sum_s = now, 0, 0.0

    def reset_round(self) -> None:
        """Begin a new round: what was slow has been dealt with."""
        self.slow_rounds, self._began_at, self._answers, self._sum_s = 0, None, 0, 0.0
