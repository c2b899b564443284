"""Follows the credits that a run spends, and forecasts when the run will end and what its pending rows will cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from lightmeter.planning.progress import Progress, payable_rows
from lightmeter.pricing.estimate import CreditRange

MAX_POINTS: Final = 120
"""Maximum number of points in the chart. When there are more, every second point is removed."""

RATE_WINDOWS_S: Final = (10.0, 60.0)
"""Two recent rates are measured: over the last 10 seconds, and over the last 60 seconds."""


@dataclass(frozen=True, slots=True)
class BurnPoint:
    """One point of the planner's chart: the credits and the pending rows of a run at one moment.

    Attributes:
        seconds: Seconds since the process began to work on the run.
        paid: Credits that the run has paid so far, also in earlier processes.
        held: Credits reserved for requests whose charge is not known.
        pending_rows: Rows with the status `pending`: not sent yet, or in flight.
    """

    seconds: float
    paid: int
    held: int
    pending_rows: int


class BurnDown:
    """Follows the credits and rows of a run over time, and forecasts its end and its remaining cost.

    Args:
        cap: Maximum number of credits that the run may spend; None means no limit.
        price: The price of all rows that the run will send.
        rows: Number of rows that the run will send.
    """

    def __init__(self, cap: int | None, price: CreditRange, rows: int) -> None:
        self._cap, self._price, self._rows = cap, price, rows
        self._points: list[BurnPoint] = []
        self._recent: list[BurnPoint] = []

    def add(self, progress: Progress) -> None:
        """Add the progress of the run at this moment."""
        point = BurnPoint(progress.seconds, progress.paid, progress.held, progress.counts.get("pending", 0))
        self._recent = [each for each in self._recent if point.seconds - each.seconds <= RATE_WINDOWS_S[-1]] + [point]
        self._points.append(point)
        if len(self._points) > MAX_POINTS:
            self._points = [*self._points[:-1:2], point]

    def rates(self) -> list[float | None]:
        """Return the rows finished per second in the last 10 s, in the last 60 s and since the first point.

        A rate is None if there are no two points at different times in its period.
        """
        return [*(_rate(self._within(window_s)) for window_s in RATE_WINDOWS_S), _rate(self._points)]

    def _within(self, window_s: float) -> Sequence[BurnPoint]:
        last = self._recent[-1].seconds if self._recent else 0.0
        return [each for each in self._recent if last - each.seconds <= window_s]

    def eta_s(self) -> tuple[float, float] | None:
        """Return the least and the greatest number of seconds until all rows are finished or the cap is spent.

        Return None while they are unknown. They follow from the highest and the lowest of the rates that `rates`
        returns. Rates of 0 are ignored.
        """
        rates = [rate for rate in self.rates() if rate is not None and rate > 0]
        if not rates or not self._points:
            return None
        first, last = self._points[0], self._points[-1]
        room = None if self._cap is None else max(0, self._cap - last.paid)
        finished = first.pending_rows - last.pending_rows
        left = payable_rows(last.pending_rows, finished, last.paid - first.paid, room)
        return left / max(rates), left / min(rates)

    def remaining_credits(self) -> CreditRange:
        """Return what the pending rows may cost.

        This is `price` times the share of rows that are pending, but at most the credits left below `cap`.
        """
        left = self._points[-1].pending_rows if self._points else self._rows
        share = left / self._rows if self._rows else 0.0
        low = int(self._price.low * share)
        high = None if self._price.high is None else -int(-self._price.high * share // 1)
        if self._cap is not None and self._points:
            room = max(0, self._cap - self._points[-1].paid)
            low, high = min(low, room), room if high is None else min(high, room)
        return CreditRange(low, high)

    def to_json(self) -> dict[str, Any]:
        """Return the data of the page's chart as a JSON-compatible object.

        Its keys are `cap` (the most credits that the run may spend; None means no limit), `points` (for each
        `BurnPoint`, a list of seconds, paid credits and held credits), `rate` (rows per second in the last 10 s),
        `eta_s` (a list of the least and the greatest number of seconds from now to the end of the run), and `remaining`
        (credits, a dict with `low` and `high`, None if there is no upper limit). `rate` and `eta_s` are None while
        unknown.
        """
        rate, eta, remaining = self.rates()[0], self.eta_s(), self.remaining_credits()
        return {
            "cap": self._cap,
            "points": [[round(each.seconds, 2), each.paid, each.held] for each in self._points],
            "rate": rate,
            "eta_s": None if eta is None else list(eta),
            "remaining": {"low": remaining.low, "high": remaining.high},
        }


def _rate(points: Sequence[BurnPoint]) -> float | None:
    """Return the rows finished per second from the first to the last point; None if they have the same time."""
    seconds = points[-1].seconds - points[0].seconds if points else 0.0
    return (points[0].pending_rows - points[-1].pending_rows) / seconds if seconds > 0 else None
