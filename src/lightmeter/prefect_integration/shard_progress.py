"""Starts Prefect task runs that show the progress of the process that sends rows. Each stands for a range of rows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count
from typing import Any, Final

from prefect import task
from prefect.artifacts import acreate_progress_artifact, aupdate_progress_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas import State
from prefect.states import Failed

from lightmeter.api.sending_process import SendingProcess
from lightmeter.prefect_integration.flow_results import write_artifact

STOPPED: Final = "Stopped"
"""Name of the failed state of a task run if its rows are not all done, for example because the budget is used up."""

_AT_ONCE: Final = 4
"""Number of task runs that wait at the same time: enough to hide the 50 ms or so that Prefect takes for each."""

_PAUSE_S: Final = 4.0
"""Seconds that each of the `_AT_ONCE` coroutines waits between two task runs, or less if the sending process ends.

Without this pause, many shards would keep Prefect busy.
"""

_PROGRESS_INTERVAL_S: Final = 2.0
"""Minimum seconds between two updates of the progress on Prefect's web page. Each update takes some 20 ms."""


@task(cache_policy=NO_CACHE, retries=0, task_run_name="rows {first} to {last}")
async def wait_for_rows(sender: SendingProcess, first: int, last: int) -> State[None] | None:
    """Wait until the rows `first` to `last` are done. Return None then, or a failed state if the process ends before.

    Args:
        sender: The process that sends the rows.
        first: Index (from 0) of the first row, in the order in which rows are sent.
        last: Index of the last row (included) in that order.
    """
    if await sender.wait_until_finished(first, last):
        return None
    return Failed(name=STOPPED, message="The run ended before all these rows were done; the flow run says why.")


async def follow_shards(sender: SendingProcess, name: str) -> None:
    """Show the progress of a sending process in Prefect: task runs for its shards, and a progress artifact.

    A shard is a range of `sender.shard_rows` rows. Each shard has a task run; a few of them run at a time. If shards
    are done faster than Prefect can start task runs, one task run stands for several finished shards.

    Args:
        sender: The process that sends the rows.
        name: Name of the manifest, shown with the progress artifact.
    """
    showing = asyncio.create_task(_show_progress(sender, name))
    shards = count(step=sender.shard_rows)
    try:
        await asyncio.gather(*(_follow(sender, shards) for _ in range(_AT_ONCE)))
        await showing
    finally:
        showing.cancel()


async def _follow(sender: SendingProcess, shards: Iterator[int]) -> None:
    each = sender.shard_rows
    for first in shards:
        if not await sender.wait_until_known(first):
            return
        last = min(first + each, sender.rows) - 1
        if first >= _AT_ONCE * each:  # after the first few, one task run stands for all shards that are done already
            while last < sender.rows - 1 and (sender.ended or sender.is_finished(last, last)):
                last = min(next(shards) + each, sender.rows) - 1
        waiting = asyncio.create_task(sender.wait_until_ended())
        await _wait(sender, first, last)
        await asyncio.wait({waiting}, timeout=_PAUSE_S)
        waiting.cancel()


async def _wait(sender: SendingProcess, first: int, last: int) -> State[Any]:
    return await wait_for_rows(sender, first, last, return_state=True)  # type: ignore[no-any-return, misc]  # (typed as no awaitable)


async def _show_progress(sender: SendingProcess, name: str) -> None:
    """Show the progress of the process `sender` in a Prefect artifact until it ends.

    `name` is the name of the manifest.
    """
    artifact = await write_artifact(
        acreate_progress_artifact(progress=0.0, key="analyze-progress", description=f"Rows of {name}")
    )
    while artifact is not None:
        ended = sender.ended
        await write_artifact(aupdate_progress_artifact(artifact, progress=100.0 * sender.share_done))
        if ended:
            return
        waiting = asyncio.create_task(sender.wait_until_ended())
        await asyncio.wait({waiting}, timeout=_PROGRESS_INTERVAL_S)
        waiting.cancel()
