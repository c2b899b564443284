"""Reads the rows of a manifest, checks them, and writes them to a journal with what the checks found."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import AsyncExitStack, aclosing, nullcontext
from dataclasses import replace
from itertools import islice

import orjson

from lightmeter import __version__
from lightmeter.clock import Clock, SystemClock, utc_from_timestamp
from lightmeter.journal.commands.odd_sizes import add_odd_size_findings, skip_odd_sizes
from lightmeter.journal.commands.plan_rows import PlannedFinding, PlannedFrame, PlannedRow, add_rows, index_images
from lightmeter.journal.commands.submissions import put_meta
from lightmeter.journal.header import CHECKED_ONLY, MANIFEST_NOTES, fresh_run_id
from lightmeter.journal.queries.items import count_rows
from lightmeter.journal.store import Journal, open_read_only
from lightmeter.journal.thumbnails import THUMBNAILS_NAME, ThumbnailStore, copy_thumbnails
from lightmeter.manifest.canonical_url import canonical_url
from lightmeter.manifest.item import Item
from lightmeter.manifest.readers import ManifestReader, ManifestSource
from lightmeter.media.media_info import kind_from_name
from lightmeter.options import Options
from lightmeter.planning.checks.check_cache import CheckCache, open_check_cache
from lightmeter.planning.checks.near_duplicates import NearDuplicates
from lightmeter.planning.checks.row_checks import RowChecker, check_rows
from lightmeter.planning.progress import Progress
from lightmeter.planning.send_order import check_sample_column
from lightmeter.prechecks.check import Checker, CheckerArguments, CheckLimits
from lightmeter.prechecks.finding import CheckResult
from lightmeter.prechecks.robots_rules import RobotsPolicy
from lightmeter.prechecks.url_verdict import hosted_format_findings
from lightmeter.pricing.estimate import FrameRange, frame_range
from lightmeter.settings import Settings
from lightmeter.tempdirs import LockedTempDir, temp_dir_unless_error


async def stream_check(
    source: ManifestSource,
    options: Options,
    settings: Settings,
    clock: Clock | None = None,
    checker: RowChecker | None = None,
) -> AsyncGenerator[Progress | LockedTempDir]:
    """Read and check a manifest's rows: yield progress, and at the end a temporary folder with a journal of the rows.

    Nothing is priced, and no service is contacted. Unless the option `reuse` is off, the results that an earlier plan
    or check of the manifest stored are used.

    Args:
        source: The manifest.
        options: The options of the run.
        settings: The user's settings.
        clock: Source of the time; the system clock by default.
        checker: Checks the rows; None means a new `Checker` in this process.

    Raises:
        ManifestError: the manifest cannot be read at all.
    """
    clock = clock or SystemClock()
    reader = ManifestReader(source, options=options.read_options)
    meta = {"price_per_image_milli": "0", "prices": "{}", CHECKED_ONLY: "1"}
    with temp_dir_unless_error() as temp_dir:
        with Journal(temp_dir.path) as journal:
            async with aclosing(write_checked_rows(reader, options, settings, clock, journal, checker)) as steps:
                async for progress in steps:
                    yield replace(progress, phase="checking")
            await journal.write(put_meta(plan_meta(reader, options, clock) | meta))
        yield temp_dir


async def write_checked_rows(
    reader: ManifestReader,
    options: Options,
    settings: Settings,
    clock: Clock,
    journal: Journal,
    checker: RowChecker | None = None,
) -> AsyncGenerator[Progress]:
    """Check the rows of a manifest and write them to a journal; yield progress.

    Rows that are already in the journal are not written again.

    Args:
        reader: The manifest.
        options: The options of the run.
        settings: The user's settings.
        clock: Source of the time.
        journal: The rows are written to it.
        checker: Checks the rows; None means a new `Checker` in this process.
    """
    started = clock.monotonic()
    reuses = options.precheck and options.reuse
    cache = open_check_cache(reader.stored_at or reader.name, options, settings) if reuses else None
    own = journal.folder / THUMBNAILS_NAME
    pictures = cache.thumbnails_path if cache else own
    checker = checker or Checker(**checker_arguments(options, settings))
    options = options.model_copy(update={"base_url": options.base_url or settings.base_url})
    with cache or nullcontext():
        with ThumbnailStore(pictures, settings.thumbnail_bytes if options.precheck else 0) as thumbnails:
            async for rows in _write_rows(reader, options, checker, cache, journal, thumbnails):
                seconds = clock.monotonic() - started
                yield Progress("planning", rows, {}, seconds=seconds, rate=rows / seconds if seconds else 0.0)
        if cache is not None:
            await asyncio.to_thread(copy_thumbnails, pictures, own)
    if options.precheck:
        await journal.write(add_odd_size_findings(settings.quality.odd_size))
        if "odd_size" in options.skip:
            await journal.write(skip_odd_sizes)


def plan_meta(reader: ManifestReader, options: Options, clock: Clock, sha256: str | None = None) -> dict[str, str]:
    """Return the name-value pairs about a plan for a journal's table `meta`, such as the hash of the manifest.

    Args:
        reader: The manifest.
        options: The options of the run.
        clock: Source of the time.
        sha256: The hash of the manifest. If None, it is taken from `reader`, which must have read the whole manifest.
    """
    return {
        "run_id": fresh_run_id(clock),
        "manifest": reader.name,
        "manifest_sha256": reader.sha256 if sha256 is None else sha256,
        "extra_types": json.dumps(reader.extra_types),
        MANIFEST_NOTES: json.dumps(reader.notes),
        "options": options.model_dump_json(),
        "lightmeter": __version__,
        "planned_at": f"{utc_from_timestamp(clock.now()):%Y-%m-%dT%H:%M:%SZ}",
        **({} if reader.stored_at is None else {"manifest_path": reader.stored_at}),
    }


async def _write_rows(
    reader: ManifestReader,
    options: Options,
    checker: RowChecker,
    cache: CheckCache | None,
    journal: Journal,
    thumbnails: ThumbnailStore,
) -> AsyncIterator[int]:
    """Read the rows of a manifest, check them and write them to a journal; yield the number of rows checked so far.

    Args:
        reader: The manifest.
        options: The options of the run.
        checker: Checks the rows, unless the option `precheck` is off.
        cache: File with results of earlier checks; the new results are added to it. None: earlier results are not used,
            and the new ones are not stored.
        journal: The rows that it does not contain yet are written to it.
        thumbnails: The thumbnails of the rows are written to it.
    """
    items: Iterator[Item] = await asyncio.to_thread(iter, reader)
    with open_read_only(journal.folder) as db:
        known = count_rows(db)
    if options.duplicates != "near":  # (near-duplicates need the content of the rows that are in the journal already)
        items = islice(items, known, None)
    pending_write = None
    find_near = NearDuplicates() if options.duplicates == "near" else nullcontext()
    async with (
        AsyncExitStack() as stack,
        checker if options.precheck else nullcontext() as open_checker,
        aclosing(check_rows(items, open_checker, cache, thumbnails)) as steps,
    ):
        stack.callback(reader.stop)  # a thread that waits for standard input would keep the process alive
        near = stack.enter_context(find_near)
        async for step in steps:
            if step.rows:
                if step.rows[0][0].seq == 0:
                    check_sample_column(options, reader.extra_types)
                rows = [_row(item, _for_service(check, options), options) for item, check in step.rows]
                if pending_write is not None:
                    await asyncio.wrap_future(pending_write)
                if near is not None and (old := [row for row in rows if row.seq < known]):
                    await journal.write(index_images(old, near))
                rows = [row for row in rows if row.seq >= known]
                pending_write = journal.submit(
                    add_rows(rows, find_duplicates=options.duplicates != "off", near_duplicates=near)
                )
            yield step.checked
        if pending_write is not None:
            await asyncio.wrap_future(pending_write)


def checker_arguments(options: Options, settings: Settings) -> CheckerArguments:
    """Return the keyword arguments of a `Checker` for these options and settings; they do not include the API key."""
    return {
        "capture_interval_s": options.capture_interval,
        "max_frames": options.max_frames,
        "limits": CheckLimits(settings.max_checks, settings.max_checks_per_host, settings.max_image_bytes),
        "thresholds": settings.quality,
        "robots": RobotsPolicy(settings.robots, settings.robots_txt),
        "max_distinct_frames": options.max_distinct_frames if options.video == "frames" else None,
    }


def _for_service(checked: CheckResult | None, options: Options) -> CheckResult | None:
    """Return a row's result with a warning if the chosen service may not read its format."""
    if checked is None or options.base_url is None:
        return checked
    return replace(checked, findings=(*checked.findings, *hosted_format_findings(checked)))


def _row(item: Item, checked: CheckResult | None, options: Options) -> PlannedRow:
    # The kind found in the content overrides the manifest: the price follows what is sent.
    kind = (checked.kind if checked else None) or item.kind or kind_from_name(item.path or item.url)
    duration = checked.duration_s if checked else None
    frames = frame_range(kind, duration, options.capture_interval, options.max_frames)
    if chosen := checked.frames if checked else ():
        frames = FrameRange(len(chosen), len(chosen))
    status, reason, error = "pending", None, None
    if item.problem:
        status, reason, error = "skipped", "bad_row", item.problem
    elif checked is not None and (found := checked.reason_to_skip(options.skip)) is not None:
        status, reason, error = "skipped", found.check, found.message
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
        size_bytes=checked.size_bytes if checked else None,
        perceptual_hash=checked.perceptual_hash if checked else None,
        fingerprint=checked.fingerprint if checked else None,
        findings=tuple(
            PlannedFinding(found.check, found.severity, found.message, found.value, orjson.dumps(found.facts).decode())
            for found in (checked.findings if checked else ())
        ),
        frames=tuple(PlannedFrame(one.frame, one.index, one.time_s) for one in chosen),
    )
