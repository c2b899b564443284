"""The Python functions `plan`, `run`, `resume` and `open`, and variants of them that also yield progress."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Unpack, overload

from lightmeter.api.progress_display import last_step
from lightmeter.api.run_result import Run, Tables, output_folder
from lightmeter.api.run_steps import (
    StartArguments,
    merged_options,
    prepare_new_run,
    settle_former_run,
    stream_folder,
)
from lightmeter.api.screen_shards import stream_screen_shards
from lightmeter.api.screening import Screen, make_screen, screen_folder
from lightmeter.api.streaming_run import continue_streaming_run, stream_manifest
from lightmeter.engine.engine import ALL_ROWS, PlaceRange
from lightmeter.errors import UsageError
from lightmeter.journal.header import read_run_header
from lightmeter.manifest.readers import ManifestSource, location_of, rereadable
from lightmeter.option_arguments import PlanArguments, PlanOptions, ResumeOptions
from lightmeter.options import Options, make_options, parse_options
from lightmeter.planning.build import refresh_service_info, stream_plan
from lightmeter.planning.plan import Plan
from lightmeter.planning.progress import Progress
from lightmeter.run_session.session import (
    changed_options,
    find_run_of_plan,
    must_be_run,
    prepare_run_journal,
)
from lightmeter.scale_out.check_manifest import LOCAL, ScaleOut, split_scale_out, stream_shard_checks
from lightmeter.settings import Settings, read_settings
from lightmeter.tables.remote.uris import is_uri


def plan(
    source: ManifestSource, *, progress: bool | None = None, **options: Unpack[PlanArguments]
) -> Coroutine[Any, Any, Plan]:
    """Read a manifest, check its rows, and estimate what a run costs. Spends nothing.

    Args:
        source: A path or `s3://` URI of a manifest; a folder or a glob of media or Parquet files; a DataFrame; a list,
            a Series or another iterable of URLs, `Path`s or dicts.
        progress: Whether to show the progress; None shows it in a Jupyter notebook and on a terminal.
        options: The options of the run: see `lightmeter.option_arguments.PlanOptions`. With `executor="dask"` or "ray",
            workers of a cluster check and screen the rows: see `ScaleOutOptions` there.

    Raises:
        ManifestError: the manifest cannot be read at all.
        SettingsError: an option is wrong (the message names it), or the service does not offer a wanted back end.
        AccessDenied: the service does not accept the key. A missing key is only a note in the plan.
        WorkersLost: several worker processes died during the same shard, or Dask's scheduler was lost.
    """
    scale_out, values = split_scale_out(options)
    source = location_of(source) or source
    steps = stream_screened_plan(source, make_options(**values), read_settings(), scale_out=scale_out)
    return last_step(steps, show=progress)


async def stream_screened_plan(
    source: ManifestSource,
    options: Options,
    settings: Settings,
    *,
    out: Path | None = None,
    require_service: bool = False,
    scale_out: ScaleOut = LOCAL,
) -> AsyncGenerator[Progress | Plan]:
    """Build a plan as `plan` does: yield progress, and at the end the plan. Spends nothing.

    With the option `screen`, local back ends first analyze all rows for free. This separate run on the embedded service
    is called the screen. If the process is killed, the next call continues the screen.

    Args:
        source: The manifest.
        options: The options of the run.
        settings: The user's settings.
        out: The output folder of the run; the screen is then in its subfolder `screen`. None puts the screen into the
            cache folder.
        require_service: Whether to raise an error if the key is missing or the service cannot be reached.
        scale_out: Where rows are checked and screened: in this process, or by the workers of a cluster.

    Raises:
        SettingsError: a back end of the screen is unknown or not local, or the screen's rule is wrong; nothing was
            read.
        Interrupted: the user stopped the screen.
    """
    screen, checker = await asyncio.to_thread(make_screen, options, settings), None
    if scale_out.executor != "local" and options.precheck:
        source = await rereadable(source)
        async with aclosing(stream_shard_checks(source, options, settings, scale_out)) as shards:
            async for result in shards:
                if isinstance(result, Progress):
                    yield result
                else:
                    checker = result
    planning = stream_plan(source, options, settings, require_service=require_service, checker=checker)
    async with aclosing(planning) as steps:
        async for step in steps:
            if checker is not None and isinstance(step, Plan):
                await asyncio.to_thread(checker.remove)
            if isinstance(step, Progress) or screen is None:
                yield step
                continue
            async with aclosing(_stream_screen(screen, step, out, scale_out)) as screening:
                async for progress in screening:
                    yield progress


async def _stream_screen(
    screen: Screen, plan: Plan, out: Path | None, scale_out: ScaleOut
) -> AsyncGenerator[Progress | Plan]:
    """Let local back ends analyze a plan's rows for free; yield progress, then the plan without the rejected rows.

    Args:
        screen: The options of the free run, and the rule that rejects rows.
        plan: The plan.
        out: The output folder of the paid run; None if it is not known yet.
        scale_out: Where rows are analyzed: in this process, or by the workers of a cluster.
    """
    folder = await asyncio.to_thread(screen_folder, screen.settings, plan, screen.options, out)
    if plan.counts["pending"]:
        rows = await asyncio.to_thread(screen.plan_rows, plan)
        if scale_out.executor != "local":
            await prepare_new_run(rows, folder, screen.settings)
            async with aclosing(stream_screen_shards(rows, folder, screen.settings, scale_out)) as shards:
                async for progress in shards:
                    yield progress
        async with aclosing(stream_run(rows, folder, settings=screen.settings)) as steps:
            async for step in steps:
                if isinstance(step, Progress):
                    yield replace(step, phase="screening", notes=())
                elif step.stopped_by is not None:
                    raise step.stopped_by
    yield await asyncio.to_thread(screen.apply, plan, folder)


@overload
def run(
    plan: Plan,
    out: Path | str,
    *,
    consent: bool = False,
    accept_journal: bool = False,
    progress: bool | None = None,
) -> Coroutine[Any, Any, Run]: ...
@overload
def run(
    plan: ManifestSource,
    out: Path | str,
    *,
    stream: Literal[True],
    consent: bool = False,
    accept_journal: bool = False,
    progress: bool | None = None,
    **options: Unpack[PlanOptions],
) -> Coroutine[Any, Any, Run]: ...
def run(
    plan: Plan | ManifestSource,
    out: Path | str,
    *,
    consent: bool = False,
    accept_journal: bool = False,
    stream: bool = False,
    progress: bool | None = None,
    **options: Unpack[PlanOptions],
) -> Coroutine[Any, Any, Run]:
    """Run a plan and write the tables. If `out` already holds this run, continue it.

    If `out` holds a run of another version of the manifest, pay only for new and changed rows. With `stream`, send the
    first rows of a manifest while the later ones are still read and checked; this needs the option `budget`.

    Args:
        plan: The result of `plan` or `load_plan`; with `stream`, a manifest, in any form that `plan` accepts.
        out: The output folder.
        consent: Whether to allow what `Plan.needs_consent` lists: a run that names no back end, or has no frame limit,
            on a service other than the embedded one.
        accept_journal: Whether to continue a journal in `out` that is a copy or a restored backup: see `resume`.
        stream: Whether to send rows, and spend credits, while the manifest is still being read.
        progress: Whether to show the progress; None shows it in a Jupyter notebook and on a terminal.
        options: The options of the run, allowed only with `stream`: see `lightmeter.option_arguments.PlanOptions`.

    Returns:
        The run. If the budget or a lack of credits stopped it, its `stopped_by` is the error that says so.

    Raises:
        UsageError: consent is needed; or an option differs that the run in the folder must keep; or `stream` is given
            with a plan, without a budget, or with an option that needs the whole manifest.
        JournalConflict: the journal in the folder is an older state of its run, or a copy.
        AccessDenied: the service does not accept the key; nothing was sent.
        Unreachable: the service does not answer; nothing was sent.
    """
    if stream:
        if isinstance(plan, Plan):
            raise UsageError("A plan has been read to its end, so stream=True has no use: pass the manifest instead.")
        arguments = StartArguments(accept_journal=accept_journal, consent=consent)
        source, folder = location_of(plan) or plan, output_folder(out)
        steps = stream_manifest(source, folder, make_options(**options), arguments, None, read_settings())
        return last_step(steps, show=progress)
    if not isinstance(plan, Plan) or options:
        raise UsageError(
            "A run takes a plan, which holds all options.", hint="Plan the manifest first, or use stream=True."
        )
    steps = stream_run(plan, output_folder(out), consent=consent, accept_journal=accept_journal)
    return last_step(steps, show=progress)


def resume(
    out: Path | str,
    *,
    pay_again: int = 0,
    accept_journal: bool = False,
    progress: bool | None = None,
    **changes: Unpack[ResumeOptions],
) -> Coroutine[Any, Any, Run]:
    """Continue a run after a stop, a crash or a raised budget.

    Args:
        out: The output folder of the run.
        pay_again: Maximum credits for repeating requests whose answer was lost. They may be charged twice.
        accept_journal: Whether to continue a journal that is a copy or was restored from a backup. The run then gets a
            new run id, and pays again for answers that this journal lacks.
        progress: Whether to show the progress; None shows it in a Jupyter notebook and on a terminal.
        changes: Options to change, such as `budget`: see `lightmeter.option_arguments.ResumeOptions`.

    Raises:
        JournalConflict: the journal is a copy or an older state of its run, and `accept_journal` is false.
        JournalError: the folder holds no run, or another process is running it.
        SettingsError: an option is wrong, or must stay the same between two starts of a run.
    """
    steps = stream_resume(output_folder(out), pay_again=pay_again, accept_journal=accept_journal, **changes)
    return last_step(steps, show=progress)


@overload
def open(folder: Path) -> Run: ...  # noqa: A001 (the public name is lightmeter.open)
@overload
def open(folder: str) -> Run: ...  # noqa: A001 (likewise; a URI gives `Tables`, which no type can tell from a path)
def open(folder: Path | str) -> Run | Tables:  # noqa: A001 (likewise)
    """Open the run in an output folder, or the tables at a URI.

    Args:
        folder: An output folder; or a URI such as `s3://bucket/prefix` to which `lightmeter rebuild --to` has written
            tables. For a URI, the result is `Tables`, which has no `summary` or `statement`.

    Raises:
        JournalError: the folder holds no run. Not raised for a URI.
    """
    return Tables(folder) if isinstance(folder, str) and is_uri(folder) else Run(output_folder(folder))


async def stream_run(
    plan: Plan,
    out: Path | str,
    *,
    consent: bool = False,
    accept_journal: bool = False,
    stop: asyncio.Event | None = None,
    settings: Settings | None = None,
) -> AsyncGenerator[Progress | Run]:
    """Run a plan as `run` does: yield progress, and at the end the run.

    To stop early, set `stop`, close the generator, leave its loop with `break`, or let `asyncio.run` end the event
    loop. After that, no more requests are sent, but the answers to the requests in flight are awaited and stored. After
    `stop`, the run is still yielded at the end; its `stopped_by` is `Interrupted` if rows are left.

    Args:
        plan: The plan.
        out: The output folder.
        consent: Whether to allow what `Plan.needs_consent` lists.
        accept_journal: Whether to continue a journal in `out` that is a copy or a restored backup.
        stop: An event: once it is set, the run stops early. None means that no event stops it.
        settings: The user's settings; None means those of the environment and the settings file.
    """
    settings = settings or read_settings()
    if not consent:
        plan.must_not_need_consent()
    folder = output_folder(out)
    if plan.base_url is not None and plan.balance is None and find_run_of_plan(folder, plan) is None:
        plan = await refresh_service_info(plan)
    async with aclosing(settle_former_run(plan, folder, stop, settings, accept_journal=accept_journal)) as settling:
        async for progress in settling:
            yield progress
    header = await asyncio.to_thread(prepare_run_journal, plan, folder, settings)
    options = merged_options(folder, header, plan.options)
    arguments = StartArguments(accept_journal=accept_journal, run_id=header.run_id)
    async with aclosing(stream_folder(folder, options, arguments, stop, settings)) as steps:
        async for step in steps:
            yield step


async def stream_resume(  # noqa: PLR0913 (each is an argument of a command)
    out: Path | str,
    *,
    stop: asyncio.Event | None = None,
    rows: PlaceRange = ALL_ROWS,
    tables: bool = True,
    pay_again: int = 0,
    accept_journal: bool = False,
    run_id: str | None = None,
    **changes: Unpack[ResumeOptions],
) -> AsyncGenerator[Progress | Run]:
    """Continue a run as `resume` does: yield progress, and at the end the run.

    Args:
        out: The output folder of the run.
        stop: An event that stops the run early, as for `stream_run`.
        rows: Indices (from 0) of the first and the last row to process, both included, in the order of sending.
        tables: Whether to write the tables at the end.
        pay_again: Maximum credits for repeating requests whose answer was lost. They may be charged twice.
        accept_journal: Whether to continue a journal that is a copy or a restored backup.
        run_id: Id of the run to continue; None means the run that the folder holds.
        changes: Options to change, such as `budget`.
    """
    folder = output_folder(out)
    header = read_run_header(folder)
    must_be_run(folder, header, run_id)
    options = header.options
    if changes:
        options = parse_options(**{**options.model_dump(), **changes})
        changed_options(folder, header, options)  # raises if an option changes that answers depend on
    arguments, settings = StartArguments(rows, pay_again, accept_journal, tables, header.run_id), read_settings()
    if header.planning_open and rows == ALL_ROWS:
        continued = continue_streaming_run(folder, options, arguments, stop, settings)
    else:
        continued = stream_folder(folder, options, arguments, stop, settings)
    async with aclosing(continued) as steps:
        async for step in steps:
            yield step
