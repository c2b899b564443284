"""The plan of a run: what the run would do with each row, and what that would cost. Spends nothing.

The rows of a plan are stored in a journal in a temporary folder, so that memory use does not grow with their number;
`run` copies that journal into the output folder. The module `build` makes a plan from a manifest or a plan file;
`plan_file` reads and writes plan files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
from lightmeter.journal.commands.plan_rows import clear_cached_rows, planned_rows, set_frames
from lightmeter.journal.commands.submissions import get_meta, put_meta
from lightmeter.journal.files import copy_journal, journal_path
from lightmeter.journal.header import fresh_run_id
from lightmeter.journal.queries.items import (
    cached_frames,
    count_by_reason,
    count_by_status,
    pending_video_lengths,
    sendable_lengths,
    unsent_frames,
)
from lightmeter.journal.store import Journal, open_read_only
from lightmeter.options import REQUEST_OPTIONS, VIDEO_OPTIONS, Options, PlanOptions, make_options
from lightmeter.planning.affordable_rows import RowRange, affordability_sentence, affordable_rows
from lightmeter.planning.frame_savings import FrameSavings, frame_savings, unsent_credits
from lightmeter.planning.plan_file import PLAN_VERSION, write_plan_file
from lightmeter.planning.preflight import ServiceInfo
from lightmeter.planning.price_sources import describe_own_prices, price_meta, rates_for
from lightmeter.pricing.estimate import CreditRange, add_retry_cost, frame_range, price_advice, price_range
from lightmeter.pricing.rates import RateTable
from lightmeter.pricing.video_coverage import VideoCoverage, coverage_advice, video_coverage
from lightmeter.settings import Settings, read_settings
from lightmeter.tempdirs import LockedTempDir


@dataclass(frozen=True, slots=True)
class ReasonCount:
    """Number of rows of a plan with the same status and reason; `example` is the error message of one of them."""

    status: str
    reason: str
    rows: int
    example: str


@dataclass(frozen=True)
class Plan:
    """What a run would do with each row, and what it would cost.

    Attributes:
        run_id: Id of the plan, and of the first run made from it.
        manifest: Name of the manifest.
        manifest_sha256: SHA-256 of the manifest.
        rows: Number of rows.
        counts: Number of rows by status. A run would send `pending` rows; `ok` rows have a cached answer of an earlier
            run.
        reasons: Why the other rows would not be sent.
        credits: The price; `high` is None if max_frames is 0 and the length of a video is unknown.
        saved: Price range of the rows that have a cached answer, which the run does not pay again.
        price_per_image_milli: Millicredits for an image or frame, before rounding.
        frame_savings: What the run saves by sending only frames of videos; None if it sends no video so.
        retry_per_image_milli: Millicredits to repeat the user's question (`--ask`) about an image or frame after an
            invalid answer; 0 if there is no such question.
        options: The options of the run.
        base_url: The base URL of the service; None for the embedded service.
        videos: How much of the videos the captured frames cover; None if there are no videos.
        advice: What another back end, feature or capture interval would change, a sentence each.
        needs_consent: What the user must allow (`--yes`) before a run, such as no frame limit, a sentence each.
        service: The balance and the back ends that the service reported before the rows were read.
        folder: The temporary folder with the rows. It is removed when `folder_owner` is garbage-collected.
        folder_owner: The temporary folder as an object. Plans with the same rows share it.
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
    folder_owner: object = field(repr=False, compare=False)
    retry_per_image_milli: int = 0
    frame_savings: FrameSavings | None = None

    @property
    def balance(self) -> int | None:
        """Credits of the account when the plan was made; None if unknown or if the service is embedded."""
        return self.service.balance

    @cached_property
    def affordable_rows(self) -> RowRange | None:
        """How many rows to be sent the balance pays for, from the first on; None if the balance is unknown."""
        return self._rows_for(self.balance)

    @cached_property
    def budget_rows(self) -> RowRange | None:
        """How many rows to be sent the budget pays for, from the first on; None if there is no budget."""
        return self._rows_for(self.options.budget)

    @property
    def affordability_sentences(self) -> tuple[str, ...]:
        """One sentence on how many rows the balance pays for, and one for the budget; unknown amounts are left out."""
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
        """Return the plan without its rows as plain JSON values, as `plan --json` prints it."""
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
            "frames": None if self.frame_savings is None else self.frame_savings.to_dict(),
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
        """Write a plan file for `run --plan` and `load_plan`, and return its path.

        A plan of many rows is written as two files: see `lightmeter.planning.plan_file`.
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
        """Return a plan of the same rows with other options.

        The rows are priced again, but not read or checked again. If an option changes the content or the cost of
        answers, the rows are copied, which takes some seconds for a million rows.

        Args:
            changes: The options to change: see `lightmeter.options.PlanOptions`.

        Raises:
            SettingsError: an option is wrong (the message names it), or the service lacks a back end.
            UsageError: the option needs the rows to be checked again: pre-checks are turned on, or other frames of
                videos would be sent.
        """
        options = make_options(**{**self.options.model_dump(), **changes})
        choices = (*VIDEO_OPTIONS, *(("capture_interval", "max_frames") if options.video == "frames" else ()))
        if any(getattr(options, name) != getattr(self.options, name) for name in choices):
            raise UsageError("Other frames of the videos would be sent.", hint="Plan the manifest again.")
        if options.precheck and not self.options.precheck:
            raise UsageError("This plan was made without pre-checks.", hint="Plan the manifest again, with pre-checks.")
        settings = read_settings()
        relevant = (*REQUEST_OPTIONS, "base_url", "reuse", "prices")  # for the status or the price of a row
        if all(getattr(self.options, name) == getattr(options, name) for name in relevant):
            needed = _consent_needed(options, settings, self.service)
            return replace(self, options=options, needs_consent=needed)
        return _replanned(self, options, settings, SystemClock())

    def must_not_need_consent(self) -> None:
        """Raise UsageError with the sentences of `needs_consent` (what the user must allow), if there are any."""
        _raise_if_needed(self.needs_consent)

    def __str__(self) -> str:
        lines = [f"{self.manifest}: {self.rows} rows read, {self.counts['pending']} to send, {self.credits}"]
        if self.counts["ok"]:
            lines.append(f"  {self.counts['ok']} rows are answered by earlier runs, which saves {self.saved}")
        lines += [
            f"  {reason.status:<10} {reason.rows:>8}  {reason.reason}: {reason.example}" for reason in self.reasons
        ]
        if self.options.ask is not None:
            lines.append(
                f"  question {self.options.ask.name}: an answer that is not valid is requested again once; "
                "the upper price includes that for every picture"
            )
        if self.options.prices is not None:
            lines.append(f"  {describe_own_prices(self.options.prices)}")
        lines += [f"  {sentence}" for sentence in self.affordability_sentences]
        if self.frame_savings is not None:
            lines.append(f"  {self.frame_savings.sentence}")
        if self.videos is not None and self.videos.sentence is not None:
            lines.append(f"  {self.videos.sentence}")
        if self.service.note is not None:
            lines.append(f"  note: {self.service.note}")
        lines += [f"  advice: {sentence}" for sentence in self.advice]
        lines += [f"  needs your consent: {sentence}" for sentence in self.needs_consent]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        first, *more = str(self).splitlines()
        return f"<div><b>{esc(first)}</b><ul>{''.join(f'<li>{esc(line.strip())}</li>' for line in more)}</ul></div>"


@contextmanager
def temp_dir_unless_error() -> Iterator[LockedTempDir]:
    """Yield a new temporary folder, and remove it if the block raises an exception."""
    temp_dir = LockedTempDir()
    try:
        yield temp_dir
    except BaseException:
        temp_dir.remove()
        raise


def plan_from_journal(folder_owner: LockedTempDir, options: Options, settings: Settings, service: ServiceInfo) -> Plan:
    """Return a plan object for the rows in the journal in a temporary folder.

    Args:
        folder_owner: The temporary folder, which is removed with the plan.
        options: The options of the run.
        settings: The user's settings.
        service: The balance and the back ends that the service reported.

    Raises:
        JournalError: the folder holds no journal.
    """
    with open_read_only(folder_owner.path) as db:
        meta, counts = get_meta(db), count_by_status(db)
        frames = unsent_frames(db)
        reason_counts = tuple(ReasonCount(*row) for row in count_by_reason(db))
        reused = cached_frames(db)
        credits_ = unsent_credits(db, int(meta["price_per_image_milli"]))
        saved_by_frames = frame_savings(db, options, int(meta["price_per_image_milli"]))
        videos = video_coverage(pending_video_lengths(db), options.capture_interval, options.max_frames)
    price, rates = int(meta["price_per_image_milli"]), rates_for(options, settings, service)
    retry = int(meta.get("retry_per_image_milli", "0"))
    # The defaults of the embedded service are known, so a run that names no back end is clear about its price.
    named = options.backends or (rates.defaults if is_embedded(options, settings) else ())
    return Plan(
        run_id=meta["run_id"],
        manifest=meta["manifest"],
        manifest_sha256=meta["manifest_sha256"],
        rows=sum(counts.values()),
        counts=counts,
        reasons=reason_counts,
        credits=add_retry_cost(credits_, retry, frames),
        saved=price_range(price, reused),
        price_per_image_milli=price,
        retry_per_image_milli=retry,
        options=options,
        base_url=options.base_url or settings.base_url,
        videos=videos,
        frame_savings=saved_by_frames,
        advice=(
            *price_advice(rates, named, options.features),
            *_provider_notes(rates, options, settings),
            *coverage_advice(videos),
        ),
        needs_consent=_consent_needed(options, settings, service),
        service=service,
        folder=folder_owner.path,
        folder_owner=folder_owner,
    )


def _provider_notes(rates: RateTable, options: Options, settings: Settings) -> Iterator[str]:
    """Yield a warning for each provider, such as OpenAI, that the embedded service would call: it charges money."""
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
    """Raise UsageError if no back end is named, or `max_frames` is 0; never for the embedded service."""
    _raise_if_needed(_consent_needed(options, settings, ServiceInfo()))


def _raise_if_needed(needed: Sequence[str]) -> None:
    if needed:
        raise UsageError(" ".join(needed), hint="Name back ends and a frame limit, or consent with --yes")


def _replanned(plan: Plan, options: Options, settings: Settings, clock: Clock) -> Plan:
    """Return a plan of the same rows with new options: frames, prices and cached answers are determined again."""
    same = plan.base_url == (options.base_url or settings.base_url)
    service = plan.service if same else ServiceInfo()
    prices = price_meta(options, settings, service)
    with temp_dir_unless_error() as temp_dir:
        folder = temp_dir.path
        copy_journal(journal_path(plan.folder), journal_path(folder))
        with Journal(folder) as journal:
            journal.submit(clear_cached_rows).result()
            before = plan.options
            if (before.capture_interval, before.max_frames) != (options.capture_interval, options.max_frames):
                journal.submit(set_frames(_frames_by_length(folder, options))).result()
            meta = {"run_id": fresh_run_id(clock), "options": options.model_dump_json(), **prices}
            journal.submit(put_meta(meta)).result()
            reuse_answers(journal, options, settings, clock.now())
        return plan_from_journal(temp_dir, options, settings, service)


def _frames_by_length(folder: Path, options: Options) -> Sequence[tuple[str | None, int | None, int, int | None]]:
    """Return how many frames would be captured for each kind of media and length among the rows of a plan.

    Each tuple is (`image`, `video` or None, seconds or None, fewest frames, most frames or None if unlimited).
    """
    with open_read_only(folder) as db:
        lengths = [(kind, seconds) for kind, seconds, _ in sendable_lengths(db)]
    frames = [frame_range(*length, options.capture_interval, options.max_frames) for length in lengths]
    return [(*length, count.low, count.high) for length, count in zip(lengths, frames, strict=True)]
