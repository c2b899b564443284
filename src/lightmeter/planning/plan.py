"""A plan: what a run would do with each row, and what it would cost. A value; nothing here spends.

Its rows are a journal in a temporary folder, so that a million of them need no memory; `run` adopts it. How a plan is
made from a manifest or from a plan file is in `planning`, how it looks as a file in `planfile`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Unpack

from lightmeter import __version__
from lightmeter.cache.reuse import reuse_answers
from lightmeter.clock import Clock, SystemClock
from lightmeter.embedded_service import is_embedded
from lightmeter.errors import UsageError
from lightmeter.html_fragments import esc
from lightmeter.journal.commands import get_meta, put_meta
from lightmeter.journal.files import copy_journal, journal_path
from lightmeter.journal.header import fresh_run_id
from lightmeter.journal.items import (
    cached_frames,
    count_by_reason,
    count_by_status,
    pending_video_lengths,
    sendable_lengths,
    unsent_frames,
)
from lightmeter.journal.plan_rows import clear_cached_rows, planned_rows, set_frames
from lightmeter.journal.store import Journal, open_read_only
from lightmeter.options import REQUEST_OPTIONS, Options, PlanOptions, make_options
from lightmeter.planning.affordable_rows import RowRange, affordability_sentence, affordable_rows
from lightmeter.planning.plan_file import PLAN_VERSION, write_plan_file
from lightmeter.planning.preflight import ServiceInfo
from lightmeter.planning.price_table import describe_own_prices, price_meta, rates_for
from lightmeter.pricing.coverage import VideoCoverage, coverage_advice, video_coverage
from lightmeter.pricing.estimate import CreditRange, add_retry_cost, frame_range, price_advice, price_range
from lightmeter.pricing.rates import RateTable
from lightmeter.settings import Settings, read_settings
from lightmeter.tempdirs import LockedTempDir

__all__ = [
    "Plan",
    "ReasonCount",
    "must_be_explicit",
    "plan_from_journal",
]


@dataclass(frozen=True, slots=True)
class ReasonCount:
    """Why rows stand where they stand: a short word, how many, and one of them as an example."""

    status: str
    reason: str
    rows: int
    example: str


@dataclass(frozen=True)
class Plan:
    """What a run would do and cost.

    Attributes:
        run_id: Names the plan, and the first run made of it.
        manifest: Name of the manifest.
        manifest_sha256: Of its bytes.
        rows: All rows.
        counts: Rows by status: `pending` ones would be sent, `ok` ones are answered by an earlier run's answers.
        reasons: Why the others would not.
        credits: What it would cost; `high` is None when max_frames is 0 and a duration is unknown.
        saved: What the rows that earlier answers answer would have cost.
        price_per_image_milli: Millicredits an image or frame, before rounding.
        retry_per_image_milli: Millicredits an image or frame for asking the question of `ask` again; 0 without one.
        options: What was asked for.
        base_url: The service, or None for the embedded one.
        videos: How much of the videos to send is looked at; None without videos.
        advice: What adding or dropping a back end or feature, or another capture interval, would change.
        needs_consent: What a run would do silently and therefore refuses without a yes.
        service: What the service said of the balance and its back ends, before the rows were looked at.
        folder: Where its rows are, as long as the plan is there.
        kept: What the folder lives as long as: plans that differ in their budget alone share it.
    """

    run_id: str
    manifest: str
    manifest_sha256: str
    rows: int
    counts: dict[str, int]
    reasons: tuple[ReasonCount, ...]
    credits: CreditRange
    saved: CreditRange
    price_per_image_milli: int
    options: Options
    base_url: str | None
    videos: VideoCoverage | None
    advice: tuple[str, ...]
    needs_consent: tuple[str, ...]
    service: ServiceInfo = field(repr=False, compare=False)
    folder: Path = field(repr=False, compare=False)
    kept: object = field(repr=False, compare=False)
    retry_per_image_milli: int = 0

    @property
    def balance(self) -> int | None:
        """Credits of the account when the plan was made; None when not known, and for the embedded service."""
        return self.service.balance

    @cached_property
    def affordable_rows(self) -> RowRange | None:
        """How many rows the balance pays for, from the first row on; None when the balance is not known."""
        return self._rows_for(self.balance)

    @cached_property
    def budget_rows(self) -> RowRange | None:
        """How many rows the budget pays for, from the first row on; None without a budget."""
        return self._rows_for(self.options.budget)

    @property
    def affordability_sentences(self) -> tuple[str, ...]:
        """What the balance and the budget pay for: one line for each that is known, without a full stop."""
        amounts = (("balance", self.balance, self.affordable_rows), ("budget", self.options.budget, self.budget_rows))
        rows = self.counts["pending"]
        return tuple(
            affordability_sentence(name, amount, paid, rows)
            for name, amount, paid in amounts
            if amount is not None and paid is not None
        )

    def _rows_for(self, credits_: int | None) -> RowRange | None:
        if credits_ is None:
            return None
        rows = self.counts["pending"]
        if self.credits.high is not None and self.credits.high <= credits_:
            return RowRange(rows, rows)
        with open_read_only(self.folder) as db:
            return affordable_rows(db, self.price_per_image_milli, credits_, self.retry_per_image_milli)

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain JSON values, without its rows: what `plan --json` prints and `plan.json` begins with."""
        return {
            "plan_version": PLAN_VERSION,
            "lightmeter": __version__,
            "run_id": self.run_id,
            "manifest": {"name": self.manifest, "sha256": self.manifest_sha256, "rows_read": self.rows},
            "rows": self.rows,
            "counts": self.counts,
            "reasons": [asdict(reason) for reason in self.reasons],
            "credits": {"low": self.credits.low, "high": self.credits.high, "budget": self.options.budget},
            "saved": {"cache": {"low": self.saved.low, "high": self.saved.high}},
            "price_per_image_millicredits": self.price_per_image_milli,
            "retry_per_image_millicredits": self.retry_per_image_milli,
            "balance": self.balance,
            "affordable_rows": {
                "balance": None if self.affordable_rows is None else asdict(self.affordable_rows),
                "budget": None if self.budget_rows is None else asdict(self.budget_rows),
            },
            "base_url": self.base_url,
            "service": self.service.to_dict(),
            "options": self.options.model_dump(mode="json"),
            "videos": None if self.videos is None else self.videos.to_dict(),
            "advice": list(self.advice),
            "needs_consent": list(self.needs_consent),
        }

    def save(self, path: Path | str) -> Path:
        """Write the plan as a file that `run --plan` and `load_plan` take; returns its path.

        With many rows a second file is written beside it: see `planfile`.
        """
        target = Path(path)
        with open_read_only(self.folder) as db:
            meta = get_meta(db)
            head = self.to_dict()
            head["manifest"] |= {"path": meta.get("manifest_path"), "columns": json.loads(meta["extra_types"])}
            head |= {"planned_at": meta["planned_at"], "prices_millicredits": json.loads(meta["prices"])}
            write_plan_file(target, head, planned_rows(db))
        return target

    def with_options(self, **changes: Unpack[PlanOptions]) -> Plan:
        """The same rows, asked something else: priced anew, with no row looked at again.

        Where more than the budget and the pace changes, a copy of the rows is made: some seconds for a million.

        Raises:
            SettingsError: an option is wrong; the message names it. Or the service has no such back end.
            UsageError: pre-checks are wanted that this plan was made without.
        """
        options = make_options(**{**self.options.model_dump(), **changes})
        if options.precheck and not self.options.precheck:
            raise UsageError("This plan was made without looking at its rows.", hint="Plan the manifest anew.")
        settings = read_settings()
        if not _asks_otherwise(self.options, options):
            needed = _consent_needed(options, settings, self.service)
            return replace(self, options=options, needs_consent=needed)
        return _replanned(self, options, settings, SystemClock())

    def must_not_need_consent(self) -> None:
        """Check that nothing would be spent silently.

        Raises:
            UsageError: something would, as `needs_consent` says.
        """
        _refuse(self.needs_consent)

    def __str__(self) -> str:
        lines = [f"{self.manifest}: {self.rows} rows read, {self.counts['pending']} to send, {self.credits}"]
        if self.counts["ok"]:
            lines.append(f"  {self.counts['ok']} rows are answered by earlier runs, which saves {self.saved}")
        lines += [
            f"  {reason.status:<10} {reason.rows:>8}  {reason.reason}: {reason.example}" for reason in self.reasons
        ]
        if self.options.ask is not None:
            lines.append(
                f"  question {self.options.ask.name}: an answer that is not valid is asked again once; "
                "the upper price pays for that everywhere"
            )
        if self.options.prices is not None:
            lines.append(f"  {describe_own_prices(self.options.prices)}")
        lines += [f"  {sentence}" for sentence in self.affordability_sentences]
        if self.videos is not None and self.videos.sentence is not None:
            lines.append(f"  {self.videos.sentence}")
        if self.service.note is not None:
            lines.append(f"  note: {self.service.note}")
        lines += [f"  advice: {sentence}" for sentence in self.advice]
        lines += [f"  needs your yes: {sentence}" for sentence in self.needs_consent]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        first, *more = str(self).splitlines()
        return f"<div><b>{esc(first)}</b><ul>{''.join(f'<li>{esc(line.strip())}</li>' for line in more)}</ul></div>"


def plan_from_journal(scratch: LockedTempDir, options: Options, settings: Settings, service: ServiceInfo) -> Plan:
    """The plan whose rows are the journal in `scratch`, which goes when the plan does.

    Args:
        scratch: The folder.
        options: What is asked for.
        settings: The user's.
        service: What the service said.

    Raises:
        JournalError: there is no journal.
    """
    with open_read_only(scratch.path) as db:
        meta, counts = get_meta(db), count_by_status(db)
        frames = unsent_frames(db)
        why = tuple(ReasonCount(*row) for row in count_by_reason(db))
        reused = cached_frames(db)
        videos = video_coverage(pending_video_lengths(db), options.capture_interval, options.max_frames)
    price, rates = int(meta["price_per_image_milli"]), rates_for(options, settings, service)
    retry = int(meta.get("retry_per_image_milli", "0"))
    # The embedded service's defaults are ours and no secret: they are as good as named.
    named = options.backends or (rates.defaults if is_embedded(options, settings) else ())
    return Plan(
        run_id=meta["run_id"],
        manifest=meta["manifest"],
        manifest_sha256=meta["manifest_sha256"],
        rows=sum(counts.values()),
        counts=counts,
        reasons=why,
        credits=add_retry_cost(price_range(price, frames), retry, frames),
        saved=price_range(price, reused),
        price_per_image_milli=price,
        retry_per_image_milli=retry,
        options=options,
        base_url=options.base_url or settings.base_url,
        videos=videos,
        advice=(
            *price_advice(rates, named, options.features),
            *_provider_notes(rates, options, settings),
            *coverage_advice(videos),
        ),
        needs_consent=_consent_needed(options, settings, service),
        service=service,
        folder=scratch.path,
        kept=scratch,
    )


def _provider_notes(rates: RateTable, options: Options, settings: Settings) -> Iterator[str]:
    """Notes on providers that the embedded service would call: its credits are play money, their bills are not."""
    if not is_embedded(options, settings):
        return
    for name in options.backends:
        if name in rates.rates and name not in rates.local:
            yield f"{name} is a provider: pictures are sent to it, and it charges its own account beside these credits."


def _consent_needed(options: Options, settings: Settings, service: ServiceInfo) -> tuple[str, ...]:
    if is_embedded(options, settings):
        return ()
    needed = []
    if not options.backends and service.defaults:
        names = ", ".join(service.defaults)
        needed.append(f"No back end is named: the service uses its defaults, which may change: now {names}.")
    elif not options.backends:
        needed.append("No back end is named: the account's own defaults, and their price, are not known here.")
    if options.max_frames == 0:
        needed.append("max-frames 0 captures every frame a video has, without a limit.")
    return tuple(needed)


def must_be_explicit(options: Options, settings: Settings) -> None:
    """Check that a run with these options would spend nothing silently: known before any row is looked at.

    Raises:
        UsageError: it would, as `Plan.needs_consent` says.
    """
    _refuse(_consent_needed(options, settings, ServiceInfo()))


def _refuse(needed: Sequence[str]) -> None:
    if needed:
        raise UsageError(" ".join(needed), hint="Name back ends and a frame limit, or say yes: --yes")


def _replanned(plan: Plan, options: Options, settings: Settings, clock: Clock) -> Plan:
    """A copy of the plan's rows, counted, priced and looked up as `options` ask."""
    same = plan.base_url == (options.base_url or settings.base_url)
    service = plan.service if same else ServiceInfo()
    prices = price_meta(options, settings, service)
    scratch = LockedTempDir()
    try:
        folder = scratch.path
        copy_journal(journal_path(plan.folder), journal_path(folder))
        with Journal(folder) as journal:
            journal.submit(clear_cached_rows).result()
            if _counts_frames_otherwise(plan.options, options):
                journal.submit(set_frames(_lengths(folder, options))).result()
            meta = {"run_id": fresh_run_id(clock), "options": options.model_dump_json(), **prices}
            journal.submit(put_meta(meta)).result()
            reuse_answers(journal, options, settings, clock.now())
        return plan_from_journal(scratch, options, settings, service)
    except BaseException:
        scratch.remove()
        raise


def _asks_otherwise(before: Options, now: Options) -> bool:
    """Whether rows could stand or cost otherwise, and not only the budget and the pace are others."""
    return any(
        getattr(before, name) != getattr(now, name) for name in (*REQUEST_OPTIONS, "base_url", "reuse", "prices")
    )


def _counts_frames_otherwise(before: Options, now: Options) -> bool:
    return (before.capture_interval, before.max_frames) != (now.capture_interval, now.max_frames)


def _lengths(folder: Path, options: Options) -> Sequence[tuple[str | None, int | None, int, int | None]]:
    """Pictures of each kind and length there is; captures are whole seconds apart, so lengths are rounded."""
    with open_read_only(folder) as db:
        groups = sendable_lengths(db)
    counted = []
    for kind, seconds, _ in groups:
        frames = frame_range(kind, seconds, options.capture_interval, options.max_frames)
        counted.append((kind, seconds, frames.low, frames.high))
    return counted
