"""The functions of `lightmeter` that return when the work is done; `lightmeter.aio` has the same as coroutines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Unpack, overload

from lightmeter import aio
from lightmeter.api.blocking import iterate, wait_for, wait_for_steps
from lightmeter.api.check import CheckReport, check_steps
from lightmeter.api.run_result import Run, output_folder
from lightmeter.api.run_steps import StartArguments
from lightmeter.api.runs import plan_steps, run_steps, stream_resume
from lightmeter.manifest.readers import ManifestSource
from lightmeter.option_arguments import CheckArguments, PlanArguments, ResumeArguments, RunArguments
from lightmeter.planning.plan import Plan
from lightmeter.planning.progress import Progress


def check(
    manifest: ManifestSource,
    out: Path | str | None = None,
    *,
    progress: bool | None = None,
    **options: Unpack[CheckArguments],
) -> CheckReport:
    """Read a manifest and check its rows. Needs no key and no service, and requests only the URLs of the manifest.

    A row that was checked without an error in the last three days is not checked again: its earlier results are used. A
    later `plan` of the manifest uses the results of this check in the same way.

    Args:
        manifest: Anything that `plan` accepts: a path or URI, a folder, a glob, a DataFrame, a list of URLs, …
        out: Folder for the tables `assets` and `prechecks`, which `open`, `report` and `lightmeter sql` read; None
            writes no tables.
        progress: Whether to show the progress; None shows it in a Jupyter notebook and on a terminal.
        options: How the manifest is read and checked: see `lightmeter.option_arguments.CheckArguments`. With
            `executor="dask"` or "ray", workers check shards of the rows.

    Raises:
        ManifestError: the manifest cannot be read at all.
        SettingsError: an option is wrong, or the folder already holds a run, or the folder cannot be written to.
        WorkersLost: several worker processes died during the same shard, or Dask's scheduler was lost.
    """
    return wait_for_steps(lambda: check_steps(manifest, out, options), show=progress)


def plan(source: ManifestSource, *, progress: bool | None = None, **options: Unpack[PlanArguments]) -> Plan:
    """Read a manifest, check its rows, and estimate what a run costs. Spends nothing.

    Args:
        source: A path or `s3://` URI of a manifest; a folder or a glob of media or Parquet files; a DataFrame; a list,
            a Series or another iterable of URLs, `Path`s or dicts.
        progress: Whether to show the progress; None shows it in a Jupyter notebook and on a terminal.
        options: The options of the run: see `lightmeter.option_arguments.PlanArguments`. With `executor="dask"` or
            "ray", workers of a cluster check and screen the rows.

    Raises:
        ManifestError: the manifest cannot be read at all.
        SettingsError: an option is wrong (the message names it), or the service does not offer a wanted back end.
        AccessDenied: the service does not accept the key. A missing key is only a note in the plan.
        WorkersLost: several worker processes died during the same shard, or Dask's scheduler was lost.
    """
    return wait_for_steps(lambda: plan_steps(source, options), show=progress)


@overload
def run(
    source: Plan,
    out: Path | str,
    *,
    consent: bool = False,
    accept_journal: bool = False,
    progress: bool | None = None,
) -> Run: ...
@overload
def run(
    source: ManifestSource,
    out: Path | str,
    *,
    stream: bool = False,
    consent: bool = False,
    accept_journal: bool = False,
    progress: bool | None = None,
    **options: Unpack[RunArguments],
) -> Run: ...
def run(
    source: Plan | ManifestSource,
    out: Path | str,
    *,
    stream: bool = False,
    consent: bool = False,
    accept_journal: bool = False,
    progress: bool | None = None,
    **options: Unpack[RunArguments],
) -> Run:
    """Run a plan, or plan a manifest and run it; write the tables. If `out` already holds this run, continue it.

    If `out` holds a run of another version of the manifest, pay only for new and changed rows. An interrupt (Ctrl-C, or
    the Stop button of a notebook) loses nothing: the answers to requests in flight are kept, and `resume` continues.

    Args:
        source: The result of `plan` or `load_plan`; or a manifest, in any form that `plan` accepts.
        out: The output folder.
        stream: Whether to send the first rows of a manifest while later ones are still read and checked; this needs the
            option `budget`.
        consent: Whether to allow what needs a decision: a manifest without a plan that may cost credits without a
            budget; and what `Plan.needs_consent` lists, such as a run that names no back end on a service other than
            the embedded one.
        accept_journal: Whether to continue a journal in `out` that is a copy or a restored backup: see `resume`.
        progress: Whether to show the progress; None shows it in a Jupyter notebook and on a terminal.
        options: The options of the run: see `lightmeter.option_arguments.RunArguments`. None with a plan, which holds
            all options.

    Returns:
        The run. If the budget or a lack of credits stopped it, its `stopped_by` is the error that says so.

    Raises:
        UsageError: consent or a budget is needed; or an option differs that the run in the folder must keep; or options
            are given with a plan; or `stream` with an option that needs the whole manifest.
        JournalConflict: the journal in the folder is an older state of its run, or a copy.
        AccessDenied: the service does not accept the key; nothing was sent.
        Unreachable: the service does not answer; nothing was sent.
    """
    arguments = StartArguments(accept_journal=accept_journal, consent=consent)
    return wait_for_steps(lambda: run_steps(source, out, arguments, options, stream=stream), show=progress)


def resume(
    out: Path | str,
    *,
    pay_again: int = 0,
    accept_journal: bool = False,
    progress: bool | None = None,
    **changes: Unpack[ResumeArguments],
) -> Run:
    """Continue a run after a stop, a crash or a raised budget.

    Args:
        out: The output folder of the run.
        pay_again: Maximum credits for repeating requests whose answer was lost. They may be charged twice.
        accept_journal: Whether to continue a journal that is a copy or was restored from a backup. The run then gets a
            new run id, and pays again for answers that this journal lacks.
        progress: Whether to show the progress; None shows it in a Jupyter notebook and on a terminal.
        changes: Options to change, such as `budget`: see `lightmeter.option_arguments.ResumeArguments`.

    Raises:
        JournalConflict: the journal is a copy or an older state of its run, and `accept_journal` is false.
        JournalError: the folder holds no run, or another process is running it.
        SettingsError: an option is wrong, or must stay the same between two starts of a run.
    """
    folder = output_folder(out)
    return wait_for_steps(
        lambda: stream_resume(folder, pay_again=pay_again, accept_journal=accept_journal, **changes), show=progress
    )


def watch(
    plan: Plan, out: Path | str, *, consent: bool = False, accept_journal: bool = False
) -> Iterator[Progress | Run]:
    """Run a plan as `run` does; yield its `Progress` several times a second, and the `Run` at the end.

    Leaving the loop with `break` stops the run: no more requests are sent, but answers to requests in flight are kept.

    Example:
        >>> for step in lm.watch(plan, "out/"):  # doctest: +SKIP
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
    return iterate(aio.watch(plan, out, consent=consent, accept_journal=accept_journal))


def report(
    run: Run | Path | str, *, by: str | None = None, fetch_thumbnails: bool = False, thumbnails: int = 24
) -> Path:
    """Write one self-contained HTML page about a run into the run's folder, and return the path of the page.

    The run may still be in progress. Nothing is sent to the service.

    Args:
        run: The run, or its folder.
        by: Column of the table `assets` that groups palettes and costs; None groups by `kind` (image or video).
        fetch_thumbnails: Whether to download pictures that are not on this machine.
        thumbnails: Maximum number of pictures in the sample of results, and also in the list of items that a person
            should review.

    Raises:
        JournalError: The folder holds no run.
        SettingsError: The extra `report` is not installed.
        UsageError: `by` is not a column of `assets`, or has too many values to show.
        TablesError: A table is damaged, or the page cannot be written.
    """
    return wait_for(aio.report(run, by=by, fetch_thumbnails=fetch_thumbnails, thumbnails=thumbnails))
