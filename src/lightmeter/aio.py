"""The functions of `lightmeter` as coroutines: `await lightmeter.aio.run(plan, out="out/")`.

`lightmeter` itself has the same names as plain functions, whose docstrings describe the arguments and the errors.
"""

from __future__ import annotations

from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from lightmeter.api.check import check
from lightmeter.api.run_result import Run
from lightmeter.api.runs import plan, resume, run
from lightmeter.api.watch import watch
from lightmeter.client.client import Client
from lightmeter.extras import import_extra

__all__ = ["Client", "check", "plan", "report", "resume", "run", "watch"]


def report(
    run: Run | Path | str, *, by: str | None = None, fetch_thumbnails: bool = False, thumbnails: int = 24
) -> Coroutine[Any, Any, Path]:
    """Write the page of a run as `lightmeter.report` does, which describes the arguments and errors."""
    page = import_extra("lightmeter.html_report.page", "report", "lightmeter.report")
    writing: Coroutine[Any, Any, Path] = page.report(
        run, by=by, fetch_thumbnails=fetch_thumbnails, thumbnails=thumbnails
    )
    return writing
