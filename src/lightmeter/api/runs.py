"""The toolkit in Python: plan, run, resume, open. Progress comes from the generators, results from the functions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack, overload

from lightmeter.api.background_generator import in_background
from lightmeter.api.run_result import Run, RunSummary, Tables, summarize
from lightmeter.cache.reuse import cache_answers
from lightmeter.clock import SystemClock
from lightmeter.engine.engine import ALL_ROWS, Engine, SeqRange, open_engine
from lightmeter.engine.session import (
    changed_options,
    find_run_of_manifest,
    find_run_of_plan,
    open_session,
    prepare_run_journal,
    store_options,
)
from lightmeter.errors import Interrupted
from lightmeter.export.export_tables import export_tables
from lightmeter.journal.header import RunHeader, read_run_header
from lightmeter.manifest.readers import ManifestSource
from lightmeter.options import Options, PlanOptions, make_options
from lightmeter.planning.build import load_plan, refresh_service_info, stream_plan
from lightmeter.planning.plan import Plan, must_be_explicit
from lightmeter.planning.progress import Progress
from lightmeter.settings import Settings, read_settings
from lightmeter.tables.uris import is_uri

__all__ = [
    "load_plan",
    "open",
    "plan",
    "prepare_run",
    "prepare_run_from_plan",
    "resume",
    "run",
    "stream_resume",
    "stream_run",
]

LOOK_EVERY_S = 0.25


async def plan(source: ManifestSource, **options: Unpack[PlanOptions]) -> Plan:
    """Read a manifest, check it, and say what it would cost. Spends nothing.

    Args:
        source: A path or `s3://` address of a manifest; a folder or a glob of media or of Parquet files; a DataFrame, a
            Series or a list of URLs, `Path`s or dicts.
        options: The fields of `lightmeter.options.Options`.

    Raises:
        ManifestError: the manifest cannot be read at all.
        SettingsError: an option is wrong; the message names it. Or the service lacks a back end.
        AccessDenied: the service does not accept the key. Without a key, the plan says that it did not ask.
    """
    return await _planned(source, make_options(**options), require_service=False)


async def _planned(source: ManifestSource, options: Options, *, require_service: bool) -> Plan:
    async with aclosing(stream_plan(source, options, read_settings(), require_service=require_service)) as steps:
        async for step in steps:
            if isinstance(step, Plan):
                return step
    raise AssertionError("planning ends with a plan")


async def run(plan: Plan, out: Path | str, *, consent: bool = False, accept_journal: bool = False) -> Run:
    """Do what was planned and write the tables; goes on with the run that `out` already holds.

    Args:
        plan: What `plan` returned.
        out: The output folder.
        consent: Allows what is refused otherwise against a service that is not embedded: no back end named, no
            frame limit.
        accept_journal: As for `resume`, where the folder already holds this run.

    Returns:
        The run, also when the budget or the credits stopped it: see its `stopped_by`.

    Raises:
        UsageError: consent is needed, or the folder holds another run.
        JournalConflict: the folder holds this run in an older state, or a copy of it.
        AccessDenied, Unreachable: before anything was sent.
    """
    return await _last(stream_run(plan, out, consent=consent, accept_journal=accept_journal))


async def prepare_run(source: ManifestSource, out: Path | str, **options: Unpack[PlanOptions]) -> RunSummary:
    """Plan into a folder without spending, or take up the run of this manifest that it holds; for flows.

    Raises:
        As `plan`; SettingsError also if there is no key, the folder holds another run, or consent is needed;
        Unreachable: the service cannot be reached. Key and service are looked at before the first row.
    """
    folder, wanted = Path(out), make_options(**options)
    header = await asyncio.to_thread(find_run_of_manifest, folder, source, wanted)
    if header is not None:
        await store_options(folder, _new_options(folder, header, wanted))
    else:
        must_be_explicit(wanted, read_settings())
        made = await _planned(source, wanted, require_service=True)
        await asyncio.to_thread(prepare_run_journal, made, folder)
    return summarize(folder)


async def prepare_run_from_plan(path: Path | str, out: Path | str) -> RunSummary:
    """As `begin`, with a plan file: its rows as they were planned, or the run of this plan that the folder holds.

    Raises:
        As `load_plan`, and, unless the folder holds the run, as `refresh_service_info`; SettingsError also if the
        folder holds another run; UsageError if consent is needed.
    """
    made = await asyncio.to_thread(load_plan, path)
    made.must_not_need_consent()
    folder = Path(out)
    if find_run_of_plan(folder, made) is None:
        made = await refresh_service_info(made)
    header = await asyncio.to_thread(prepare_run_journal, made, folder)
    await store_options(folder, _new_options(folder, header, made.options))
    return summarize(folder)


def _new_options(folder: Path, header: RunHeader, wanted: Options) -> Options:
    """Return the options of a run that continues with the changes that are allowed."""
    return header.options.model_copy(update=changed_options(folder, header, wanted))


async def resume(out: Path | str, *, pay_again: int = 0, accept_journal: bool = False, **changes: Any) -> Run:
    """Go on after a stop, a crash or a raised budget.

    Args:
        out: The folder of the run.
        pay_again: Most credits that may be spent to send again what is in doubt, and so perhaps be paid twice.
        accept_journal: Go on with a journal that is older than its run (its log was lost, a backup was restored) or a
            copy of one, as a run with a new id: what it does not know of is paid again.
        changes: What may change between runs: budget, max_at_risk, batch_size, max_concurrency, careful,
            sole_spender, upload, table_format, base_url.

    Raises:
        JournalConflict: the journal is older than its run, or a copy, and that is not accepted.
        JournalError: there is no run there, or another process is running it.
        SettingsError: a change would ask another question for the rows that are left, such as other features.
    """
    return await _last(stream_resume(out, pay_again=pay_again, accept_journal=accept_journal, **changes))


@overload
def open(folder: Path) -> Run: ...  # noqa: A001 (lightmeter.open reads as what it does)
@overload
def open(folder: str) -> Any: ...  # noqa: A001 (likewise; its text says which of both it is)
def open(folder: Path | str) -> Run | Tables:  # noqa: A001 (likewise)
    """Look at a run that is there, or at tables in a shared place.

    Args:
        folder: An output folder, or a URI such as `s3://bucket/prefix` that `lightmeter rebuild --to` has written: it
            has tables and no journal.

    Raises:
        JournalError: there is no run in the folder.
    """
    return Tables(folder) if isinstance(folder, str) and is_uri(folder) else Run(Path(folder))


async def stream_run(
    plan: Plan,
    out: Path | str,
    *,
    consent: bool = False,
    accept_journal: bool = False,
    stop: asyncio.Event | None = None,
) -> AsyncGenerator[Progress | Run]:
    """As `run`, yielding progress, and the run last.

    Setting `stop`, closing the generator, leaving its loop with `break`, or ending the event loop with `asyncio.run`
    sends nothing more and waits for what is in flight: nothing is lost.
    """
    if not consent:
        plan.must_not_need_consent()
    folder = Path(out)
    if plan.base_url is not None and plan.balance is None and find_run_of_plan(folder, plan) is None:
        plan = await refresh_service_info(plan)
    header = await asyncio.to_thread(prepare_run_journal, plan, folder)
    options, share = _new_options(folder, header, plan.options), _Share(ALL_ROWS, 0, accept_journal)
    async with aclosing(_stream(folder, options, share, stop)) as steps:
        async for step in steps:
            yield step


async def stream_resume(
    out: Path | str,
    *,
    stop: asyncio.Event | None = None,
    rows: SeqRange = ALL_ROWS,
    tables: bool = True,
    pay_again: int = 0,
    accept_journal: bool = False,
    **changes: Any,
) -> AsyncGenerator[Progress | Run]:
    """As `resume`, yielding progress, and the run last; `rows` and `tables` cut it into the shards of a flow."""
    folder = Path(out)
    header = read_run_header(folder)
    options = header.options
    if changes:
        options = make_options(**{**options.model_dump(), **changes})
        changed_options(folder, header, options)  # refuses another question: half of the rows have answers to this one
    share = _Share(rows, pay_again, accept_journal)
    async with aclosing(_stream(folder, options, share, stop, tables=tables)) as steps:
        async for step in steps:
            yield step


async def _stream(
    folder: Path, options: Options, share: _Share, stop: asyncio.Event | None, *, tables: bool = True
) -> AsyncGenerator[Progress | Run]:
    """Run the folder in the background, then cache its answers and write its tables."""
    settings = read_settings()
    async with aclosing(in_background(lambda event: _work(folder, options, event, share, settings), stop)) as steps:
        async for step in steps:
            if isinstance(step, Run):
                await asyncio.to_thread(_keep, folder, options, settings)
                if tables:
                    await asyncio.to_thread(export_tables, folder)
            yield step


@dataclass(frozen=True, slots=True)
class _Share:
    """What one start may do: these rows, so many credits for what is in doubt, and whatever state the journal has."""

    rows: SeqRange
    pay_again: int
    accept_journal: bool


def _keep(folder: Path, options: Options, settings: Settings) -> None:
    cache_answers(folder, read_run_header(folder).run_id, options, settings, SystemClock().now())


async def _work(
    folder: Path, options: Options, stop: asyncio.Event, share: _Share, settings: Settings
) -> AsyncGenerator[Progress | Run]:
    async with (
        open_session(folder, settings, options, accept_journal=share.accept_journal) as session,
        open_engine(session, share.rows, pay_again=share.pay_again) as engine,
    ):
        work, stopped = asyncio.create_task(_all_of_it(engine)), asyncio.create_task(stop.wait())
        stopped.add_done_callback(lambda task: None if task.cancelled() else engine.stop())
        try:
            while not work.done():
                yield engine.progress()
                await asyncio.wait({work}, timeout=LOOK_EVERY_S)
        except (GeneratorExit, asyncio.CancelledError):
            engine.stop()
            await asyncio.shield(asyncio.wait({work}))
            raise
        finally:
            stopped.cancel()
        work.result()
        stopped_by = engine.run_state.stop_reason
        left = engine.run_state.counts["pending"] or engine.run_state.retries_pending
        if stopped_by is None and engine.run_state.interrupted and left:
            stopped_by = Interrupted("Stopped by the user.", hint=f"Go on: lightmeter resume {folder}")
        yield replace(engine.progress(), phase="exporting")
    yield Run(folder, stopped_by)


async def _all_of_it(engine: Engine) -> None:
    await engine.recover()
    await engine.spend()
    await engine.finish()


async def _last(steps: AsyncGenerator[Progress | Run]) -> Run:
    async with aclosing(steps) as each:
        async for step in each:
            if isinstance(step, Run):
                return step
    raise AssertionError("running ends with a run")
