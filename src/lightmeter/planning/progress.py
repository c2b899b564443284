"""Progress of planning and of a run, which the generators `stream_plan`, `stream_run` and `stream_resume` yield."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Phase = Literal[
    "planning",
    "checking",
    "screening",
    "starting",
    "collecting",
    "reconciling",
    "running",
    "draining",
    "stopping",
    "exporting",
    "done",
]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far planning or a run is at one moment, for a progress display.

    Attributes:
        phase: What is being done; `Phase` lists the values.
        rows: In the phases `planning` and `checking`, the number of rows checked so far. In `screening` on a cluster,
            the number of rows to analyze. Otherwise, the number of all rows of the manifest.
        counts: Status → number of rows.
        requests: Requests sent by this process.
        in_flight: Requests sent and not yet answered. Those whose answer is polled for are included, unless the run is
            stopping: it does not wait for them.
        paid: Credits that the whole run has paid so far.
        held: Credits reserved for requests whose charge is not yet known.
        budget: Most credits that the run may spend; None means no limit.
        seconds: Seconds since this process began to plan, check, screen or send the rows.
        rate: Rows finished per second in this time; in the phases `planning` and `checking`, rows checked.
        eta_s: Estimated seconds until all rows are finished or the budget is spent, or None while unknown. In the phase
            `stopping`, until no request is in flight.
        eta_is_budget: Whether the budget is likely to be spent first, so that rows will be left over.
        waiting: What the run waits for, and for how long at most, as a sentence; None while it does not wait.
        notes: Notes for the user, a sentence each. A note stays until the end of the run.
        planning: Whether the run still reads and checks further rows of the manifest (`--stream`); `rows` then grows.
    """

    phase: Phase
    rows: int
    counts: dict[str, int]
    requests: int = 0
    in_flight: int = 0
    paid: int = 0
    held: int = 0
    budget: int | None = None
    seconds: float = 0.0
    rate: float = 0.0
    eta_s: float | None = None
    eta_is_budget: bool = False
    waiting: str | None = None
    notes: tuple[str, ...] = ()
    planning: bool = False

    @property
    def finished(self) -> int:
        """Number of rows with a final status, which is every status but `pending`, `over_budget` and `in_doubt`."""
        return self.rows - sum(self.counts.get(status, 0) for status in ("pending", "over_budget", "in_doubt"))


def payable_rows(pending: int, finished: int, paid: int, left: int | None) -> float:
    """Estimate how many pending rows a budget pays for, if a row goes on to cost as much as the finished ones did.

    Args:
        pending: Number of pending rows.
        finished: Number of finished rows.
        paid: Credits that the finished rows have cost.
        left: Credits left of the budget, including those reserved for pending rows; None without a budget.
    """
    return pending if left is None or not paid else min(pending, left * finished / paid)
