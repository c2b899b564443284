"""State of a run in memory: row counts, credits, requests under way, and the reason to stop.

All modules of the engine read this state. Only the methods of `RunState` change it, as
`tests/engine/test_run_state.py` checks.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from lightmeter.engine.batching import Batch, Bisection, NameReliabilityTracker
from lightmeter.engine.in_flight import PolledRequest
from lightmeter.engine.url_uploads import UploadSelection
from lightmeter.errors import AccessDenied, LightmeterError, Unreachable
from lightmeter.planning.progress import Phase, Progress, payable_rows


@dataclass
class RunState:
    """State of a run that the engine's modules share. It belongs to one event loop and needs no locks.

    Attributes:
        counts: Status → number of rows.
        paid: Credits paid by the whole run.
        held: Credits that are reserved, in the journal, for requests that may still be charged.
        started_at_s: When this process began to work on the run, in monotonic seconds.
        budget: Most credits that the run may spend; None means no limit.
        name_reliability: Learns whether answers name their images, so that several images can share a request.
        uploads: Decides for which URLs the image or video is sent as a file instead of the URL.
        bisection: Knows the rows of refused batches, which are sent again in halves.
        phase: What the run is doing, such as `running`, or `draining` (the run awaits the last answers).
        requests: Number of requests sent by this process.
        reserved: Credits of requests that are about to be sent and are not in the journal yet.
        at_risk: Credits of requests that are about to be sent, or were sent and have no answer of any kind yet.
        in_flight: Number of requests that were sent and have no answer of any kind yet.
        polls_outstanding: Number of requests that the service accepted and whose answer must be polled for.
        polled_credits: Credits that are reserved for these requests.
        new_polls: Queue of accepted requests that the poller has not received yet.
        unresolved_requests: Number of requests with an unknown outcome that no balance reading has been made for yet.
        unresolved_credits: Most credits that the unresolved requests may have cost.
        must_resolve: Whether the next batch must wait until a balance reading shows what unresolved requests cost.
        underreserved: Whether requests in flight may cost more than is reserved for them, because another one did.
        key_budget_room: Credits that the budget of the API key leaves for requests, over all runs, as last read; None
            if it was not read yet, or the key has no budget.
        rows_over_caps: Number of rows marked as over budget for each of two reasons: `at_risk` (the row alone may cost
            more than `--max-at-risk`) and `no_bound` (it has no highest price).
        paid_before: Credits that the run had paid when this process began to work on it.
        finished_rows: Number of rows that this process has given another status than `pending`.
        retries_pending: Whether the user stopped the run before the question (`--ask`) was repeated for all invalid
            answers.
        waiting: A text that says what the run waits for, and for how long at most; None if the run does not wait.
        planning: Whether rows of the manifest are still being planned (`--stream`).
        last_planned: Place (from 0, in the order of sending) of the last row that is planned and may be sent; used
            while `planning` is true.
        notes: Messages to the user about the run, one sentence each, in the order of events.
        stop_reason: Why no more requests may be sent; None while there is no reason, or if the user stopped the run.
        internal_error: An exception that the service did not cause, such as a full disk; None if there is none. It is
            raised once all requests in flight have ended.
        interrupted: Whether the run was interrupted: it does not wait for answers that the next start can collect.
        stopping: Event, set when no more requests may be sent.
        state_changed: Event, set when a request ended or the run must stop; waiting code then checks its condition.
    """

    counts: Counter[str]
    paid: int
    held: int
    started_at_s: float
    budget: int | None
    name_reliability: NameReliabilityTracker
    uploads: UploadSelection
    bisection: Bisection = field(default_factory=Bisection)
    phase: Phase = "starting"
    requests: int = 0
    reserved: int = 0
    at_risk: int = 0
    in_flight: int = 0
    polls_outstanding: int = 0
    polled_credits: int = 0
    new_polls: asyncio.Queue[PolledRequest] = field(default_factory=asyncio.Queue)
    unresolved_requests: int = 0
    unresolved_credits: int = 0
    must_resolve: bool = False
    underreserved: bool = False
    key_budget_room: int | None = None
    rows_over_caps: Counter[str] = field(default_factory=Counter)
    finished_rows: int = 0
    retries_pending: bool = False
    waiting: str | None = None
    planning: bool = False
    last_planned: int = -1
    notes: list[str] = field(default_factory=list)
    stop_reason: LightmeterError | None = None
    internal_error: BaseException | None = None
    interrupted: bool = False
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    state_changed: asyncio.Event = field(default_factory=asyncio.Event)
    paid_before: int = field(init=False)

    def __post_init__(self) -> None:
        self.paid_before = self.paid

    def enter_phase(self, phase: Phase) -> Phase:
        """Set the phase of the run, such as `running`; return the previous phase."""
        before, self.phase = self.phase, phase
        return before

    def show_waiting(self, text: str | None) -> None:
        """Set the `text` for the user that says what the run waits for; None if the run no longer waits."""
        self.waiting = text

    def add_note(self, text: str) -> None:
        """Add the message `text` for the user, unless it was added before; it is shown with the progress and stored."""
        if text not in self.notes:
            self.notes.append(text)

    def stop(self, reason: LightmeterError | None = None) -> None:
        """Let the engine send no more requests. If there are several calls, the first `reason` is kept."""
        self.stop_reason = self.stop_reason or reason
        self.stopping.set()
        self.state_changed.set()

    def interrupt(self) -> None:
        """Stop the run: send nothing more, and leave it to the next start of the run to poll for missing answers."""
        self.interrupted = True
        self.stop()

    def fail(self, error: BaseException) -> None:
        """Stop the run because of an internal error, such as a full disk. If there are several, the first is kept."""
        self.internal_error = self.internal_error or error
        self.stop()

    def raise_internal_error(self) -> None:
        """Raise the exception that `fail` recorded, if there is one."""
        if self.internal_error is not None:
            raise self.internal_error

    async def wait_for_change(self, timeout_s: float | None = None) -> None:
        """Wait until a request ends, rows are planned, or the run stops.

        Wait `timeout_s` seconds at most; None means no limit.
        """
        self.state_changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self.state_changed.wait()

    def set_counts(self, counts: Mapping[str, int]) -> None:
        """Replace the number of rows of each status by `counts`, which were counted in the journal."""
        self.counts = Counter(counts)

    def move_rows(self, before: str, after: str, rows: int) -> None:
        """Count a number of rows under the status `after` instead of the status `before`."""
        self.counts[before] -= rows
        self.counts[after] += rows
        if before == "pending":
            self.finished_rows += rows
        self.state_changed.set()

    def start_planning(self) -> None:
        """Record that rows of the manifest are planned while the run goes on."""
        self.planning = True

    def add_planned_rows(self, counts: Mapping[str, int], last: int) -> None:
        """Add newly planned rows (`counts` is status → number). All rows in places 0 to `last` may now be sent.

        A place is a position in the send order; `last` is included.
        """
        self.counts.update(counts)
        self.last_planned = last
        self.state_changed.set()

    def end_planning(self) -> None:
        """Record that all rows of the manifest are planned."""
        self.planning = False
        self.state_changed.set()

    def mark_over_caps(self, reason: str, rows: int) -> None:
        """Count a number of rows as over budget, for one of the two reasons that `rows_over_caps` names."""
        self.move_rows("pending", "over_budget", rows)
        self.rows_over_caps[reason] += rows

    def end_retries(self) -> None:
        """Record that the user's question (`--ask`) is repeated for no more rows.

        If the run was interrupted, set `retries_pending`, because some rows may be left.
        """
        self.retries_pending = self.interrupted

    def admit(self, batch: Batch) -> None:
        """Count the credits of a batch that is about to be sent as reserved and at risk."""
        self.reserved += batch.hold
        if self.key_budget_room is not None:
            self.key_budget_room -= batch.hold
        self.at_risk += batch.hold
        self.name_reliability.on_request_started(len(batch.rows))

    def end_reservation(self, batch: Batch) -> None:
        """Remove a batch's credits from `reserved`: the journal now holds them, or the batch will not be sent."""
        self.reserved -= batch.hold

    def end_batch(self, batch: Batch) -> None:
        """Count the credits of a batch as no longer at risk: the request has an answer, is lost, or was not sent."""
        self.at_risk -= batch.hold
        self.name_reliability.on_request_ended(len(batch.rows))
        self.state_changed.set()

    def start_request(self) -> None:
        """Count a request that is being sent."""
        self.requests += 1
        self.in_flight += 1

    def end_request(self) -> None:
        """Count a request as no longer in flight: it has an answer, or none will come."""
        self.in_flight -= 1
        self.state_changed.set()

    def hold(self, credits_: int) -> None:
        """Add credits to `held`: they are now reserved in the journal."""
        self.held += credits_

    def release_hold(self, held: int, paid: int = 0) -> None:
        """Subtract a request's hold, `held`, from the total `held`; add its charge, `paid`, to the total `paid`."""
        self.held -= held
        self.paid += paid
        self.state_changed.set()

    def set_key_budget_room(self, credits_: int) -> None:
        """Set how many credits the budget of the API key leaves for requests."""
        self.key_budget_room = credits_

    def add_poll(self, polled: PolledRequest) -> None:
        """Pass a request to the poller: the service has accepted it, and its answer must be polled for."""
        self.polls_outstanding += 1
        self.polled_credits += polled.request.hold
        self.name_reliability.on_request_started(len(polled.request.rows))
        self.new_polls.put_nowait(polled)

    def end_poll(self, polled: PolledRequest) -> None:
        """Record that the answer to a request is no longer polled for."""
        self.polls_outstanding -= 1
        self.polled_credits -= polled.request.hold
        self.name_reliability.on_request_ended(len(polled.request.rows))
        self.state_changed.set()

    def add_unresolved(self, hold: int) -> None:
        """Count a request with an unknown outcome, and the `hold` credits that are reserved for it."""
        self.unresolved_requests += 1
        self.unresolved_credits += hold

    def remove_unresolved(self, hold: int) -> None:
        """Remove a request, for which `hold` credits are reserved, from those of unknown outcome: it has an answer."""
        self.unresolved_requests -= 1
        self.unresolved_credits = max(0, self.unresolved_credits - hold)

    def clear_unresolved(self) -> None:
        """Count no requests as unresolved any more: all of them were examined."""
        self.unresolved_requests = self.unresolved_credits = 0

    def set_must_resolve(self, *, required: bool) -> None:
        """Set whether the next batch must wait until a balance reading shows what unanswered requests cost."""
        self.must_resolve = required

    def set_underreserved(self, *, underreserved: bool) -> None:
        """Set whether requests in flight may cost more than is reserved for them, because another one did."""
        self.underreserved = underreserved

    @property
    def exposure(self) -> int:
        """Credits reserved for requests: in the journal (`held`), or so far only in this object (`reserved`)."""
        return self.held + self.reserved

    @property
    def budget_left(self) -> int | None:
        """Credits of the run's budget that may still be reserved; None if there is no budget."""
        return None if self.budget is None else max(0, self.budget - self.paid - self.exposure)

    @property
    def credits_left(self) -> int | None:
        """Credits that the budgets of the run and of the API key leave for requests; None if there is no budget."""
        return min((left for left in (self.budget_left, self.key_budget_room) if left is not None), default=None)

    @property
    def is_limited_by_key(self) -> bool:
        """Whether the budget of the API key leaves no more credits for requests than the budget of the run."""
        return self.key_budget_room is not None and self.key_budget_room == self.credits_left

    @property
    def has_rows_to_resend(self) -> bool:
        """Whether some refused rows must be sent again in another form: in smaller batches, or as uploaded files."""
        return self.bisection.has_pending_halves or self.uploads.has_pending_uploads

    @property
    def cannot_poll(self) -> bool:
        """Whether to stop waiting for polled answers.

        True if the user stopped the run, after an internal error, if the key is refused, or if the service cannot be
        reached.
        """
        unusable = isinstance(self.stop_reason, AccessDenied | Unreachable)
        return self.interrupted or unusable or self.internal_error is not None

    def progress(self, now_s: float) -> Progress:
        """Return the progress of the run for the user; `now_s` is the time in monotonic seconds."""
        seconds, pending, left = now_s - self.started_at_s, self.counts["pending"], self.credits_left
        rate = self.finished_rows / seconds if seconds > 0 else 0.0
        left = None if left is None else left + self.at_risk + self.polled_credits
        payable = payable_rows(pending, self.finished_rows, self.paid - self.paid_before, left)
        eta_s = payable / rate if rate and not self.planning else None
        return Progress(
            phase="stopping" if self.interrupted else self.phase,
            rows=sum(self.counts.values()),
            counts=dict(self.counts),
            requests=self.requests,
            in_flight=self.in_flight + (0 if self.interrupted else self.polls_outstanding),
            paid=self.paid,
            held=self.held,
            budget=self.budget,
            seconds=seconds,
            rate=rate,
            eta_s=self._seconds_to_stop(seconds) if self.interrupted else eta_s,
            eta_is_budget=payable < pending,
            waiting=self.waiting,
            notes=tuple(self.notes),
            planning=self.planning,
        )

    def _seconds_to_stop(self, seconds: float) -> float | None:
        """Estimate the seconds until no request is in flight, from the requests that ended within `seconds`."""
        ended = self.requests - self.in_flight
        return self.in_flight * seconds / ended if ended else None
