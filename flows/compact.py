"""Prefect flow that merges the files of each table in an output folder, and can copy the tables. Sends nothing.

A run adds files to its tables each time it writes new rows; readers are faster with one file. Programs may read the
tables meanwhile.

Run it without a server: `python flows/compact.py out/`. Deploy it: `prefect deploy --all`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Annotated, Any

# Prefect reads these when it is imported; flows/analyze.py says why.
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "120")

from prefect import flow, get_run_logger
from prefect.client.schemas import State
from prefect.exceptions import FailedRun
from pydantic import Field

from lightmeter.api.run_result import must_have_tables
from lightmeter.errors import LightmeterError
from lightmeter.paths import local_path
from lightmeter.prefect_integration.events import emit_event
from lightmeter.prefect_integration.flow_results import failed_state, write_table
from lightmeter.prefect_integration.storage import load_storage
from lightmeter.tables.compaction import compact as merge_files
from lightmeter.tables.dataset import Dataset


@flow(name="compact", flow_run_name="compact {out}")
async def compact(
    out: Annotated[str, Field(min_length=1)],
    storage: str | None = None,
) -> dict[str, Any] | State[Any]:
    """Merge the Parquet files of each table into one; no row changes.

    Args:
        out: The output folder of a run.
        storage: Name of the Lightmeter Table Storage block to which the tables are copied;
            empty copies them nowhere.

    Returns:
        A dict with the numbers of tables (`tables`), of their files before and after (`files_before`, `files_after`),
        and of rows of the table `assets` (`rows`); or a failed state.
    """
    folder = local_path(out)
    try:
        place = await load_storage(storage)
        await asyncio.to_thread(must_have_tables, folder)
        merged = [table for table in await asyncio.to_thread(merge_files, Dataset(folder)) if table.parts_before]
        copied = await asyncio.to_thread(place.publish, folder) if place else []
    except LightmeterError as error:
        return failed_state(error)
    counts = {
        "tables": len(merged),
        "files_before": sum(table.parts_before for table in merged),
        "files_after": sum(table.parts_after for table in merged),
        "rows": next((table.rows for table in merged if table.table == "assets"), 0),
    }
    log = get_run_logger()
    log.info(
        "%s: %s files of %s tables merged into %s",
        out,
        *(counts[key] for key in ("files_before", "tables", "files_after")),
    )
    if place:
        log.info("%s: %s tables copied to %s", out, len(copied), place.location)
    emit_event("lightmeter.run.compacted", out, **counts)
    rows = [{"table": one.table, "rows": one.rows, "files before": one.parts_before} for one in merged]
    await write_table("compact", rows, f"{out} → {place.location}" if place else out)
    return counts


if __name__ == "__main__":
    try:
        asyncio.run(compact(*sys.argv[1:]))
    except (LightmeterError, FailedRun) as problem:
        sys.exit(f"error: {problem}")
