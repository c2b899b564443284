"""Prefect flow that turns a manifest into tables: plan, approve, run, export, report. `lightmeter demo` runs it too.

A separate process sends all requests with one session, so that Cancel in Prefect cuts off none that is in flight.
Task runs show ranges of rows, never a single URL: a task run costs Prefect about 50 ms and 23 KB of its database. The
journal in the output folder records every row and every credit, and it alone decides what is sent: a flow that runs
again continues where it stopped and pays for nothing twice. Nothing that spends has retries or a cache in Prefect.

Run it without a server: `python flows/analyze.py data/manifest.csv out/`. Deploy it: `prefect deploy --all`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Annotated, Any, Final

# Prefect reads these when it is imported. Its usage statistics would go to the internet; its server needs up to 20 s
# to start, which is also the default timeout.
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "120")

from prefect import flow, get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas import State
from prefect.exceptions import FailedRun
from prefect.runtime import flow_run, task_run
from prefect.states import Failed
from pydantic import Field

import lightmeter as lm
from lightmeter.api.prepared_run import PreparedRun, prepare_run, prepare_run_from_plan
from lightmeter.api.run_result import Run, RunSummary
from lightmeter.api.sending_process import start_sending_process
from lightmeter.errors import Interrupted, LightmeterError, UsageError
from lightmeter.options import Options, make_options
from lightmeter.paths import local_path
from lightmeter.planning.consent import must_be_explicit
from lightmeter.planning.plan_file import is_plan_file
from lightmeter.planning.preflight import preflight
from lightmeter.prefect_integration.approval import approve_run, ask_for_approval, price_of_unsent_rows
from lightmeter.prefect_integration.artifacts import show_results, write_report
from lightmeter.prefect_integration.credentials import load_settings
from lightmeter.prefect_integration.error_states import end_by_error
from lightmeter.prefect_integration.events import emit_event
from lightmeter.prefect_integration.flow_results import NOT_PLANNED, error_text, failed_state, warn_of_credentials
from lightmeter.prefect_integration.run_events import RunTotals, Spent, emit_failure, emit_outcome, read_totals
from lightmeter.prefect_integration.shard_progress import STOPPED, follow_shards
from lightmeter.prefect_integration.tables import write_tables
from lightmeter.pricing.estimate import counted
from lightmeter.redaction import mask_credentials
from lightmeter.settings import Settings

_STATE_NAMES: Final = {
    "over_budget": "OverBudget",
    "in_doubt": "InDoubt",
    "pending": "Unfinished",
    "failed": "RowsFailed",
}
"""Status of rows that a flow run left → name of its failed state. The first status here that has rows decides."""

_DEFAULT_OPTIONS: Final = Options()


def _plan_name() -> str:
    return f"plan {mask_credentials(task_run.parameters['manifest'])}"


def _flow_name() -> str:
    return f"analyze {mask_credentials(flow_run.parameters['manifest'])}"


@task(cache_policy=NO_CACHE, retries=0, task_run_name=_plan_name)
async def make_plan(manifest: str, out: str, options: Options, settings: Settings, *, consent: bool) -> PreparedRun:
    """Read, check and price the manifest, or read a plan file; write its rows to the journal. Spends nothing.

    After an error the task run's state is `NotPlanned`, and the caller gets the error.

    Args:
        manifest: A path or `s3://` URL of a manifest, a folder or a glob; or a plan file.
        out: The output folder.
        options: The options of the run; the defaults for a plan file.
        settings: The user's settings, with the key.
        consent: Whether to allow what `Plan.needs_consent` lists.

    Raises:
        UsageError: `manifest` is a plan file, which holds its own options, and `options` are given too; or the user
            must consent first.
        SettingsError: There is no key; checked before the manifest is read.
        AccessDenied: The service does not accept the key; checked before the manifest is read.
    """
    try:
        if is_plan_file(manifest):
            if options.changed():
                raise UsageError("A plan file holds all options: give no others beside it.")
            return await prepare_run_from_plan(manifest, out, settings=settings, consent=consent)
        await preflight(make_options(**options.changed()), settings, required=True)
        return await prepare_run(manifest, out, settings=settings, consent=consent, **options.changed())
    except LightmeterError as error:  # Prefect would log a traceback
        return failed_state(error, NOT_PLANNED)  # type: ignore[return-value]  # (the caller gets the error)


@flow(name="analyze", flow_run_name=_flow_name, retries=0, log_prints=True)
async def analyze(  # noqa: PLR0913, PLR0917 (each is a field of Prefect's form)
    manifest: str,
    out: str,
    options: Options = _DEFAULT_OPTIONS,
    shard_rows: Annotated[int, Field(ge=1)] = 2000,
    credentials: str | None = None,
    stream: bool = False,  # noqa: FBT001, FBT002 (likewise)
    approve_above: Annotated[int, Field(ge=0)] | None = None,
    approval_hours: Annotated[float, Field(gt=0, le=720)] = 24,
    report: bool = True,  # noqa: FBT001, FBT002 (likewise)
    consent: bool = False,  # noqa: FBT001, FBT002 (likewise)
) -> dict[str, Any] | State[Any]:
    """Analyse a manifest into Parquet tables.

    The flow run is completed where `lightmeter run` exits with 0. Otherwise it fails: its state is called `OverBudget`,
    `InDoubt`, `Unfinished`, `RowsFailed` or `Stopped` (by an error, or the manifest was not read to its end), and says
    what to do next. The tables are written in each of these cases if they can be. Nothing was sent in the states
    `NotPlanned` (its message says why), `Refused` (a person refused the price) and `NotApproved` (nobody answered).

    Args:
        manifest: A path or `s3://` URL of a manifest, a folder or a glob; or a plan file, which is followed exactly.
            Prefect stores it as given: set keys in the worker's environment (`AWS_ACCESS_KEY_ID`, …).
        out: The output folder; a run that it already holds is continued.
        options: The options of the run.
        shard_rows: Rows per task run.
        credentials: Name of a block of the type Lightmeter Credentials. Without one, the key and the address of the
            service come from the settings of the worker.
        stream: Whether to spend while the manifest is being read; needs a budget.
        approve_above: The run waits for approval if it may cost more credits than this. Without a number it never does.
        approval_hours: Hours to wait for approval.
        report: Whether to write the page `report.html`.
        consent: Whether to allow what `lightmeter run` asks for on a terminal: a run that names no back end, so that
            its price is not known, or that has no frame limit.

    Returns:
        The summary of the run, as `lightmeter status --json` prints it; or a failed state.
    """
    name, folder, before = mask_credentials(manifest), local_path(out), None
    warn_of_credentials("manifest", manifest)
    try:
        settings = await load_settings(credentials)
        if stream:
            _must_be_streamable(manifest, options, settings, consent=consent)
            rows, what = None, dict[str, Any](source=manifest, options=options)
        else:
            planned = await _plan_rows(manifest, out, options, settings, consent=consent)
            rows, what = planned.summary.rows, dict[str, Any](options=planned.options, run_id=planned.run_id)
        row = f"| manifest | {name} |"
        if approve_above is not None:
            limits = approve_above, approval_hours
            if stream:
                refused = await ask_for_approval(out, options.budget, *limits, [row])
            else:
                refused = await approve_run(folder, *limits, row)
            if refused is not None:
                return emit_failure(out, refused, Spent())
        high, before = None if stream else price_of_unsent_rows(folder).high, read_totals(folder)
        emit_event("lightmeter.run.started", out, rows=rows, budget=options.budget, price_high=high)
        async with start_sending_process(folder, settings, shard_rows=shard_rows, rows=rows, **what) as sender:
            await follow_shards(sender, name)
            stopped_by = await sender.outcome()
        return await _finish(Run(folder, stopped_by), name, before, rewrite_all=stream, with_report=report)
    except LightmeterError as error:
        state, before = end_by_error(error, folder, before, stream=stream), before or RunTotals()
        return state or await _finish(Run(folder, error), name, before, rewrite_all=stream, with_report=report)


async def _plan_rows(manifest: str, out: str, options: Options, settings: Settings, *, consent: bool) -> PreparedRun:
    """Plan the manifest in a task run; return the run, or raise the error that ended the task run."""
    plan = make_plan(manifest, out, options, settings, consent=consent, return_state=True)
    planned: State[PreparedRun] = await plan  # type: ignore[misc]  # (typed as no awaitable)
    return await planned.aresult()


def _must_be_streamable(manifest: str, options: Options, settings: Settings, *, consent: bool) -> None:
    """Raise UsageError if a manifest cannot be sent while it is read, or the user must consent first."""
    if is_plan_file(manifest):
        raise UsageError("A plan has been read to its end, so stream has no use: give the manifest instead.")
    if not consent:
        must_be_explicit(options, settings)


async def _finish(
    run: Run, name: str, before: RunTotals, *, rewrite_all: bool, with_report: bool
) -> dict[str, Any] | State[Any]:
    """Write the tables, the artifacts and the report of a run; return its summary, or the failed state of the flow run.

    Args:
        run: The run, which has ended.
        name: Name of the manifest.
        before: What the run had spent before this flow run.
        rewrite_all: Whether to write all tables anew. False only adds new rows where that is enough.
        with_report: Whether to write the report.
    """
    tables = await asyncio.to_thread(write_tables, run.folder, rewrite_all=rewrite_all)
    spent_by_flow_run = before.spent_since(run.folder)
    await show_results(run, name, tables, spent_by_flow_run)
    if with_report:
        await write_report(run.folder)
    summary = run.summary()
    get_run_logger().info(
        "This flow run: paid %s for %s. Run %s in all: paid %s for %s; %s rows: %s",
        counted(spent_by_flow_run.paid, "credit"),
        counted(spent_by_flow_run.requests, "request"),
        run.header.run_id,
        counted(summary.paid, "credit"),
        counted(summary.requests, "request"),
        summary.rows,
        summary.counts,
    )
    state = _failed_state(run, summary)
    emit_outcome(run, state, spent_by_flow_run)
    return state or summary.to_dict()


def _failed_state(run: Run, summary: RunSummary) -> State[Any] | None:
    """Return the failed state of a run, with the error that stopped it; None if `lightmeter run` would exit with 0."""
    if summary.exit_code == 0 and run.stopped_by is None:
        return None
    name = next((name for status, name in _STATE_NAMES.items() if summary.counts[status]), STOPPED)
    left = [f"{rows} {status.replace('_', ' ')}" for status, rows in summary.counts.items() if rows]
    stopped = "" if run.stopped_by is None else f"Stopped: {error_text(run.stopped_by)} "
    rows = f"{summary.rows} rows: {', '.join(left)}."
    message = f"{stopped}{rows} To do: {'; '.join(run.next_steps())}"
    return Failed(name=name, message=message, data=run.stopped_by)


async def _main(manifest: str, out: str) -> int:
    """Run the flow without a deployment; return the exit code of `lightmeter run`."""
    state: State[Any] = await analyze(manifest, out, return_state=True)
    if state.is_completed():
        print(lm.open(out).summary().to_dict())  # noqa: T201 (the output of the script)
        return 0
    error = await state.aresult(raise_on_failure=False)
    if not isinstance(error, LightmeterError | FailedRun):
        raise error
    print(f"error: {state.message}", file=sys.stderr)  # noqa: T201 (likewise)
    return error.exit_code if isinstance(error, LightmeterError) else lm.open(out).summary().exit_code or 1


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(_main(*sys.argv[1:])))
    except KeyboardInterrupt:
        sys.exit(Interrupted.exit_code)
