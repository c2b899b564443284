"""The events of the flow `analyze`: a run starts, waits for approval, has ended."""

from __future__ import annotations

from typing import Any

from prefect.client.schemas import State

from lightmeter.api.run_result import Run
from lightmeter.prefect_integration.events import emit_event


def emit_outcome(run: Run, state: State[Any] | None) -> None:
    """Send the event that a run has ended.

    Args:
        run: The run.
        state: The failed state of the flow run; None if nothing is left to do.
    """
    summary = run.summary()
    values = {"rows": summary.rows, "paid": summary.paid, "balance": summary.balance_after}
    if state is None:
        emit_event("lightmeter.run.completed", str(run.folder), **values)
        return
    left = {status: summary.counts[status] for status in ("pending", "over_budget", "in_doubt", "failed")}
    emit_event("lightmeter.run.failed", str(run.folder), state=state.name, message=state.message, **left, **values)
