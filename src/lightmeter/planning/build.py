"""Build a plan from a manifest, or load one from a plan file exactly as it was saved. Spends nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Final

from lightmeter import telemetry
from lightmeter.cache.reuse import find_planned_answers, reuse_answers
from lightmeter.clock import Clock, SystemClock
from lightmeter.errors import ManifestError, PlanChanged, SettingsError, UsageError
from lightmeter.journal.commands.plan_rows import apply_cached_rows, restore_rows
from lightmeter.journal.commands.screen_rows import SCREEN_META, ScreenOutcome
from lightmeter.journal.commands.submissions import put_meta
from lightmeter.journal.frame_rows import frame_of
from lightmeter.journal.header import MANIFEST_NOTES, PLANNING_OPEN
from lightmeter.journal.store import Journal
from lightmeter.journal.thumbnails import THUMBNAILS_NAME, copy_thumbnails
from lightmeter.manifest.byte_sources import Location
from lightmeter.manifest.folders import stored_digest
from lightmeter.manifest.readers import ManifestReader, ManifestSource, digest_of
from lightmeter.options import Options, parse_options
from lightmeter.paths import local_path
from lightmeter.planning.checks.checked_rows import plan_meta, write_checked_rows
from lightmeter.planning.checks.row_checks import CHUNK_ROWS, RowChecker
from lightmeter.planning.plan import Plan, plan_from_journal
from lightmeter.planning.plan_file import PlanFile, read_plan_file, read_plan_without_rows, thumbnails_beside
from lightmeter.planning.preflight import ServiceInfo, preflight
from lightmeter.planning.price_sources import price_meta, with_prices_from_settings
from lightmeter.planning.progress import Progress
from lightmeter.planning.send_order import set_send_order
from lightmeter.pricing.rates import load_prices
from lightmeter.redaction import mask_credentials
from lightmeter.settings import Settings, read_settings
from lightmeter.tables.remote.table_formats import check_table_format
from lightmeter.tempdirs import temp_dir_unless_error

_GIVE_KEY: Final = (
    "A plan file holds no credentials: set those of the store in the environment, such as AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY, or plan again."
)
_PLAN_AGAIN: Final = "Plan again: lightmeter plan MANIFEST --save FILE"


async def stream_plan(
    source: ManifestSource,
    options: Options,
    settings: Settings,
    clock: Clock | None = None,
    *,
    require_service: bool = False,
    checker: RowChecker | None = None,
) -> AsyncGenerator[Progress | Plan]:
    """Build a plan: yield progress while rows are read, and the plan at the end.

    Before the first row is read, request the balance and the back ends of the service, unless it is the embedded one.
    Unless the option `reuse` is off, use the pre-check results that an earlier plan or check of the manifest stored.

    Args:
        source: The manifest.
        options: The options of the run.
        settings: The user's settings.
        clock: Source of the time; the system clock by default.
        require_service: Whether to raise an error if the key is missing or the service cannot be reached; set it if a
            run follows. If false, the plan gets a note instead.
        checker: Checks the rows; None means a new `Checker` in this process.

    Raises:
        ManifestError: the manifest cannot be read at all.
        AccessDenied: the service does not accept the key.
        Unreachable: the service cannot be reached; only with `require_service`.
        SettingsError: an option cannot be priced, the column in the option `sample` does not exist, or the service
            lacks a back end. With `require_service` also: there is no key, or no analysis service answers at the base
            URL.
        UsageError: the package that writes the requested table format is not installed; or the option `duplicates` is
            `near`, but pre-checks are off.
    """
    clock = clock or SystemClock()
    _check_options(options)
    options = with_prices_from_settings(options, settings)
    reader = ManifestReader(source, options=options.read_options)
    service = await preflight(options, settings, required=require_service)
    prices = price_meta(options, settings, service)
    with telemetry.span("lightmeter.plan") as span, temp_dir_unless_error() as temp_dir:
        with Journal(temp_dir.path) as journal:
            async with aclosing(write_checked_rows(reader, options, settings, clock, journal, checker)) as steps:
                async for progress in steps:
                    yield progress
            await journal.write(put_meta(plan_meta(reader, options, clock) | prices))
            await asyncio.to_thread(reuse_answers, journal, options, settings, clock.now())
            await asyncio.to_thread(set_send_order, journal, options)
        plan = plan_from_journal(temp_dir, options, settings, service)
        span.set(_plan_attributes(plan))
    yield plan


def _plan_attributes(plan: Plan) -> telemetry.Attributes:
    return {
        "lightmeter.backends": tuple(plan.options.backends or ()),
        "lightmeter.features": tuple(plan.options.features or ()),
        "lightmeter.rows": plan.rows,
    }


def _check_options(options: Options) -> None:
    check_table_format(options.table_format)
    if options.duplicates == "near" and not options.precheck:
        raise UsageError(
            "Near-duplicates are found by the pre-checks, which decode the images.",
            hint="Leave out --no-precheck, or use --duplicates exact",
        )


async def plan_without_rows(source: ManifestSource, options: Options, settings: Settings) -> Plan:
    """Return a plan without rows, for a run with `--stream`, which plans the rows while it sends the first of them.

    The manifest is hashed, but only its first row is parsed, and no row is checked. The plan has the price of a
    picture, but not that of the run: its `credits` are 0.

    Args:
        source: The manifest.
        options: The options of the run.
        settings: The user's settings.

    Raises:
        ManifestError: the manifest cannot be read, or it lacks a column that the options name.
        AccessDenied: the service does not accept the key.
        Unreachable: the service cannot be reached.
        SettingsError: there is no key, an option cannot be priced, or the service lacks a back end.
        UsageError: the package that writes the requested table format is not installed; or the option `duplicates` is
            `near`, but pre-checks are off.
    """
    clock = SystemClock()
    _check_options(options)
    options = with_prices_from_settings(options, settings)
    reader = ManifestReader(source, options=options.read_options)
    await asyncio.to_thread(next, iter(ManifestReader(source, options=options.read_options)), None)
    digest = await asyncio.to_thread(digest_of, source, options.read_options)
    service = await preflight(options, settings, required=True)
    prices = price_meta(options, settings, service)
    with temp_dir_unless_error() as temp_dir:
        with Journal(temp_dir.path) as journal:
            meta = plan_meta(reader, options, clock, digest)
            await journal.write(put_meta(meta | prices | {PLANNING_OPEN: "1"}))
        return plan_from_journal(temp_dir, options, settings, service)


def load_plan(path: Path | str, settings: Settings | None = None) -> Plan:
    """Load a plan file as it was saved, without reading or checking rows again.

    The plan is refused if the manifest, the rows, the service or the prices changed since it was saved, or if a cached
    answer that the plan uses is gone. A manifest that was in memory or came from standard input is not compared.

    A plan file of version 1 holds no rows, so its manifest is planned again. The plan is refused if the content of the
    manifest or the price of a picture differs from that in the file.

    Args:
        path: The plan file.
        settings: The user's settings; None reads them from the environment and the settings file.

    Raises:
        SettingsError: the file is not a plan file, or its version is neither 1 nor `PLAN_VERSION`.
        ManifestError: the manifest is no longer there.
        PlanChanged: something changed since the plan was saved; the message says what.
        UsageError: Delta or Iceberg tables are requested, but the package that writes them is not installed.
    """
    settings, path = settings or read_settings(), local_path(path)
    if (plan_values := read_plan_without_rows(path)) is not None:
        return _plan_again(path, plan_values, settings)
    saved = read_plan_file(path)
    try:
        options = _with_planned_service(saved, parse_options(**saved.plan_values["options"]), settings)
        check_table_format(options.table_format)
        _check_manifest(saved)
        own = options.prices
        if own is not None and own.path and Path(own.path).exists() and load_prices(Path(own.path)) != own:
            raise PlanChanged(f"The price file {own.path} changed since it was planned.", hint=_PLAN_AGAIN)
        service = ServiceInfo.from_dict(saved.plan_values.get("service"))
        meta = _checked_meta(saved, price_meta(options, settings, service))
    except (KeyError, TypeError, ValueError) as error:
        raise SettingsError(f"{path} is not a plan file: {error!r}.", hint=_PLAN_AGAIN) from error
    with temp_dir_unless_error() as temp_dir:
        copy_thumbnails(thumbnails_beside(saved.path), temp_dir.path / THUMBNAILS_NAME)
        with Journal(temp_dir.path) as journal:
            _restore(saved, journal, settings)
            journal.submit(put_meta({**meta, "options": options.model_dump_json()})).result()
            set_send_order(journal, options)
        return plan_from_journal(temp_dir, options, settings, service)


def _plan_again(path: Path, plan_values: dict[str, Any], settings: Settings) -> Plan:
    """Plan the manifest that a plan file of version 1 names, with the options in the file.

    Plan files of version 1 hold no rows.

    Args:
        path: The plan file.
        plan_values: The parsed content of the plan file.
        settings: The user's settings.

    Raises:
        SettingsError: the file is not a plan file.
        PlanChanged: the content of the manifest, or the price of a picture, differs from that in the file.
    """
    try:
        name, digest = plan_values["manifest"]["name"], plan_values["manifest"]["sha256"]
        price = int(plan_values["price_per_image_millicredits"])
        known = {option: value for option, value in plan_values["options"].items() if option in Options.model_fields}
        options = parse_options(**{**known, "base_url": plan_values["base_url"]})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SettingsError(f"{path} is not a plan file: {error!r}.", hint=_PLAN_AGAIN) from error
    source = name if "://" in name or Path(name).exists() else path.parent / Path(name).name

    async def plan_to_end() -> Plan:
        async with aclosing(stream_plan(source, options, settings)) as steps:
            return [step async for step in steps if isinstance(step, Plan)][-1]

    with ThreadPoolExecutor(1) as thread:  # the caller may have an event loop of its own
        plan = thread.submit(asyncio.run, plan_to_end()).result()
    if plan.manifest_sha256 != digest:
        raise PlanChanged(f"The manifest {name} changed since it was planned.", hint=_PLAN_AGAIN)
    if plan.price_per_image_milli != price:
        now = plan.price_per_image_milli
        raise PlanChanged(f"A picture was planned at {price} millicredits, but now costs {now}.", hint=_PLAN_AGAIN)
    return plan


async def refresh_service_info(plan: Plan, settings: Settings | None = None) -> Plan:
    """Return the plan with the current balance and back ends of its service; its rows and prices stay the same.

    Args:
        plan: A plan that was saved, or made while the service could not be reached.
        settings: The user's settings; None reads them from the environment and the settings file.

    Raises:
        AccessDenied: the service does not accept the key.
        Unreachable: the service does not answer.
        SettingsError: there is no key, or the service no longer has a back end of the plan.
        PlanChanged: the service now has other prices than the plan.
    """
    settings = settings or read_settings()
    options = plan.options.model_copy(update={"base_url": plan.base_url})
    service = await preflight(options, settings, required=True)
    if service.backends is None:
        return replace(plan, service=replace(plan.service, balance=service.balance, note=service.note))
    _check_price(plan.price_per_image_milli, price_meta(options, settings, service), "the service")
    return replace(plan, service=service)


def _restore(saved: PlanFile, journal: Journal, settings: Settings) -> None:
    """Write the rows of a plan file, and the cached answers that they use, into an empty journal.

    The cached answers are read from the cache folder in `settings`.

    Raises:
        PlanChanged: an answer is no longer cached, or the file has another number of rows than it says.
    """
    rows, done = saved.read_rows(), 0
    while chunk := list(islice(rows, CHUNK_ROWS)):
        journal.submit(restore_rows([row for row, _ in chunk])).result()
        wanted = [(row.seq, answer) for row, answer in chunk if answer is not None]
        if wanted:
            journal.submit(apply_cached_rows(find_planned_answers(settings, wanted))).result()
        done += sum(frame_of(row.seq) is None for row, _ in chunk)
    if done != saved.rows:
        raise PlanChanged(f"{saved.path} should have {saved.rows} rows, but has {done}.", hint=_PLAN_AGAIN)


def _with_planned_service(saved: PlanFile, options: Options, settings: Settings) -> Options:
    """Return a copy of `options` with the base URL of the plan file `saved`.

    If the plan file has no base URL, the plan is for the embedded service, and the copy has no base URL either.

    Raises:
        PlanChanged: the plan is for the embedded service, but the options or the settings now have a base URL.
    """
    planned, now = saved.plan_values["base_url"], options.base_url or settings.base_url
    if planned is None and now is not None:
        raise PlanChanged(
            f"The plan is for the embedded service, but the settings now name {now}.",
            hint="Unset LIGHTMETER_BASE_URL, or plan again.",
        )
    return options.model_copy(update={"base_url": planned})


def _check_manifest(saved: PlanFile) -> None:
    manifest = saved.plan_values["manifest"]
    name, path = manifest["name"], manifest["path"]
    if path is None:
        return
    sibling = saved.path.parent / Path(name).name
    moved = "://" not in path and not Path(path).exists() and sibling.exists()
    location = Location(sibling if moved else path if "://" in path else Path(path))
    try:
        digest = stored_digest(location)
    except ManifestError as error:
        if not location.is_remote:
            raise
        raise ManifestError(str(error), hint=error.hint or _GIVE_KEY) from error
    if digest != manifest["sha256"]:
        raise PlanChanged(f"The manifest {name} changed since it was planned.", hint=_PLAN_AGAIN)


def _checked_meta(saved: PlanFile, prices: dict[str, str]) -> dict[str, str]:
    """Return the name-value pairs for the table `meta` of a run's journal.

    They are the pairs in `prices`, and values from the plan file, such as the name and the hash of the manifest.
    `prices` are today's prices, as `price_meta` returns them.

    Raises:
        PlanChanged: the price of an image in `prices` differs from that in the plan file.
    """
    plan_values: dict[str, Any] = saved.plan_values
    _check_price(plan_values["price_per_image_millicredits"], prices, "the price table")
    manifest = plan_values["manifest"]
    path_meta = {} if manifest["path"] is None else {"manifest_path": mask_credentials(manifest["path"])}
    screen = plan_values.get("screen")
    screen_meta = {} if screen is None else {SCREEN_META: ScreenOutcome(**screen).to_json()}
    return {
        "run_id": plan_values["run_id"],
        "manifest": mask_credentials(manifest["name"]),
        "manifest_sha256": manifest["sha256"],
        "extra_types": json.dumps(manifest["columns"]),
        MANIFEST_NOTES: json.dumps(plan_values.get("manifest_notes", [])),
        "lightmeter": plan_values["lightmeter"],
        "planned_at": plan_values["planned_at"],
        **prices,
        **path_meta,
        **screen_meta,
    }


def _check_price(planned: int, prices: dict[str, str], who: str) -> None:
    now = int(prices["price_per_image_milli"])
    if planned != now:
        raise PlanChanged(
            f"A picture was planned at {planned} millicredits, but {who} now says {now}.", hint=_PLAN_AGAIN
        )
