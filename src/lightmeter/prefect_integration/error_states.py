"""Ends a flow run of `analyze` after an error: decides its state, and whether the caller still writes the tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect.client.schemas import State

from lightmeter.errors import JournalError, JournalLocked, LightmeterError, TablesError
from lightmeter.prefect_integration.flow_results import NOT_PLANNED, failed_state
from lightmeter.prefect_integration.run_events import RunTotals, Spent, emit_failure, read_totals
from lightmeter.prefect_integration.shard_progress import STOPPED


def end_by_error(error: LightmeterError, out: Path, before: RunTotals | None, *, stream: bool) -> State[Any] | None:
    """Return the failed state of a flow run that `error` ended, and send the event `lightmeter.run.failed`.

    If the error came while rows were being sent, return None and send nothing: the caller then writes the tables, and
    ends the flow run as after a run without an error. That is not so if the journal or the tables cannot be used.

    Args:
        error: The error.
        out: The output folder.
        before: What the run had spent before this flow run; None if the error came before this was read.
        stream: Whether the manifest is read while its rows are sent, so that the run may not be planned yet.
    """
    is_locked = isinstance(error, JournalLocked)  # what another process plans and sends is not of this flow run
    now = read_totals(out)
    if before is None or (stream and (is_locked or not now.rows or now == before)):
        return emit_failure(str(out), failed_state(error, NOT_PLANNED), Spent())
    if not isinstance(error, JournalError | TablesError):
        return None
    return emit_failure(str(out), failed_state(error, STOPPED), Spent() if is_locked else before.spent_since(out))
