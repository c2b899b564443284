"""Starts and continues runs that send rows while their manifest is still being read and checked (`--stream`)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

from lightmeter.api.run_result import Run
from lightmeter.api.run_steps import StartArguments, merged_options, settle_former_run, stream_folder
from lightmeter.errors import ManifestError, UsageError
from lightmeter.journal.commands.submissions import get_meta
from lightmeter.journal.store import open_read_only
from lightmeter.manifest.readers import ManifestSource, location_of, rereadable
from lightmeter.options import Options
from lightmeter.planning.build import plan_without_rows, stream_plan
from lightmeter.planning.plan import Plan
from lightmeter.planning.price_sources import costs_nothing
from lightmeter.planning.progress import Progress
from lightmeter.run_session.session import find_run_of_manifest, has_unsettled_former_run, prepare_run_journal
from lightmeter.settings import Settings


def check_streamable(options: Options, source: ManifestSource | None, settings: Settings) -> None:
    """Raise UsageError if a run must not send rows, and spend credits, while its manifest is being read.

    Args:
        options: The options of the run.
        source: The manifest; None if it is not known, and then not checked.
        settings: The user's settings.

    Raises:
        UsageError: there is no budget, an option needs the whole manifest, or the manifest can be read only once.
    """
    if options.budget is None and not costs_nothing(options, settings):
        raise UsageError("--stream spends before the whole price is known: give it a hard cap with --budget CREDITS.")
    if options.sample != "order":
        raise UsageError(
            f"--sample {options.sample} chooses among all rows of the manifest, but --stream sends the first ones "
            "before the others are read: leave out one of the two."
        )
    if options.screen:
        raise UsageError(
            "--screen looks at all rows before the first one is paid for, but --stream pays while rows are read: "
            "leave out one of the two."
        )
    if "odd_size" in options.skip:
        raise UsageError(
            "--skip odd_size compares a picture with all others, but --stream pays while rows are read: "
            "leave out one of the two."
        )
    location = None if source is None else location_of(source)
    if location is not None and location.is_stdin:
        raise UsageError(
            "--stream reads the manifest again after a stop, which standard input does not allow: save it to a file."
        )


async def stream_manifest(
    source: ManifestSource,
    folder: Path,
    options: Options,
    arguments: StartArguments,
    stop: asyncio.Event | None,
    settings: Settings,
) -> AsyncGenerator[Progress | Run]:
    """Run a manifest: send its first rows while later ones are read. Yield progress, and at the end the run.

    If the folder already holds this run, it continues. A request is in doubt if it was sent, but its charge is unknown.
    If an earlier run in the folder has requests in doubt about rows that are not read yet, the whole manifest is
    planned before rows are sent.

    Args:
        source: The manifest.
        folder: The output folder.
        options: The options of the run, with a budget.
        arguments: Arguments that hold only for this start of the run, and are not stored.
        stop: An event that stops the run early, as for `lightmeter.api.run_steps.stream_folder`.
        settings: The user's settings.

    Raises:
        UsageError: the run must not send rows while its manifest is read (see `check_streamable`), or its cost has no
            bound and the user did not consent (`--yes`).
        ManifestError: the manifest cannot be opened, or it lacks a column that the options name. An error in a later
            row does not raise this, but ends the run.
    """
    check_streamable(options, source, settings)
    source = await rereadable(source)
    header = await asyncio.to_thread(find_run_of_manifest, folder, source, options)
    if header is None:
        plan = await plan_without_rows(source, options, settings)
        if not arguments.consent:
            plan.must_not_need_consent()
        settling = settle_former_run(plan, folder, stop, settings, accept_journal=arguments.accept_journal)
        async with aclosing(settling):
            async for progress in settling:
                yield progress
        if await asyncio.to_thread(has_unsettled_former_run, folder, plan):
            async with aclosing(stream_plan(source, options, settings, require_service=True)) as steps:
                async for step in steps:
                    if isinstance(step, Plan):
                        plan = step
                    else:
                        yield step
        header, options = await asyncio.to_thread(prepare_run_journal, plan, folder, settings), plan.options
    options = merged_options(folder, header, options)
    arguments = replace(arguments, is_planning=header.planning_open, source=source, run_id=header.run_id)
    async with aclosing(stream_folder(folder, options, arguments, stop, settings)) as steps:
        async for run_step in steps:
            yield run_step


async def continue_streaming_run(
    folder: Path, options: Options, arguments: StartArguments, stop: asyncio.Event | None, settings: Settings
) -> AsyncGenerator[Progress | Run]:
    """Continue a run that stopped before its manifest was read to the end; yield progress, and at the end the run.

    If the manifest has changed, a run of the new manifest begins. It does not pay again for rows that are already paid.

    Args:
        folder: The output folder.
        options: The options of the run.
        arguments: Arguments that hold only for this start of the run, and are not stored.
        stop: An event that stops the run early, as for `lightmeter.api.run_steps.stream_folder`.
        settings: The user's settings.

    Raises:
        UsageError: `options` has no budget.
    """
    with open_read_only(folder) as db:
        source = get_meta(db).get("manifest_path")
    check_streamable(options, source, settings)
    try:
        is_same = source is None or await asyncio.to_thread(find_run_of_manifest, folder, source, options) is not None
    except ManifestError:  # it is reported after the answers of open requests are collected
        is_same = True
    if source is None or is_same:
        steps = stream_folder(folder, options, replace(arguments, is_planning=True, source=source), stop, settings)
    else:
        steps = stream_manifest(source, folder, options, replace(arguments, consent=True), stop, settings)
    async with aclosing(steps):
        async for step in steps:
            yield step
