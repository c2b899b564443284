"""Prefect flow that fetches answers before the service deletes them after 24 hours. Sends no request that costs.

A run that was killed leaves accepted requests at the service, which were paid for. The next run fetches their answers,
but may start too late; this flow runs every few hours.

Run it without a server: `python flows/collect.py out/*`. Deploy it: `prefect deploy --all`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import asdict
from glob import glob
from typing import Annotated, Any

# Prefect reads these when it is imported; flows/analyze.py says why.
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "120")

from prefect import flow, get_run_logger
from prefect.client.schemas import State
from prefect.exceptions import FailedRun
from prefect.runtime import flow_run
from prefect.states import Completed, Failed
from pydantic import Field

from lightmeter.api.collect_answers import collect as fetch_answers
from lightmeter.errors import JournalLocked, LightmeterError
from lightmeter.manifest.byte_sources import Location
from lightmeter.prefect_integration.credentials import load_settings
from lightmeter.prefect_integration.events import emit_event
from lightmeter.prefect_integration.flow_results import error_text, failed_state, write_table
from lightmeter.settings import Settings


def _flow_name() -> str:
    folders = flow_run.parameters["folders"]
    others = f" and {len(folders) - 1} more" if len(folders) > 1 else ""
    return f"collect {folders[0]}{others}"


@flow(name="collect", flow_run_name=_flow_name)
async def collect(
    folders: Annotated[list[str], Field(min_length=1)],
    wait_minutes: Annotated[int, Field(ge=1, le=1440)] = 60,
    credentials: str | None = None,
) -> list[dict[str, Any]] | State[Any]:
    """Fetch the answers that wait at the service; the state is called `AnswersWaiting` if some are not ready yet.

    Nothing is fetched for a folder that a run uses, because that run fetches its answers itself.

    Args:
        folders: Output folders of runs; in a glob, folders without a run are left out.
        wait_minutes: Most minutes to wait for answers that are not ready.
        credentials: Name of the Lightmeter Credentials block; empty means the key in the worker's environment.

    Returns:
        A dict for each folder, or a failed state. Its keys are `folder`, the numbers of requests `answered`, `lost` and
        `waiting` (all 0 if a run uses the folder), and `error`, a text that is empty if nothing failed.
    """
    try:
        settings = await load_settings(credentials)
    except LightmeterError as error:
        return failed_state(error)
    found = [await _collect_folder(folder, wait_minutes, settings) for folder in _expand(folders)]
    await write_table("collect", found, ", ".join(folders))
    if failed := [one for one in found if one["error"]]:
        return Failed(message=" ".join(f"{one['folder']}: {one['error']}" for one in failed))
    if waiting := sum(one["waiting"] for one in found):
        return Completed(name="AnswersWaiting", message=f"{waiting} requests are not answered yet.", data=found)
    return found


def _expand(folders: list[str]) -> list[str]:
    """Return the folders; each glob, such as `out/*`, is replaced by the matching folders that hold a run."""
    paths = [Location(one).absolute for one in folders]
    globbed = (sorted(glob(f"{one}/journal.sqlite")) if "*" in one else [f"{one}/"] for one in paths)  # noqa: PTH207
    return [path.rpartition("/")[0] for paths in globbed for path in paths]


async def _collect_folder(folder: str, wait_minutes: int, settings: Settings) -> dict[str, Any]:
    """Fetch the answers that wait for the run in `folder`; return the dict that `collect` describes."""
    log, counts, problem = get_run_logger(), {"answered": 0, "lost": 0, "waiting": 0}, ""
    try:
        counts = asdict(await fetch_answers(folder, wait_s=60 * wait_minutes, settings=settings))
    except JournalLocked:
        log.info("%s: a run uses the folder, and fetches its answers itself", folder)
    except LightmeterError as error:
        problem = error_text(error)
        log.error("%s: %s", folder, problem)  # noqa: TRY400 (the text says what to do; no traceback)
    else:
        log.info("%s: %s answers fetched, %s lost, %s still wait", folder, *counts.values())
        if any(counts.values()):
            emit_event("lightmeter.run.collected", folder, **counts)
    return {"folder": folder, **counts, "error": problem}


if __name__ == "__main__":
    try:
        asyncio.run(collect(sys.argv[1:]))
    except (LightmeterError, FailedRun) as problem:
        sys.exit(f"error: {problem}")
