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
    """Run a plan as `lightmeter.run` does; yield its `Progress` several times a second, and the `Run` at the end.

    Leaving the loop with `break` stops the run: no more requests are sent, but answers to requests in flight are kept.

    Example:
        >>> async for step in lm.watch(plan, "out/"):  # doctest: +SKIP
        ...     print(step)

    Args:
        plan: The result of `plan` or `load_plan`.
        out: The output folder.
        consent: Whether to allow what `Plan.needs_consent` lists.
        accept_journal: Whether to continue a journal in `out` that is a copy or a restored backup.

    Raises:
        UsageError: consent is needed, or an option differs that the run in the folder must keep.
        JournalConflict: the journal in the folder is an older state of its run, or a copy.
        AccessDenied: the service does not accept the key; nothing was sent.
        Unreachable: the service does not answer; nothing was sent.
    """
    return stream_run(plan, output_folder(out), consent=consent, accept_journal=accept_journal)
