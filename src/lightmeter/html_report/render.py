"""Writes `report.html` into the folder of a run, atomically."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from lightmeter import atomic
from lightmeter.api.run_result import Run
from lightmeter.clock import Clock, SystemClock
from lightmeter.errors import TablesError
from lightmeter.html_report.load import load_report_data
from lightmeter.html_report.page import render_page

FILE_NAME: Final = "report.html"


async def report(
    run: Run | Path | str,
    *,
    by: str | None = None,
    fetch_thumbnails: bool = False,
    thumbnails: int = 24,
    clock: Clock | None = None,
) -> Path:
    """Write one self-contained HTML page about a run into its folder. Sends nothing to the service.

    The run may still be in progress.

    Args:
        run: The run, or its folder.
        by: Column of the table `assets` that groups palettes and costs; None groups by `kind`.
        fetch_thumbnails: Whether to download pictures that are not on this machine.
        thumbnails: Maximum number of pictures in the gallery, and in the review list.
        clock: Source of the time that the page states.

    Returns:
        The path of the page.

    Raises:
        JournalError: The folder holds no run.
        UsageError: `by` is not a column of `assets`, or has too many values to show.
        TablesError: A table is damaged, or the page cannot be written.
    """
    out = run.folder if isinstance(run, Run) else Path(run)
    data = await load_report_data(
        out, by, fetch_thumbnails=fetch_thumbnails, thumbnails=thumbnails, clock=clock or SystemClock()
    )
    target = out / FILE_NAME
    try:
        await asyncio.to_thread(lambda: atomic.write_text(target, render_page(data)))
    except OSError as error:
        raise TablesError(
            f"{target} cannot be written: {error.strerror or error}.",
            hint="Free some disk space, or make the folder writable.",
        ) from error
    return target
