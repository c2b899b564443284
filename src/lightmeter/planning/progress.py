"""What a plan and a run say while they work: plain values, yielded; nothing calls back upward."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Phase", "Progress"]

Phase = Literal["planning", "starting", "collecting", "reconciling", "running", "draining", "exporting", "done"]


@dataclass(frozen=True, slots=True)
class Progress:
    """One look at the work.

    Attributes:
        phase: What is being done.
        rows: Rows known so far (planning), or all rows of the manifest.
        counts: Rows by status.
        requests: Requests sent by this process.
        in_flight: Requests sent and not answered, with those that are being polled.
        paid: Credits paid by the whole run.
        held: Credits set aside for what is in flight or in doubt.
        budget: The cap, or None.
        seconds: Since this process began to work.
        rate: Rows finished a second, over this process's time.
        eta_s: Seconds left at this rate, or None while it is not known.
        waiting: What is waited for and for how long at most, as a sentence; None while the work goes on.
        notes: What the user should know about the run, a sentence each; none is ever taken back.
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
    waiting: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def finished(self) -> int:
        """Rows that need nothing more."""
        return self.rows - sum(self.counts.get(status, 0) for status in ("pending", "over_budget", "in_doubt"))
