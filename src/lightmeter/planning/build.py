"""How a plan is made: from a manifest, row by row, or from a plan file, exactly as it was agreed to. Spends nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from concurrent.futures import Future
from contextlib import AsyncExitStack
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Final

import orjson

from lightmeter import __version__
from lightmeter.cache.reuse import find_planned_answers, reuse_answers
from lightmeter.clock import Clock, SystemClock, utc_from_timestamp
from lightmeter.errors import PlanChanged, SettingsError
from lightmeter.journal.commands import put_meta
from lightmeter.journal.header import fresh_run_id
from lightmeter.journal.plan_rows import PlannedFinding, PlannedRow, add_rows, apply_cached_rows, restore_rows
from lightmeter.journal.store import Journal
from lightmeter.manifest.byte_sources import Location
from lightmeter.manifest.canonical_url import canonical_url
from lightmeter.manifest.folders import stored_digest
from lightmeter.manifest.item import Item
from lightmeter.manifest.readers import ManifestReader, ManifestSource, location_of
from lightmeter.media.media_info import kind_from_name
from lightmeter.options import Options, make_options
from lightmeter.planning.plan import Plan, plan_from_journal
from lightmeter.planning.plan_file import PlanFile, read_plan_file
from lightmeter.planning.preflight import ServiceInfo, preflight
from lightmeter.planning.price_table import price_meta, with_prices_from_settings
from lightmeter.planning.progress import Progress
from lightmeter.prechecks.check import Checker, CheckResult
from lightmeter.pricing.estimate import frame_range
from lightmeter.pricing.rates import load_prices
from lightmeter.settings import Settings, read_settings
from lightmeter.tables.delta import import_deltalake
from lightmeter.tempdirs import LockedTempDir

__all__ = ["load_plan", "refresh_service_info", "stream_plan"]

CHUNK: Final = 256
"""Rows read, checked and written together."""

CHECKS_AT_ONCE: Final = 16

_PLAN_AGAIN: Final = "Plan again: lightmeter plan MANIFEST --save FILE"


async def stream_plan(
    source: ManifestSource,
    options: Options,
    settings: Settings,
    clock: Clock | None = None,
    *,
    require_service: bool = False,
) -> AsyncGenerator[Progress | Plan]:
    """Plan; yields progress while it reads, and the plan last. A named service is asked before the first row is read.

    Args:
        source: The manifest.
        options: What is asked for.
        settings: The user's.
        clock: Time; the machine's when not given.
        require_service: Whether a run follows at once: then a missing key, or a service that cannot be reached, is an
            error. Otherwise it is a note in the plan.

    Raises:
        ManifestError: the manifest cannot be read at all.
        AccessDenied: the service does not accept the key.
        Unreachable: only with `require_service`.
        SettingsError: an option cannot be priced, or the service has no such back end; with `require_service` also:
            there is no key, or what answers there is no such service.
        UsageError: Delta tables are wanted and their writer is missing: better said before than after spending.
    """
    clock = clock or SystemClock()
    _must_be_writable(options)
    options = with_prices_from_settings(options, settings)
    reader = ManifestReader(source, options=options.read_options)
    service = await preflight(options, settings, required=require_service)
    prices = price_meta(options, settings, service)
    scratch = LockedTempDir()
    began = clock.monotonic()
    try:
        with Journal(scratch.path) as journal:
            async for rows in _write_rows(reader, options, journal):
                seconds = clock.monotonic() - began
                yield Progress("planning", rows, {}, seconds=seconds, rate=rows / seconds if seconds else 0.0)
            meta = {
                "run_id": fresh_run_id(clock),
                "manifest": reader.name,
                "manifest_sha256": reader.sha256,
                "extra_types": json.dumps(reader.extra_types),
                "options": options.model_dump_json(),
                "lightmeter": __version__,
                "planned_at": f"{utc_from_timestamp(clock.now()):%Y-%m-%dT%H:%M:%SZ}",
                **prices,
                **_where(source),
            }
            await journal.write(put_meta(meta))
            await asyncio.to_thread(reuse_answers, journal, options, settings, clock.now())
        plan = plan_from_journal(scratch, options, settings, service)
    except BaseException:
        scratch.remove()
        raise
    yield plan


def _must_be_writable(options: Options) -> None:
    if options.table_format == "delta":
        import_deltalake()


def _where(source: ManifestSource) -> dict[str, str]:
    """Where the manifest can be found again; nothing for what is only in memory, or was read from standard input."""
    location = location_of(source)
    return {} if location is None or location.is_stdin else {"manifest_path": location.absolute}


async def _write_rows(reader: ManifestReader, options: Options, journal: Journal) -> AsyncIterator[int]:
    """Read, check and write rows chunk by chunk, one being written while the next is read; yields how many so far."""
    items: Iterator[Item] = await asyncio.to_thread(iter, reader)
    done, writing = 0, None
    async with AsyncExitStack() as stack:
        checker = await stack.enter_async_context(_checker(options)) if options.precheck else None
        while chunk := await asyncio.to_thread(lambda: list(islice(items, CHUNK))):
            checked = await _check_all(checker, chunk)
            rows = [_row(item, seen, options) for item, seen in zip(chunk, checked, strict=True)]
            await _written(writing)
            writing = journal.submit(add_rows(rows))
            done += len(rows)
            yield done
        await _written(writing)


async def _written(writing: Future[None] | None) -> None:
    if writing is not None:
        await asyncio.wrap_future(writing)


def _checker(options: Options) -> Checker:
    return Checker(
        capture_interval_s=options.capture_interval, max_frames=options.max_frames, concurrency=CHECKS_AT_ONCE
    )


async def _check_all(checker: Checker | None, chunk: list[Item]) -> list[CheckResult | None]:
    if checker is None:
        return [None] * len(chunk)

    async def check(item: Item) -> CheckResult | None:
        return None if item.problem else await checker.check(item)

    return list(await asyncio.gather(*(check(item) for item in chunk)))


def _row(item: Item, checked: CheckResult | None, options: Options) -> PlannedRow:
    # What was seen in the content wins over what the manifest says: the price follows what is sent.
    kind = (checked.kind if checked else None) or item.kind or kind_from_name(item.path or item.url)
    duration = checked.duration_s if checked else None
    frames = frame_range(kind, duration, options.capture_interval, options.max_frames)
    status, reason, error = "pending", None, None
    if item.problem:
        status, reason, error = "skipped", "bad_row", item.problem
    elif checked is not None and checked.fatal is not None:
        status, reason, error = "skipped", checked.fatal.check, checked.fatal.message
    return PlannedRow(
        seq=item.seq,
        item_id=item.item_id,
        url=item.url,
        path=item.path,
        identity=None if item.problem else (item.path or canonical_url(item.url)),
        kind=kind,
        extra=orjson.dumps(item.extra).decode(),
        own_id=item.has_own_id,
        status=status,
        reason=reason,
        error=error,
        frames_low=frames.low,
        frames_high=frames.high,
        width=checked.width if checked else None,
        height=checked.height if checked else None,
        duration_s=duration,
        content_sha256=checked.content_sha256 if checked else None,
        findings=_findings(checked),
    )


def _findings(checked: CheckResult | None) -> tuple[PlannedFinding, ...]:
    return tuple(
        PlannedFinding(found.check, found.severity, found.message, found.value, orjson.dumps(found.facts).decode())
        for found in (checked.findings if checked else ())
    )


def load_plan(path: Path | str, settings: Settings | None = None) -> Plan:
    """A saved plan, as it was agreed to: no row is looked at again.

    Whatever would make it another plan is refused: a manifest that changed, rows that are not those that were saved,
    another service, other prices, or answers of earlier runs that are gone. A manifest that was in memory, or came
    from standard input, cannot be read again: the rows in the file are it.

    Args:
        path: The plan file.
        settings: The user's; read when not given.

    Raises:
        SettingsError: the file is no plan file of this version.
        ManifestError: the manifest is no longer there.
        PlanChanged: something changed since it was planned; the message says what.
        UsageError: Delta tables are wanted and their writer is missing.
    """
    settings = settings or read_settings()
    saved = read_plan_file(Path(path))
    try:
        options = _same_service(saved, make_options(**saved.head["options"]), settings)
        _must_be_writable(options)
        _same_manifest(saved)
        _same_price_file(options)
        service = ServiceInfo.from_dict(saved.head.get("service"))
        meta = _same_prices(saved, price_meta(options, settings, service))
    except (KeyError, TypeError, ValueError) as error:
        raise SettingsError(f"{path} is no plan file: {error!r}.", hint=_PLAN_AGAIN) from error
    scratch = LockedTempDir()
    try:
        with Journal(scratch.path) as journal:
            _restore(saved, journal, settings)
            journal.submit(put_meta({**meta, "options": options.model_dump_json()})).result()
        return plan_from_journal(scratch, options, settings, service)
    except BaseException:
        scratch.remove()
        raise


async def refresh_service_info(plan: Plan, settings: Settings | None = None) -> Plan:
    """The plan with what its service says now of key, balance and back ends; its rows and prices stay as agreed to.

    Args:
        plan: Such as one that was saved, or made while the service could not be reached.
        settings: The user's; read when not given.

    Raises:
        AccessDenied, Unreachable: as `preflight`, where required.
        SettingsError: there is no key, or the service no longer has a back end of the plan.
        PlanChanged: the service names other prices than those that were planned.
    """
    settings = settings or read_settings()
    options = plan.options.model_copy(update={"base_url": plan.base_url})
    now = await preflight(options, settings, required=True)
    if now.backends is None:
        return replace(plan, service=replace(plan.service, balance=now.balance, note=now.note))
    _must_cost(plan.price_per_image_milli, price_meta(options, settings, now), "the service")
    return replace(plan, service=now)


def _restore(saved: PlanFile, journal: Journal, settings: Settings) -> None:
    """Write the rows as they were planned."""
    rows, done = saved.read_rows(), 0
    while chunk := list(islice(rows, CHUNK)):
        journal.submit(restore_rows([row for row, _ in chunk])).result()
        wanted = [(row.seq, answer) for row, answer in chunk if answer is not None]
        if wanted:
            journal.submit(apply_cached_rows(find_planned_answers(settings, wanted))).result()
        done += len(chunk)
    if done != saved.rows:
        raise PlanChanged(f"{saved.path} says {saved.rows} rows, and has {done}.", hint=_PLAN_AGAIN)


def _same_service(saved: PlanFile, options: Options, settings: Settings) -> Options:
    """The options with the service that was planned for named in them, wherever it was named then."""
    planned, now = saved.head["base_url"], options.base_url or settings.base_url
    if planned is None and now is not None:
        raise PlanChanged(
            f"It was planned for the embedded service, and the settings now name {now}.",
            hint="Unset LIGHTMETER_BASE_URL, or plan again.",
        )
    return options.model_copy(update={"base_url": planned})


def _same_manifest(saved: PlanFile) -> None:
    manifest = saved.head["manifest"]
    name, place = manifest["name"], manifest["path"]
    if place is None:
        return
    beside = saved.path.parent / Path(name).name
    moved = "://" not in place and not Path(place).exists() and beside.exists()
    location = Location(beside if moved else place if "://" in place else Path(place))
    if stored_digest(location) != manifest["sha256"]:
        raise PlanChanged(f"{name} changed since it was planned.", hint=_PLAN_AGAIN)


def _same_price_file(options: Options) -> None:
    """The user's own prices are in the plan; where their file is still there, it must hold the same."""
    own = options.prices
    if own is None or own.path is None or not Path(own.path).exists():
        return
    if load_prices(Path(own.path)) != own:
        raise PlanChanged(f"{own.path} changed since it was planned.", hint=_PLAN_AGAIN)


def _same_prices(saved: PlanFile, prices: dict[str, str]) -> dict[str, str]:
    """What the journal keeps of the plan as a whole."""
    head: dict[str, Any] = saved.head
    _must_cost(head["price_per_image_millicredits"], prices, "the price table")
    manifest = head["manifest"]
    where = {} if manifest["path"] is None else {"manifest_path": manifest["path"]}
    return {
        "run_id": head["run_id"],
        "manifest": manifest["name"],
        "manifest_sha256": manifest["sha256"],
        "extra_types": json.dumps(manifest["columns"]),
        "lightmeter": head["lightmeter"],
        "planned_at": head["planned_at"],
        **prices,
        **where,
    }


def _must_cost(planned: int, prices: dict[str, str], who: str) -> None:
    now = int(prices["price_per_image_milli"])
    if planned != now:
        raise PlanChanged(
            f"A picture was planned at {planned} millicredits, and {who} now says {now}.", hint=_PLAN_AGAIN
        )
