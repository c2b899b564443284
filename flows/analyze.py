"""Prefect flow that turns a manifest into tables. Schedulers deploy it, and `lightmeter demo` runs it.

Each task analyses a range of rows, never a single URL: a Prefect task costs about 50 ms and 23 KB of its database, so
a million rows take seconds as 500 tasks, and hours as a million. The journal in the output folder records every row and
every credit; a flow that runs again, by hand or by a Prefect retry, continues where it stopped and pays for nothing
twice. A process of its own sends the requests of a task, so that Cancel in Prefect cuts off none that is in flight.

Run it without a server: `python flows/analyze.py data/manifest.csv out/`. Deploy it: `prefect deploy --all`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, Final, TypeVar

# Prefect reads these when it is imported. Its usage statistics would go to the internet; its server needs up to 20 s
# to start, which is also the default timeout.
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "120")

from prefect import flow, get_run_logger, task
from prefect.artifacts import (
    acreate_progress_artifact,
    acreate_table_artifact,
    aupdate_progress_artifact,
)
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas import State
from prefect.exceptions import FailedRun
from prefect.runtime import flow_run, task_run
from prefect.states import Failed

import lightmeter as lm
from lightmeter.api.resume_process import resume_in_process
from lightmeter.api.run_result import Run
from lightmeter.api.runs import prepare_run, prepare_run_from_plan
from lightmeter.errors import JournalLocked, LightmeterError, Unreachable, UsageError
from lightmeter.export.export_tables import export_tables
from lightmeter.options import make_options
from lightmeter.planning.plan_file import is_plan_file
from lightmeter.planning.preflight import preflight
from lightmeter.redaction import has_credentials, mask_credentials
from lightmeter.settings import read_settings

T = TypeVar("T")

_STATE_NAMES: Final = {
    "over_budget": "OverBudget",
    "in_doubt": "InDoubt",
    "pending": "Unfinished",
    "failed": "RowsFailed",
}
"""Name of the failed state of a flow run by the status of rows that it left; the first that applies."""

_STOPPED: Final = "Stopped"
"""Name of the failed state of a task that ended early, such as at the budget."""


def _is_temporary(_task: object, _run: object, state: State[Any]) -> bool:
    """Return whether a failed task is worth another try: not if its budget, options or key must be changed first."""
    error = state.data
    if isinstance(error, LightmeterError):
        return isinstance(error, JournalLocked | Unreachable)
    return isinstance(error, Exception)


def _plan_name() -> str:
    return f"plan {mask_credentials(task_run.parameters['manifest'])}"


def _flow_name() -> str:
    return f"analyze {mask_credentials(flow_run.parameters['manifest'])}"


@task(cache_policy=NO_CACHE, task_run_name=_plan_name)
async def make_plan(manifest: str, out: str, options: dict[str, Any]) -> int:
    """Read, check and price the manifest, or read a plan file; write its rows to the journal, and return their number.

    Args:
        manifest: A path or `s3://` URL of a manifest, a folder or a glob; or a plan file.
        out: The output folder.
        options: Fields of `lightmeter.options.Options`; empty for a plan file.

    Raises:
        UsageError: `manifest` is a plan file, which holds its own options, and `options` is not empty.
        SettingsError: There is no key; checked before the manifest is read.
        AccessDenied: The service does not accept the key; likewise.
    """
    if is_plan_file(manifest):
        if options:
            raise UsageError("A plan file holds all options: give no others beside it.")
        summary = await prepare_run_from_plan(manifest, out)
    else:
        await preflight(make_options(**options), read_settings(), required=True)
        summary = await prepare_run(manifest, out, **options)
    get_run_logger().info("%s rows: %s", summary.rows, summary.counts)
    return summary.rows


@task(
    cache_policy=NO_CACHE,
    retries=2,
    retry_delay_seconds=10,
    retry_condition_fn=_is_temporary,
    task_run_name="rows {first} to {last}",
)
async def analyze_rows(out: str, first: int, last: int) -> State[None] | None:
    """Analyse a range of rows; return a failed state if a budget, the balance or a lost answer stopped it early.

    The requests are sent by a process of its own, so that cancelling the flow run cuts off no request in flight.

    Args:
        out: The output folder.
        first: Place of the first row, from 0, in the order in which rows are sent, so that the budget buys the sample.
        last: Place of the last row.
    """
    stopped_by = await resume_in_process(out, first, last)
    return None if stopped_by is None else Failed(name=_STOPPED, message=_sentences(stopped_by))


@task(cache_policy=NO_CACHE)
def write_tables(out: str) -> dict[str, int]:
    """Write the Parquet tables from the journal; return the number of rows by table."""
    return export_tables(Path(out))


@flow(name="analyze", flow_run_name=_flow_name, log_prints=True)
async def analyze(
    manifest: str, out: str, options: dict[str, Any] | None = None, shard_rows: int = 2000
) -> dict[str, Any] | State[Any]:
    """Analyse a manifest into Parquet tables.

    The flow run is completed where `lightmeter run` exits with 0. Otherwise it fails: its state is called `OverBudget`,
    `InDoubt`, `Unfinished` or `RowsFailed`, and says what to do next. The tables are written in each case.

    Args:
        manifest: A path or `s3://` URL of a manifest, a folder or a glob; or a plan file, which is followed exactly.
            Prefect stores it as given: set keys in the worker's environment (`AWS_ACCESS_KEY_ID`, …).
        out: The output folder; a run that it already holds is continued.
        options: Fields of `lightmeter.options.Options`: features, backends, budget, base_url, …
        shard_rows: Rows per task.

    Returns:
        The summary of the run, as `lightmeter status --json` prints it; or a failed state.
    """
    name = mask_credentials(manifest)
    if has_credentials(manifest):
        get_run_logger().warning(
            "The parameter manifest holds credentials, and Prefect stores parameters as they are. "
            "Give %s, and set the key in the environment of the worker.",
            name,
        )
    try:
        rows = await make_plan(manifest, out, options or {})
        stopped = await _analyze_shards(name, out, rows, shard_rows)
        tables = write_tables(out)
    except LightmeterError as error:
        return Failed(message=_sentences(error), data=error)
    run = lm.open(out)
    summary = run.summary().to_dict()
    await _show(
        acreate_table_artifact(table=_as_table(summary, tables), key="analyze-summary", description=f"{name} → {out}")
    )
    return _failed_state(run, stopped) or summary


async def _analyze_shards(name: str, out: str, rows: int, shard_rows: int) -> State[Any] | None:
    """Analyse all rows, a task for each shard; return the state of the last task if it stopped early.

    After a task that stopped early, one more task takes all other rows: it sends what the budget still pays for, and
    records why the others were not sent.
    """
    progress = await _show(
        acreate_progress_artifact(progress=0.0, key="analyze-progress", description=f"Rows of {name}")
    )
    first, state = 0, None
    while first < rows:
        last = min(first + shard_rows, rows) - 1
        state = await analyze_rows(out, first, last, return_state=True)  # type: ignore[misc]  # (typed as no awaitable)
        if state.name == _STOPPED:
            shard_rows = rows
        else:
            await state.aresult()  # raises the error of the task
        first = last + 1
        if progress is not None:
            await _show(aupdate_progress_artifact(progress, progress=100.0 * first / rows))
    return state if state is not None and state.name == _STOPPED else None


def _failed_state(run: Run, stopped: State[Any] | None) -> State[Any] | None:
    """Return the state of a flow run that leaves something to do; None if `lightmeter run` would exit with 0."""
    summary = run.summary()
    if summary.exit_code == 0 and stopped is None:
        return None
    name = next((name for status, name in _STATE_NAMES.items() if summary.counts[status]), _STOPPED)
    left = [f"{rows} {status.replace('_', ' ')}" for status, rows in summary.counts.items() if rows]
    return Failed(name=name, message=f"{summary.rows} rows: {', '.join(left)}. To do: {'; '.join(run.next_steps())}")


async def _show(artifact: Awaitable[T]) -> T | None:
    """Write an artifact for Prefect's web page; if that fails, log a warning, because the run itself is well."""
    try:
        return await artifact
    except Exception as error:  # noqa: BLE001 (whatever it is)
        get_run_logger().warning("An artifact was not written, the run goes on: %s", error)
        return None


def _sentences(error: LightmeterError) -> str:
    return f"{error} {error.hint}".rstrip()


def _as_table(summary: dict[str, Any], tables: dict[str, int]) -> list[dict[str, Any]]:
    """Return the counts of a run and of its tables as rows of a table on Prefect's web page."""
    values = {**summary, **summary["credits"], **{f"table {table}": count for table, count in tables.items()}}
    return [{"name": name, "value": value} for name, value in values.items() if not isinstance(value, dict)]


async def _main(manifest: str, out: str) -> int:
    """Run the flow without a deployment; return the exit code of `lightmeter run`."""
    try:
        await analyze(manifest, out)
    except LightmeterError as error:
        print(f"error: {_sentences(error)}", file=sys.stderr)  # noqa: T201 (the output of the script)
        return error.exit_code
    except FailedRun as failed:
        print(failed, file=sys.stderr)  # noqa: T201 (likewise)
        return lm.open(out).summary().exit_code or 1
    print(lm.open(out).summary().to_dict())  # noqa: T201 (likewise)
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(_main(*sys.argv[1:])))
