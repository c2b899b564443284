"""Where a run stands while it goes: counts, credits, what is in flight, and why it must stop."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from lightmeter.errors import LightmeterError
from lightmeter.planning.progress import Phase, Progress

__all__ = ["RunState"]


@dataclass
class RunState:
    """The engine's shared state; one event loop, no locks.

    Attributes:
        counts: Rows by status.
        paid: Credits paid by the whole run.
        held: Credits set aside.
        reserved: Credits of requests that were let through and are not yet written down as held.
        at_risk: Credits of requests that were let through and not answered in any way.
        in_flight: Requests sent and not answered in any way.
        polled: Requests acknowledged and not collected.
        lost: Requests whose end is not known and which no balance has been asked about yet.
        lost_credits: What those may have cost.
        key_budget_exhausted: The budget of the key, over all runs, has no room for the next request.
        retries_pending: The user's stop came while, or before, answers that are not valid were asked for again.
        waiting: What is waited for and for how long at most, as a sentence; None while the work goes on.
        notes: What the user should know about the run, a sentence each, in the order in which it was seen.
        fatal: Why nothing more may be sent, once there is a reason.
        crash: A bug of ours, to be raised once everything in flight is safe.
        interrupted: The user wants to stop: nothing is waited for that the next start can collect.
        stopping: Set when nothing more shall be sent: a reason, or the user's wish.
        changed: Set when something finished: who waits for room looks again.
    """

    counts: Counter[str]
    paid: int
    held: int
    began: float
    budget: int | None
    phase: Phase = "starting"
    requests: int = 0
    reserved: int = 0
    at_risk: int = 0
    in_flight: int = 0
    polled: int = 0
    lost: int = 0
    lost_credits: int = 0
    key_budget_exhausted: bool = False
    finished: int = 0
    retries_pending: bool = False
    waiting: str | None = None
    notes: list[str] = field(default_factory=list)
    fatal: LightmeterError | None = None
    crash: BaseException | None = None
    interrupted: bool = False
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def stop(self, reason: LightmeterError | None = None) -> None:
        """Send nothing more; the first reason is kept."""
        self.fatal = self.fatal or reason
        self.stopping.set()
        self.changed.set()

    def note(self, text: str) -> None:
        """Tell the user something about the run; the same only once."""
        if text not in self.notes:
            self.notes.append(text)

    def moved(self, before: str, after: str, rows: int) -> None:
        """So many rows went from one status to another."""
        self.counts[before] -= rows
        self.counts[after] += rows
        if before == "pending":
            self.finished += rows
        self.changed.set()

    def fits_budget(self, hold: int) -> bool:
        """Whether so many credits may still be set aside."""
        return self.budget is None or self.paid + self.held + self.reserved + hold <= self.budget

    @property
    def exposure(self) -> int:
        """Credits that are set aside, and those that are about to be."""
        return self.held + self.reserved

    @property
    def free(self) -> int | None:
        """Credits that may still be set aside; None when there is no cap."""
        return None if self.budget is None else max(0, self.budget - self.paid - self.held - self.reserved)

    def look(self, now: float) -> Progress:
        """The state as a progress event; `now` is monotonic seconds."""
        seconds = now - self.began
        rate = self.finished / seconds if seconds > 0 else 0.0
        left = self.counts["pending"]
        return Progress(
            phase=self.phase,
            rows=sum(self.counts.values()),
            counts=dict(self.counts),
            requests=self.requests,
            in_flight=self.in_flight + self.polled,
            paid=self.paid,
            held=self.held,
            budget=self.budget,
            seconds=seconds,
            rate=rate,
            eta_s=left / rate if rate else None,
            waiting=self.waiting,
            notes=tuple(self.notes),
        )
