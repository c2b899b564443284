"""Computes what one flow run of `analyze` has spent, and sends events to Prefect that tell how the run ended."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefect.client.schemas import State

from lightmeter.api.run_result import Run, summarize
from lightmeter.errors import JournalError
from lightmeter.journal.header import read_run_header
from lightmeter.prefect_integration.events import emit_event


@dataclass(frozen=True, slots=True)
class Spent:
    """Credits paid (`paid`) and POST requests sent (`requests`), by a whole run or during one flow run of it."""

    paid: int = 0
    requests: int = 0

    @property
    def payload(self) -> dict[str, int]:
        """The values `paid_now` and `requests_now` of an event. Use this only if the object is about one flow run."""
        return {"paid_now": self.paid, "requests_now": self.requests}


@dataclass(frozen=True, slots=True)
class RunTotals:
    """What the run in a folder had spent (`spent`), over all flow runs, when `read_totals` was called.

    `rows` is the number of rows that were planned. `run_ids` holds the present id of this run and its former ones: a
    run gets a new id when its journal is restored from a copy. It is empty if the folder holds no run.
    """

    run_ids: tuple[str, ...] = ()
    rows: int = 0
    spent: Spent = Spent()

    def spent_since(self, out: Path) -> Spent:
        """Return what the run in `out` has spent since these totals were read.

        If `out` holds a different run now, return everything that the different run has spent.
        """
        now = read_totals(out)
        if not {*self.run_ids} & {*now.run_ids}:
            return now.spent
        return Spent(now.spent.paid - self.spent.paid, now.spent.requests - self.spent.requests)


def read_totals(out: Path) -> RunTotals:
    """Return what the run in the folder `out` has spent so far, over all flow runs; zero if there is no run."""
    try:
        header, summary = read_run_header(out), summarize(out)
    except JournalError:
        return RunTotals()
    return RunTotals(header.run_ids, summary.rows, Spent(summary.paid, summary.requests))


def emit_outcome(run: Run, state: State[Any] | None, spent_by_flow_run: Spent) -> None:
    """Send the event `lightmeter.run.completed` or `lightmeter.run.failed`, which says how a run ended.

    Args:
        run: The run.
        state: The failed state of the flow run; None if nothing is left to do.
        spent_by_flow_run: What this flow run has spent.
    """
    summary = run.summary()
    values = {**spent_by_flow_run.payload, "rows": summary.rows, "paid": summary.paid, "balance": summary.balance_after}
    if state is None:
        emit_event("lightmeter.run.completed", str(run.folder), **values)
        return
    left = {status: summary.counts[status] for status in ("pending", "over_budget", "in_doubt", "failed")}
    emit_event("lightmeter.run.failed", str(run.folder), state=state.name, message=state.message, **left, **values)


def emit_failure(out: str, state: State[Any], spent_by_flow_run: Spent) -> State[Any]:
    """Send the event `lightmeter.run.failed` for a flow run that ended by an error or a refusal; return `state`.

    Args:
        out: The output folder.
        state: The failed state of the flow run.
        spent_by_flow_run: What this flow run has spent.
    """
    emit_event("lightmeter.run.failed", out, state=state.name, message=state.message, **spent_by_flow_run.payload)
    return state
