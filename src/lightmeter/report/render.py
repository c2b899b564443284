"""Makes `report.html` of a run: gathers, draws, writes it whole or not at all."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from lightmeter import atomic
from lightmeter.api.run_result import Run
from lightmeter.clock import Clock, SystemClock
from lightmeter.errors import TablesError
from lightmeter.report.load import ReportOptions, load_report_data
from lightmeter.report.page import render_page

__all__ = ["FILE_NAME", "report"]

FILE_NAME: Final = "report.html"


async def report(
    run: Run | Path | str,
    *,
    by: str | None = None,
    fetch_thumbnails: bool = False,
    thumbnails: int = 24,
    clock: Clock | None = None,
) -> Path:
    """Write one self-contained HTML page about a run into its folder; also while it runs. Sends nothing to the service.

    Args:
        run: The run, or its folder.
        by: Column of `assets`, such as one of the manifest's own, that groups palettes and costs; None: the kind.
        fetch_thumbnails: Whether pictures that are not on this machine are fetched from their addresses.
        thumbnails: Most pictures in the gallery, and most in the review list.
        clock: Tells when the page was made.

    Returns:
        Where it is.

    Raises:
        JournalError: there is no run there.
        UsageError: `by` is no column of `assets`, or has too many values to be shown.
        TablesError: a table is broken, or the page cannot be written.
    """
    out = run.folder if isinstance(run, Run) else Path(run)
    wishes = ReportOptions(by=by, fetch_thumbnails=fetch_thumbnails, thumbnails=thumbnails)
    facts = await load_report_data(out, wishes, clock or SystemClock())
    target = out / FILE_NAME
    try:
        await asyncio.to_thread(lambda: atomic.write_text(target, render_page(facts)))
    except OSError as error:
        raise TablesError(
            f"{target} cannot be written: {error.strerror or error}.", hint="Make room, or make the folder writable."
        ) from error
    return target
