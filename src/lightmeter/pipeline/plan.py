"""Plan: read the manifest, look at each row, say what it would cost. Spends nothing.

The plan is kept as a journal in a temporary folder, so that a million rows need no memory; `run` adopts it.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import shutil
import tempfile
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final

import orjson

from lightmeter import __version__
from lightmeter.atomic import write_text
from lightmeter.clock import Clock, SystemClock, utc_from_timestamp
from lightmeter.errors import PlanChanged, SettingsError, UsageError
from lightmeter.journal.changes import put_meta
from lightmeter.journal.items import count_by_status, pending_frames, reasons
from lightmeter.journal.planned import PlannedFinding, PlannedRow, add_rows
from lightmeter.journal.store import Journal, reading
from lightmeter.manifest.canonical import canonical_url
from lightmeter.manifest.item import Item
from lightmeter.manifest.readers import ManifestReader, ManifestSource
from lightmeter.media.facts import kind_from_name
from lightmeter.pipeline.embedded import EMBEDDED_BACKENDS, is_embedded
from lightmeter.pipeline.options import Options, make_options
from lightmeter.pipeline.progress import Progress
from lightmeter.prechecks.check import Checked, Checker
from lightmeter.pricing.estimate import CreditRange, FrameRange, advice, frames_of, price_range
from lightmeter.pricing.rates import RateTable, default_rates, per_image
from lightmeter.settings import Settings

__all__ = ["PLAN_VERSION", "Plan", "Reason", "planning", "rates_for", "read_plan"]

PLAN_VERSION: Final = 1
CHUNK: Final = 256
"""Rows read, checked and written together."""

CHECKS_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class Reason:
    """Why rows stand where they stand: a short word, how many, and one of them as an example."""

    status: str
    reason: str
    rows: int
    example: str


@dataclass(frozen=True)
class Plan:
    """What a run would do and cost.

    Attributes:
        run_id: Names the run in every table.
        manifest: Name of the manifest.
        manifest_sha256: Of its bytes.
        rows: All rows.
        counts: Rows by status: `pending` ones would be sent.
        reasons: Why the others would not.
        credits: What it would cost; `high` is None when max_frames is 0 and a duration is unknown.
        price_per_image_milli: Millicredits an image or frame, before rounding.
        options: What was asked for.
        base_url: The service, or None for the embedded one.
        advice: What adding or dropping a back end or feature would change.
        needs_consent: What a run would do silently and therefore refuses without a yes.
    """

    run_id: str
    manifest: str
    manifest_sha256: str
    rows: int
    counts: dict[str, int]
    reasons: tuple[Reason, ...]
    credits: CreditRange
    price_per_image_milli: int
    options: Options
    base_url: str | None
    advice: tuple[str, ...]
    needs_consent: tuple[str, ...]
    folder: Path = field(repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain JSON values: what `plan.json` holds."""
        return {
            "plan_version": PLAN_VERSION,
            "lightmeter": __version__,
            "run_id": self.run_id,
            "manifest": {"name": self.manifest, "sha256": self.manifest_sha256},
            "rows": self.rows,
            "counts": self.counts,
            "reasons": [asdict(reason) for reason in self.reasons],
            "credits": {"low": self.credits.low, "high": self.credits.high, "budget": self.options.budget},
            "price_per_image_millicredits": self.price_per_image_milli,
            "base_url": self.base_url,
            "options": self.options.model_dump(mode="json"),
            "advice": list(self.advice),
            "needs_consent": list(self.needs_consent),
        }

    def save(self, path: Path | str) -> Path:
        """Write the plan as JSON, whole or not at all; returns the path."""
        target = Path(path)
        write_text(target, json.dumps(self.to_dict(), indent=2) + "\n")
        return target

    def must_be(self, sha256: str | None) -> None:
        """Check that the manifest is the one that was planned before; None means nothing was.

        Raises:
            PlanChanged: it is another.
        """
        if sha256 not in (None, self.manifest_sha256):
            raise PlanChanged(
                f"{self.manifest} changed since it was planned.",
                hint="Plan it again: lightmeter plan MANIFEST --save FILE",
            )

    def must_not_need_consent(self) -> None:
        """Check that nothing would be spent silently.

        Raises:
            UsageError: something would, as `needs_consent` says.
        """
        if self.needs_consent:
            raise UsageError(" ".join(self.needs_consent), hint="Name back ends and a frame limit, or say yes: --yes")

    def __str__(self) -> str:
        lines = [f"{self.manifest}: {self.rows} rows, {self.counts['pending']} to send, {self.credits}"]
        lines += [
            f"  {reason.status:<10} {reason.rows:>8}  {reason.reason}: {reason.example}" for reason in self.reasons
        ]
        if self.options.budget is not None:
            lines.append(f"  budget {self.options.budget} credits (hard cap)")
        return "\n".join(lines)


def read_plan(path: Path) -> tuple[str, Options, str]:
    """A saved plan, as (manifest, options, the manifest's sha256).

    Raises:
        SettingsError: the file is no plan of this version, or one of rows that were only in memory.
    """
    try:
        saved = json.loads(path.read_bytes())
        version, manifest = saved["plan_version"], saved["manifest"]
        name, sha256 = manifest["name"], manifest["sha256"]
        options = make_options(**saved["options"])
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror or error}.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise SettingsError(
            f"{path} is no plan file: {error}.", hint="Make one: lightmeter plan MANIFEST --save FILE"
        ) from error
    if version != PLAN_VERSION:
        raise SettingsError(f"{path} has plan version {version}, this lightmeter reads version {PLAN_VERSION}.")
    return name, options, sha256


def rates_for(options: Options, settings: Settings) -> RateTable:
    """The price table a run with these options is planned with: the embedded service has its own defaults."""
    rates = default_rates()
    return rates.with_defaults(EMBEDDED_BACKENDS) if is_embedded(options, settings) else rates


def _consent_needed(options: Options, settings: Settings) -> tuple[str, ...]:
    if is_embedded(options, settings):
        return ()
    needed = []
    if not options.backends:
        needed.append("No back end is named: the account's own defaults, and their price, are not known here.")
    if options.max_frames == 0:
        needed.append("max-frames 0 captures every frame a video has, without a limit.")
    return tuple(needed)


async def planning(
    source: ManifestSource, options: Options, settings: Settings, clock: Clock | None = None
) -> AsyncGenerator[Progress | Plan]:
    """Plan; yields progress while it reads, and the plan last.

    Raises:
        ManifestError: the manifest cannot be read at all.
        SettingsError: an option cannot be priced.
    """
    clock = clock or SystemClock()
    rates = rates_for(options, settings)
    price = per_image(rates, options.backends, options.features, len(options.prompt or ""))
    if is_embedded(options, settings) and not price:
        raise SettingsError(
            f"The embedded service offers none of: {', '.join(options.features)}.",
            hint="It has colors, tags and nsfw; for more, name a service with --base-url.",
        )
    reader = ManifestReader(source)
    folder = Path(tempfile.mkdtemp(prefix="lightmeter-plan-"))
    began = clock.monotonic()
    try:
        with Journal(folder) as journal:
            async for rows in _write_rows(reader, options, journal):
                seconds = clock.monotonic() - began
                yield Progress("planning", rows, {}, seconds=seconds, rate=rows / seconds if seconds else 0.0)
            now = utc_from_timestamp(clock.now())
            meta = {
                "run_id": f"{now:%Y%m%dT%H%M%S}-{secrets.token_hex(3)}",
                "manifest": reader.name,
                "manifest_sha256": reader.sha256,
                "extra_types": json.dumps(reader.extra_types),
                "options": options.model_dump_json(),
                "price_per_image_milli": str(price),
                "lightmeter": __version__,
                "planned_at": f"{now:%Y-%m-%dT%H:%M:%SZ}",
            }
            await journal.write(put_meta(meta))
        plan = _summed_up(folder, meta, options, settings)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(plan, shutil.rmtree, folder, ignore_errors=True)
    yield plan


def _summed_up(folder: Path, meta: dict[str, str], options: Options, settings: Settings) -> Plan:
    with reading(folder) as db:
        counts = count_by_status(db)
        low, high = pending_frames(db)
        why = tuple(Reason(*row) for row in reasons(db))
    price = int(meta["price_per_image_milli"])
    rates = rates_for(options, settings)
    # The embedded service's defaults are ours and no secret: they are as good as named.
    named = options.backends or (rates.defaults if is_embedded(options, settings) else ())
    return Plan(
        run_id=meta["run_id"],
        manifest=meta["manifest"],
        manifest_sha256=meta["manifest_sha256"],
        rows=sum(counts.values()),
        counts=counts,
        reasons=why,
        credits=price_range(price, FrameRange(low, high)),
        price_per_image_milli=price,
        options=options,
        base_url=options.base_url or settings.base_url,
        advice=tuple(advice(rates, named, options.features)),
        needs_consent=_consent_needed(options, settings),
        folder=folder,
    )


async def _write_rows(reader: ManifestReader, options: Options, journal: Journal) -> AsyncIterator[int]:
    """Read, check and write rows chunk by chunk; yields how many there are so far."""
    items: Iterator[Item] = await asyncio.to_thread(iter, reader)
    done = 0
    async with AsyncExitStack() as stack:
        checker = await stack.enter_async_context(_checker(options)) if options.precheck else None
        while chunk := await asyncio.to_thread(lambda: list(islice(items, CHUNK))):
            checked = await _check_all(checker, chunk)
            rows = [_row(item, seen, options) for item, seen in zip(chunk, checked, strict=True)]
            await journal.write(add_rows(rows))
            done += len(rows)
            yield done


def _checker(options: Options) -> Checker:
    return Checker(
        capture_interval_s=options.capture_interval, max_frames=options.max_frames, concurrency=CHECKS_AT_ONCE
    )


async def _check_all(checker: Checker | None, chunk: list[Item]) -> list[Checked | None]:
    if checker is None:
        return [None] * len(chunk)

    async def check(item: Item) -> Checked | None:
        return None if item.problem else await checker.check(item)

    return list(await asyncio.gather(*(check(item) for item in chunk)))


def _row(item: Item, checked: Checked | None, options: Options) -> PlannedRow:
    extra = orjson.dumps(item.extra).decode()
    identity = None if item.problem else (item.path or canonical_url(item.url))
    # What was seen in the content wins over what the manifest says: the price follows what is sent.
    kind = (checked.kind if checked else None) or item.kind or kind_from_name(item.path or item.url)
    duration = checked.duration_s if checked else None
    frames = frames_of(kind, duration, options.capture_interval, options.max_frames)
    status, reason, error = "pending", None, None
    if item.problem:
        status, reason, error = "skipped", "bad_row", item.problem
    elif checked is not None and checked.fatal is not None:
        status, reason, error = "skipped", checked.fatal.check, checked.fatal.message
    findings = tuple(
        PlannedFinding(found.check, found.severity, found.message, found.value, orjson.dumps(found.facts).decode())
        for found in (checked.findings if checked else ())
    )
    return PlannedRow(
        seq=item.seq,
        item_id=item.item_id,
        url=item.url,
        path=item.path,
        identity=identity,
        kind=kind,
        extra=extra,
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
        findings=findings,
    )
