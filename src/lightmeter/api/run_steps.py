"""Steps of every run, new or continued: find out what lost requests of an earlier run cost, send rows, write tables."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeVar

from lightmeter import telemetry
from lightmeter.api.background_generator import in_background
from lightmeter.api.run_result import Run
from lightmeter.cache.reuse import cache_answers
from lightmeter.clock import SystemClock
from lightmeter.embedded_service import is_embedded
from lightmeter.engine.engine import ALL_ROWS, Engine, PlaceRange, open_engine
from lightmeter.engine.row_planner import plan_manifest
from lightmeter.errors import Interrupted, ServiceError, SettingsError
from lightmeter.export.export_tables import export_tables
from lightmeter.export.live_export import LiveExport
from lightmeter.journal.header import RunHeader, read_run_header
from lightmeter.manifest.readers import ManifestSource
from lightmeter.options import Options
from lightmeter.planning.plan import Plan
from lightmeter.planning.progress import Progress
from lightmeter.run_session.session import (
    Session,
    changed_options,
    has_unsettled_former_run,
    open_session,
    prepare_run_journal,
)
from lightmeter.settings import Settings

T = TypeVar("T")

_PROGRESS_INTERVAL_S: Final = 0.25

NO_ROWS: Final = (0, -1)
"""An empty range of rows. With it, the engine collects answers and determines charges, but sends no new request."""


@dataclass(frozen=True, slots=True)
class StartArguments:
    """Arguments that hold for one start of a run. Unlike `Options`, they are not stored with the run.

    Attributes:
        rows: Indices (from 0) of the first and last row to send, both included, in the order of sending.
        pay_again: Maximum credits for repeating requests that may have been charged, but whose answer was lost.
        accept_journal: Whether to continue a journal that is a copy or a restored backup.
        tables: Whether to write the tables at the end.
        run_id: Id of the run that the caller means; None means the run that the folder holds.
        consent: Whether to allow what `Plan.needs_consent` lists.
        is_planning: Whether the manifest is read and planned while the rows planned so far are sent (`--stream`).
        source: The manifest to plan if `is_planning` is true; None if it was in the memory of a process that has ended.
            Without `is_planning`, it is not used.
    """

    rows: PlaceRange = ALL_ROWS
    pay_again: int = 0
    accept_journal: bool = False
    tables: bool = True
    run_id: str | None = None
    consent: bool = False
    is_planning: bool = False
    source: ManifestSource | None = None


def merged_options(folder: Path, header: RunHeader, wanted: Options) -> Options:
    """Return the options `wanted` for the run in `folder`, whose `header` has its options so far.

    If `wanted` has no `prices` or no `skip`, the run keeps its own.

    Raises:
        SettingsError: `wanted` changes an option that must stay the same between two starts of a run.
    """
    return header.options.model_copy(update=changed_options(folder, header, wanted))


async def stream_folder(
    folder: Path, options: Options, arguments: StartArguments, stop: asyncio.Event | None, settings: Settings
) -> AsyncGenerator[Progress | Run]:
    """Process the rows of the journal in `folder`, write the tables, and cache the answers for later runs.

    Yield progress, and the run at the end. If the run cannot start, because the service does not tell the balance, this
    raises the error (`ServiceError` or `SettingsError`). It writes the tables before, unless the rows are still being
    planned (`--stream`).

    Args:
        folder: The output folder of the run.
        options: The options of the run.
        arguments: Which rows to send, and what else holds only for this start of the run.
        stop: An event: once it is set, the run stops early, and is still yielded at the end. Its `stopped_by`
            is then `Interrupted` if rows are left. None means that nothing stops the run.
        settings: The user's settings.
    """
    async with aclosing(
        in_background(lambda event: _run_engine(folder, options, event, arguments, settings), stop)
    ) as steps:
        async for step in steps:
            if isinstance(step, Run):
                run_id = step.header.run_id
                if arguments.tables:
                    await _write_tables(folder, run_id, rewrite_all=arguments.is_planning)
                await asyncio.to_thread(cache_answers, folder, run_id, options, settings, SystemClock().now())
            yield step


async def _write_tables(folder: Path, run_id: str, *, rewrite_all: bool) -> None:
    with telemetry.span("lightmeter.export", {"lightmeter.run_id": run_id}) as span:
        rows = await asyncio.to_thread(export_tables, folder, rewrite_all=rewrite_all)
        span.set({f"lightmeter.rows.{table}": count for table, count in rows.items()})


async def prepare_new_run(plan: Plan, folder: Path, settings: Settings) -> RunHeader:
    """Prepare `folder` for a run of `plan`: write the plan's journal, and return its header.

    If an earlier run in `folder` still lacks answers, they are fetched first, with `settings`.
    """
    async with aclosing(settle_former_run(plan, folder, None, settings, accept_journal=False)) as settling:
        async for _ in settling:
            pass
    return await asyncio.to_thread(prepare_run_journal, plan, folder, settings)


async def settle_former_run(
    plan: Plan, folder: Path, stop: asyncio.Event | None, settings: Settings, *, accept_journal: bool
) -> AsyncGenerator[Progress]:
    """Collect the missing answers of the earlier run in `folder`, and find out what its lost requests cost.

    Yield progress, and spend nothing. The earlier run had another manifest. A request is lost if its answer never came.
    The account balances in the earlier run's journal prove whether a lost request was charged. If it was not, the next
    run sends its rows again.

    Args:
        plan: The plan of the next run. Nothing is done if the run in `folder` has the same manifest.
        folder: The output folder.
        stop: An event: once it is set, the generator ends early, without an error, and some answers or costs stay
            unknown. None means that nothing stops it.
        settings: The user's settings.
        accept_journal: Whether to continue a journal that is a copy or a restored backup.
    """
    if not await asyncio.to_thread(has_unsettled_former_run, folder, plan):
        return
    header = read_run_header(folder)
    options = header.options
    if header.embedded is False and is_embedded(options, settings):  # the plan alone names their service
        options = options.model_copy(update={"base_url": plan.base_url})
    arguments = StartArguments(NO_ROWS, accept_journal=accept_journal, tables=False, run_id=header.run_id)
    async with aclosing(
        in_background(lambda event: _run_engine(folder, options, event, arguments, settings), stop)
    ) as steps:
        async for step in steps:
            if isinstance(step, Progress):
                yield step


async def _run_engine(
    folder: Path, options: Options, stop: asyncio.Event, arguments: StartArguments, settings: Settings
) -> AsyncGenerator[Progress | Run]:
    async with AsyncExitStack() as stack:
        span = stack.enter_context(telemetry.span("lightmeter.run"))
        session = await stack.enter_async_context(
            open_session(folder, settings, options, accept_journal=arguments.accept_journal, run_id=arguments.run_id)
        )
        engine = await stack.enter_async_context(_open_engine(session, arguments))
        stack.callback(lambda: span.set(_run_attributes(engine)))
        work = asyncio.create_task(_recover_and_spend(engine, arguments, settings))
        stopped = asyncio.create_task(stop.wait())
        stopped.add_done_callback(lambda task: None if task.cancelled() else engine.run_state.interrupt())
        live = LiveExport(folder)
        try:
            while not work.done():
                progress = engine.progress()
                if arguments.tables and not progress.planning:  # a later row may be a duplicate of an exported one
                    live.start_if_due(progress.seconds, engine.run_state.finished_rows)
                yield progress
                await asyncio.wait({work}, timeout=_PROGRESS_INTERVAL_S)
        except (GeneratorExit, asyncio.CancelledError):
            engine.run_state.interrupt()
            await asyncio.shield(asyncio.wait({work}))
            raise
        finally:
            stopped.cancel()
            await asyncio.to_thread(live.stop)
        work.result()
        stopped_by = engine.run_state.stop_reason
        state = engine.run_state
        left = state.counts["pending"] or state.retries_pending or state.planning
        if stopped_by is None and engine.run_state.interrupted and left:
            stopped_by = Interrupted("Stopped by the user.", hint=f"Continue: lightmeter resume {folder}")
        yield replace(engine.progress(), phase="exporting")
    yield Run(folder, stopped_by)


@asynccontextmanager
async def _open_engine(session: Session, arguments: StartArguments) -> AsyncIterator[Engine]:
    """Yield the engine of a run. If the service does not tell the balance, write the tables and raise the error.

    The tables may still be those of the former run. They stay so if the manifest is not read yet (`--stream`): they
    would show all rows of the former run as gone.
    """
    async with AsyncExitStack() as stack:
        try:
            opening = open_engine(session, arguments.rows, pay_again=arguments.pay_again)
            engine = await stack.enter_async_context(opening)
        except (ServiceError, SettingsError):
            if arguments.tables and not arguments.is_planning:
                await _write_tables(session.out, session.header.run_id, rewrite_all=False)
            raise
        yield engine


def _run_attributes(engine: Engine) -> telemetry.Attributes:
    """Return the attributes of the telemetry span of the run that `engine` executes.

    They are the run's id, some of its options, its rows by status and its credits.
    """
    header, state = engine.session.header, engine.run_state
    return {
        "lightmeter.run_id": header.run_id,
        "lightmeter.backends": tuple(header.options.backends or ()),
        "lightmeter.features": tuple(header.options.features or ()),
        "lightmeter.budget": header.options.budget,
        "lightmeter.credits_paid": state.paid,
        "lightmeter.credits_held": state.held,
        **{f"lightmeter.rows.{status}": rows for status, rows in state.counts.items()},
    }


async def _recover_and_spend(engine: Engine, arguments: StartArguments, settings: Settings) -> None:
    await engine.recover()
    if arguments.is_planning:
        await engine.spend_while_planning(plan_manifest(engine.session, engine.run_state, arguments.source, settings))
    await engine.spend()
    await engine.finish()
