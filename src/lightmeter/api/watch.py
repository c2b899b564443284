"""`lightmeter.watch`: runs a plan and yields its progress, so that the caller can show it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

from lightmeter.api.run_result import Run, output_folder
from lightmeter.api.runs import stream_run
from lightmeter.planning.plan import Plan
from lightmeter.planning.progress import Progress


def watch(
    plan: Plan, out: Path | str, *, consent: bool = False, accept_journal: bool = False
) -> AsyncGenerator[Progress | Run]:
    """Run a plan and yield its progress as `lightmeter.watch` does, which describes the arguments and errors."""
    return stream_run(plan, output_folder(out), consent=consent, accept_journal=accept_journal)
