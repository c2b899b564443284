"""`plan`, `run` and `resume` as coroutines, `open`, and generators of the same work that also yield progress."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Mapping
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack, overload

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
from lightmeter.option_arguments import PlanArguments, ResumeArguments, RunArguments
from lightmeter.options import Options, ScaleOutOptions, make_options, parse_options
from lightmeter.planning.build import refresh_service_info, stream_plan
from lightmeter.planning.consent import must_be_explicit
from lightmeter.planning.plan import Plan
from lightmeter.planning.progress import Progress
from lightmeter.run_session.session import (
    changed_options,
    find_run_of_plan,
    must_be_run,
    prepare_folder,
    prepare_run_journal,
)
from lightmeter.scale_out.check_manifest import LOCAL, split_scale_out, stream_shard_checks
from lightmeter.settings import Settings, read_settings
from lightmeter.tables.remote.uris import is_uri


def plan(
    source: ManifestSource, *, progress: bool | None = None, **options: Unpack[PlanArguments]
) -> Coroutine[Any, Any, Plan]:
    """Plan a manifest as `lightmeter.plan` does, which describes the arguments and errors."""
    return last_step(plan_steps(source, options), show=progress)


def plan_steps(source: ManifestSource, arguments: Mapping[str, Any]) -> AsyncGenerator[Progress | Plan]:
    """Return a generator that plans `source`, with the keyword arguments of `lightmeter.plan`."""
    scale_out, values = split_scale_out(arguments)
    source = location_of(source) or source
    return stream_screened_plan(source, make_options(**values), read_settings(), scale_out=scale_out)


async def stream_screened_plan(
    source: ManifestSource,
    options: Options,
    settings: Settings,
    *,
    out: Path | None = None,
    require_service: bool = False,
    scale_out: ScaleOutOptions = LOCAL,
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
    screen: Screen, plan: Plan, out: Path | None, scale_out: ScaleOutOptions
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
    source: Plan,
    out: Path | str,
    *,
    consent: bool = False,
    accept_journal: bool = False,
    progress: bool | None = None,
) -> Coroutine[Any, Any, Run]: ...
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
) -> Coroutine[Any, Any, Run]: ...
def run(
    source: Plan | ManifestSource,
    out: Path | str,
    *,
    stream: bool = False,
    consent: bool = False,
    accept_journal: bool = False,
    progress: bool | None = None,
    **options: Unpack[RunArguments],
) -> Coroutine[Any, Any, Run]:
    """Run a plan or a manifest as `lightmeter.run` does, which describes the arguments and errors."""
    arguments = StartArguments(accept_journal=accept_journal, consent=consent)
    return last_step(run_steps(source, out, arguments, options, stream=stream), show=progress)


def run_steps(
    source: Plan | ManifestSource,
    out: Path | str,
    arguments: StartArguments,
    options: Mapping[str, Any],
    *,
    stream: bool,
) -> AsyncGenerator[Progress | Run]:
    """Return a generator that runs `source` as `lightmeter.run` does.

    Args:
        source: A plan, or a manifest, which is planned first.
        out: The output folder.
        arguments: Arguments that hold only for this start and are not stored.
        options: The options of the run; none with a plan.
        stream: Whether to send rows while the manifest is still being read.

    Raises:
        UsageError: options or `stream` are given with a plan, which holds all options.
    """
    folder = output_folder(out)
    if isinstance(source, Plan):
        if stream or options:
            raise UsageError("A plan holds all options and has been read to its end: give no others beside it.")
        return stream_run(source, folder, consent=arguments.consent, accept_journal=arguments.accept_journal)
    chosen, settings, source = make_options(**options), read_settings(), location_of(source) or source
    if stream:
        return stream_manifest(source, folder, chosen, arguments, None, settings)
    return _plan_and_run(source, folder, chosen, arguments, settings)


async def _plan_and_run(
    source: ManifestSource, folder: Path, options: Options, arguments: StartArguments, settings: Settings
) -> AsyncGenerator[Progress | Run]:
    """Plan a manifest and run the plan; raise UsageError if it may cost credits and has neither budget nor consent."""
    if not arguments.consent:
        must_be_explicit(options, settings)
    prepare_folder(folder, options.table_format)
    planning = stream_screened_plan(source, options, settings, out=folder, require_service=True)
    async with aclosing(planning) as steps:
        async for step in steps:
            if isinstance(step, Progress):
                yield step
            else:
                planned = step
    if planned.credits.high != 0 and options.budget is None and not arguments.consent:
        raise UsageError(
            f"This run may cost {planned.credits}. Nothing was spent.",
            hint="Give a hard cap, budget=CREDITS; or look at the plan first: lm.run(lm.plan(…), out=…).",
        )
    running = stream_run(planned, folder, consent=arguments.consent, accept_journal=arguments.accept_journal)
    async with aclosing(running) as steps_of_run:
        async for progress in steps_of_run:
            yield progress


def resume(
    out: Path | str,
    *,
    pay_again: int = 0,
    accept_journal: bool = False,
    progress: bool | None = None,
    **changes: Unpack[ResumeArguments],
) -> Coroutine[Any, Any, Run]:
    """Continue a run as `lightmeter.resume` does, which describes the arguments and errors."""
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
    **changes: Unpack[ResumeArguments],
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
