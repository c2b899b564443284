"""Prefect flow that turns a manifest into tables. Schedulers deploy it, and `lightmeter demo` runs it.

Each task analyses a range of rows, never a single URL: a Prefect task costs about 50 ms and 23 KB of its database, so
a million rows take seconds as 500 tasks, and hours as a million. The journal in the output folder records every row and
every credit; a flow that runs again, by hand or by a Prefect retry, continues where it stopped and pays for nothing
twice.

Run it without a server: `python flows/analyze.py data/manifest.csv out/`. Deploy it: `prefect deploy --all`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

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
from prefect.runtime import flow_run, task_run

import lightmeter as lm
from lightmeter.api.run_result import Run
from lightmeter.api.runs import prepare_run, prepare_run_from_plan, stream_resume
from lightmeter.export.export_tables import export_tables
from lightmeter.planning.plan_file import is_plan_file
from lightmeter.planning.progress import Progress
from lightmeter.redaction import has_credentials, mask_credentials


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
    """
    if is_plan_file(manifest):
        if options:
            raise lm.errors.UsageError("A plan file holds all options: give no others beside it.")
        summary = await prepare_run_from_plan(manifest, out)
    else:
        summary = await prepare_run(manifest, out, **options)
    get_run_logger().info("%s rows: %s", summary.rows, summary.counts)
    return summary.rows


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=10, task_run_name="rows {first} to {last}")
async def analyze_rows(out: str, first: int, last: int) -> dict[str, int]:
    """Analyse a range of rows; return the number of rows of the whole run by status.

    Args:
        out: The output folder.
        first: Number of the first row, from 0.
        last: Number of the last row.
    """
    async for step in stream_resume(out, rows=(first, last), tables=False):
        if isinstance(step, Run):
            if step.stopped_by is not None:
                get_run_logger().warning("%s %s", step.stopped_by, step.stopped_by.hint)
            return step.summary().counts
        assert isinstance(step, Progress)  # noqa: S101 (it yields nothing else)
    raise RuntimeError("a run ends with a run")


@task(cache_policy=NO_CACHE)
def write_tables(out: str) -> dict[str, int]:
    """Write the Parquet tables from the journal; return the number of rows by table."""
    return export_tables(Path(out))


@flow(name="analyze", flow_run_name=_flow_name, log_prints=True)
async def analyze(
    manifest: str, out: str, options: dict[str, Any] | None = None, shard_rows: int = 2000
) -> dict[str, Any]:
    """Analyse a manifest into Parquet tables.

    Args:
        manifest: A path or `s3://` URL of a manifest, a folder or a glob; or a plan file, which is followed exactly.
            Prefect stores it as given: set keys in the worker's environment (`AWS_ACCESS_KEY_ID`, …).
        out: The output folder; a run that it already holds is continued.
        options: Fields of `lightmeter.options.Options`: features, backends, budget, base_url, …
        shard_rows: Rows per task.

    Returns:
        The summary of the run, as `lightmeter status --json` prints it.
    """
    name = mask_credentials(manifest)
    if has_credentials(manifest):
        get_run_logger().warning(
            "The parameter manifest holds credentials, and Prefect stores parameters as they are. "
            "Give %s, and set the key in the environment of the worker.",
            name,
        )
    rows = await make_plan(manifest, out, options or {})
    progress = await acreate_progress_artifact(progress=0.0, key="analyze-progress", description=f"Rows of {name}")
    for first in range(0, rows, shard_rows):
        last = min(first + shard_rows, rows) - 1
        await analyze_rows(out, first, last)
        await aupdate_progress_artifact(progress, progress=100.0 * (last + 1) / rows)
    tables = write_tables(out)
    summary: dict[str, Any] = lm.open(out).summary().to_dict()
    await acreate_table_artifact(table=_as_table(summary, tables), key="analyze-summary", description=f"{name} → {out}")
    return summary


def _as_table(summary: dict[str, Any], tables: dict[str, int]) -> list[list[Any]]:
    """Return the counts of a run and of its tables as rows of a table on Prefect's web page."""
    rows: list[list[Any]] = [["name", "value"]]
    for name, value in {**summary, **summary["credits"]}.items():
        if not isinstance(value, dict):
            rows.append([name, value])
    return rows + [[f"table {table}", count] for table, count in tables.items()]


if __name__ == "__main__":
    import asyncio

    print(asyncio.run(analyze(sys.argv[1], sys.argv[2])))  # noqa: T201 (the output of the script)
