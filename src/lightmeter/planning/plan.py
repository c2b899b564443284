"""The plan of a run: what the run would do with each row, and what that would cost. Spends nothing.

The rows of a plan are stored in a journal in a temporary folder, so that memory use does not grow with their number;
`run` copies that journal into the output folder. The module `build` makes a plan from a manifest or a plan file;
`plan_file` reads and writes plan files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn, Unpack

from lightmeter.cache.reuse import reuse_answers
from lightmeter.clock import Clock, SystemClock
from lightmeter.embedded_service import is_embedded
from lightmeter.errors import UsageError
from lightmeter.journal.commands.plan_rows import clear_cached_rows, planned_rows, set_frames
from lightmeter.journal.commands.screen_rows import SCREEN_META, ScreenOutcome
from lightmeter.journal.commands.submissions import get_meta, put_meta
from lightmeter.journal.files import copy_journal, journal_path
from lightmeter.journal.header import MANIFEST_NOTES, fresh_run_id
from lightmeter.journal.queries.frame_counts import (
    UNSENT,
    cached_frames,
    frames_to_send,
    pending_video_lengths,
    screened_frames,
)
from lightmeter.journal.queries.items import count_by_reason, count_by_status
from lightmeter.journal.queries.send_order import StratumCount, count_affordable
from lightmeter.journal.store import Journal, open_read_only
from lightmeter.journal.thumbnails import THUMBNAILS_NAME, copy_thumbnails
from lightmeter.option_arguments import RunArguments
from lightmeter.options import REQUEST_OPTIONS, Options, options_of, parse_options
from lightmeter.paths import local_path
from lightmeter.planning.affordable_rows import (
    RowRange,
    affordability_sentence,
    affordable_rows,
    rows_within_budget,
    sample_sentence,
)
from lightmeter.planning.comparison.adjustable_options import check_rows_stay_valid
from lightmeter.planning.comparison.cost_by_column import ColumnCost, cost_by_column
from lightmeter.planning.comparison.plan_comparison import PlanComparison, PlanSnapshot, compare_plans, read_snapshot
from lightmeter.planning.consent import consent_needed, provider_notes, raise_if_consent_needed
from lightmeter.planning.frame_counts import frames_by_length, frames_to_skip
from lightmeter.planning.frame_savings import FrameSavings, frame_savings
from lightmeter.planning.plan_file import thumbnails_beside, write_plan_file
from lightmeter.planning.plan_text import ReasonCount, plan_as_html, plan_as_json, plan_as_text
from lightmeter.planning.preflight import ServiceInfo
from lightmeter.planning.price_sources import price_meta, rates_for, with_prices_from_settings
from lightmeter.planning.send_order import check_column, check_sample_column, set_send_order
from lightmeter.pricing.estimate import CreditRange, FrameRange, price_advice, price_range, run_price
from lightmeter.pricing.rates import Rounding, least_charged_milli, parse_rounding
from lightmeter.pricing.video_coverage import VideoCoverage, coverage_advice, video_coverage
from lightmeter.settings import Settings, read_settings
from lightmeter.tempdirs import LockedTempDir, temp_dir_unless_error


@dataclass(frozen=True)
class Plan:
    """What a run would do with each row, and what it would cost.

    Attributes:
        run_id: Id of the plan, and of the first run made from it.
        manifest: Name of the manifest.
        manifest_sha256: SHA-256 of the manifest.
        rows: Number of rows.
        counts: Status → number of rows. A run would send `pending` rows; `ok` rows have a cached answer of an earlier
            run.
        reasons: Why rows would not be sent, with the number of rows for each reason.
        credits: The price; `high` is None if `max_frames` is 0 (no limit) and the length of a video is unknown.
        saved: Price range of the rows that have a cached answer, for which the run does not pay again.
        skipped_credits: Price of the rows that pre-checks skip. The range starts at 0, because the service might not
            charge for them; it ends at their full price.
        price_per_image_milli: Millicredits for an image or frame, before rounding.
        frame_savings: What the run saves by sending single frames instead of videos; None if it sends no such frames.
        retry_per_image_milli: Millicredits to repeat the user's question (`--ask`) about an image or frame after an
            invalid answer; 0 if there is no such question.
        screen: How many rows the local back ends of the option `screen` passed and rejected; None if they have not
            analyzed the rows.
        saved_by_screen: Price range of the rejected rows that are not sent. A random sample of the rejected rows is
            sent and paid for, and does not count.
        options: The options of the run.
        base_url: The base URL of the service; None for the embedded service.
        videos: How much of the videos the captured frames cover; None if there are no videos.
        advice: What another back end, feature or capture interval would change, a sentence each.
        needs_consent: What the user must allow (`--yes`) before a run, such as no frame limit, a sentence each.
        service: The balance and the back ends that the service reported before the rows were read.
        folder: The temporary folder with the journal of the rows.
        folder_owner: Object that removes the folder when it is garbage-collected. Plans with the same rows share it.
        rounding: What the service says that it rounds up to whole credits; None if it does not say.
        manifest_notes: What was read otherwise than it stands in the manifest, or not at all, with counts.
    """

    run_id: str
    manifest: str
    manifest_sha256: str
    rows: int
    counts: dict[str, int]
    reasons: tuple[ReasonCount, ...]
    credits: CreditRange
    saved: CreditRange
    skipped_credits: CreditRange
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
    screen: ScreenOutcome | None = None
    saved_by_screen: CreditRange = field(default_factory=lambda: CreditRange(0, 0))
    frame_savings: FrameSavings | None = None
    rounding: Rounding | None = None
    manifest_notes: tuple[str, ...] = ()

    @property
    def least_charged_milli(self) -> int:
        """Least millicredits that an image or frame adds to a charge.

        If the service rounds up each image, this is its price rounded up to a multiple of 1000, and each image costs
        exactly that. Otherwise, it is the price before rounding: a request whose sum is rounded up may cost more.
        """
        return least_charged_milli(self.price_per_image_milli, self.rounding)

    @property
    def is_free(self) -> bool:
        """Whether the run costs nothing: the embedded service analyzes it with local models, and charges no price."""
        return self.base_url is None and self.price_per_image_milli == 0 and self.retry_per_image_milli == 0

    @property
    def price(self) -> str:
        """The credits of the run as a text, or that it is free."""
        if self.is_free:
            cap = "" if self.options.budget is None else f"; budget {self.options.budget}: nothing to cap"
            return f"free (local models){cap}"
        return f"{self.credits} of play money" if self.base_url is None and self.options.prices else str(self.credits)

    @property
    def balance(self) -> int | None:
        """Credits of the account when the plan was made; None if unknown or if the service is embedded."""
        return self.service.balance

    @property
    def near_duplicates(self) -> int:
        """Number of rows that are not paid for because their image looks the same as the image of an earlier row."""
        return sum(reason.rows for reason in self.reasons if reason.reason == "near_duplicate")

    @property
    def saved_by_near_duplicates(self) -> CreditRange:
        """Credits that the run saves by not paying for the rows counted in `near_duplicates`."""
        return price_range(self.least_charged_milli, FrameRange(self.near_duplicates, self.near_duplicates))

    @property
    def savings_sentences(self) -> tuple[str, ...]:
        """A sentence for each reason why rows need not be paid for: cached, near-duplicate, skipped or screened."""
        cached, near = self.counts["ok"], self.near_duplicates
        sentences = [
            f"{cached} rows are answered by earlier runs, which saves {self.saved}" if cached else None,
            f"{near} rows are near-duplicates, which saves {self.saved_by_near_duplicates}" if near else None,
            self.skipped_sentence,
            self.screen_sentence,
        ]
        return tuple(sentence for sentence in sentences if sentence is not None)

    @cached_property
    def affordable_rows(self) -> RowRange | None:
        """How many rows the account's balance pays for, as a range; None if the balance is unknown."""
        return self._rows_for(self.balance)

    @cached_property
    def budget_rows(self) -> RowRange | None:
        """How many rows the option `budget` pays for, as a range; None without a budget."""
        return self._rows_for(self.options.budget, skips_rows=self.options.sample == "order")

    @cached_property
    def budget_strata(self) -> tuple[StratumCount, ...]:
        """How many rows the budget pays for, for each value of the column that the option `sample` names.

        Empty without a budget, or if `sample` names no column.
        """
        column, paid = self.options.sample_column, self.budget_rows
        if column is None or paid is None:
            return ()
        with open_read_only(self.folder) as db:
            return tuple(count_affordable(db, column, paid.low, paid.high))

    @property
    def affordability_sentences(self) -> tuple[str, ...]:
        """Sentences on how many rows the balance (if known) and the budget (if set) pay for.

        If the budget may be too small for all rows and `sample` is not `order`, a last one says how rows are chosen.
        """
        amounts = (("balance", self.balance, self.affordable_rows), ("budget", self.options.budget, self.budget_rows))
        rows = self.counts["pending"]
        sentences = tuple(
            affordability_sentence(name, amount, paid, rows)
            for name, amount, paid in amounts
            if amount is not None and paid is not None
        )
        if self.budget_rows is None or self.budget_rows.low == rows or self.options.sample == "order":
            return sentences
        return (*sentences, sample_sentence(self.options.sample, self.options.sample_seed, self.budget_strata))

    @property
    def skipped_sentence(self) -> str | None:
        """Sentence on the credits that the pre-checks save by skipping rows; None if they save nothing."""
        most = self.skipped_credits
        return None if most.high == 0 else f"The checks skip rows, which saves {most}."

    def _rows_for(self, credits_: int | None, *, skips_rows: bool = False) -> RowRange | None:
        if credits_ is None:
            return None
        rows = self.counts["pending"]
        if self.credits.high is not None and self.credits.high <= credits_:
            return RowRange(rows, rows)
        with open_read_only(self.folder) as db:
            count = rows_within_budget if skips_rows else affordable_rows
            return count(db, self.least_charged_milli, credits_, self.retry_per_image_milli)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain JSON values, without its rows, as `plan --json` prints it."""
        return plan_as_json(self)

    def save(self, path: Path | str, *, thumbnails: bool = True) -> Path:
        """Write the plan file `path` for `run --plan` and `load_plan`, and return its path.

        If `thumbnails`, those of the rows are written to a second file in the same folder. Many rows are written to a
        third file there.
        """
        target = local_path(path)
        with open_read_only(self.folder) as db:
            meta = get_meta(db)
            plan_values = self._plan_values(meta)
            plan_values["manifest"] |= {"path": meta.get("manifest_path"), "columns": json.loads(meta["extra_types"])}
            plan_values |= {"planned_at": meta["planned_at"]}
            write_plan_file(target, plan_values, planned_rows(db))
        if thumbnails:
            copy_thumbnails(self.folder / THUMBNAILS_NAME, thumbnails_beside(target))
        return target

    def _plan_values(self, meta: Mapping[str, str]) -> dict[str, Any]:
        return {**self.to_dict(), "prices_millicredits": json.loads(meta["prices"])}

    def snapshot(self) -> PlanSnapshot:
        """Return the parts of this plan that `compare_plans` needs."""
        with open_read_only(self.folder) as db:
            return PlanSnapshot(self._plan_values(get_meta(db)), self.folder, self.folder_owner)

    def compare(self, old: Plan | Path | str) -> PlanComparison:
        """Return what differs from an older plan: rows, credits, prices and options.

        Args:
            old: The older plan or its plan file. A plan file is compared as saved, even if its manifest changed.

        Raises:
            SettingsError: the file is not a plan file.
            PlanChanged: the rows in the file were changed after the plan was saved.
        """
        before = old.snapshot() if isinstance(old, Plan) else read_snapshot(local_path(old))
        return compare_plans(before, self.snapshot())

    def cost_by(self, column: str) -> ColumnCost:
        """Return what the rows cost for each value of a column of the manifest.

        Args:
            column: Name of the column; `kind` groups the rows into images and videos.

        Raises:
            SettingsError: the manifest has no such column.
        """
        with open_read_only(self.folder) as db:
            check_column("by", column, json.loads(get_meta(db)["extra_types"]))
        return cost_by_column(self.folder, column, self.least_charged_milli, self.retry_per_image_milli)

    def with_options(self, **changes: Unpack[RunArguments]) -> Plan:
        """Return a plan of the same rows with other options.

        The rows are priced again, but not read or checked again. If one of `changes` affects the content or the cost
        of answers, the rows are also copied, which takes some seconds for a million rows.

        Args:
            changes: The options to change: see `lightmeter.option_arguments.RunArguments`.

        Raises:
            SettingsError: an option is wrong (the message names it), or the service lacks a back end.
            UsageError: the option needs the rows to be checked or screened again: see `check_rows_stay_valid`.
        """
        settings = read_settings()
        options = with_prices_from_settings(parse_options(**{**self.options.model_dump(), **changes}), settings)
        check_rows_stay_valid(self.options, options, is_screened=self.screen is not None)
        relevant = (*REQUEST_OPTIONS, *options_of("sample"), "base_url", "reuse", "prices")  # stored with the rows
        if all(getattr(self.options, name) == getattr(options, name) for name in relevant):
            needed = consent_needed(options, settings, self.service)
            return replace(self, options=options, needs_consent=needed)
        if self.screen is not None and self.counts["ok"]:  # rows with a cached answer were not screened
            raise UsageError("The rows with an answer of an earlier run are not screened.", hint="Plan again.")
        return replan(self, options, settings, SystemClock())

    @property
    def screen_sentence(self) -> str | None:
        """How many rows the local back ends (option `screen`) passed, and what that saves; None if not screened."""
        return None if self.screen is None else f"{self.screen.sentence}; saves {self.saved_by_screen}"

    def must_not_need_consent(self) -> None:
        """Raise UsageError if `needs_consent` (what the user must allow) is not empty; the message contains it."""
        raise_if_consent_needed(self.needs_consent)

    def __str__(self) -> str:
        return plan_as_text(self)

    def _repr_html_(self) -> str:
        return plan_as_html(self)

    def __reduce__(self) -> NoReturn:
        hint = "Store it with plan.save(path), and read it with lightmeter.load_plan(path)."
        raise UsageError("A plan cannot be pickled: its rows are in a temporary folder of this process.", hint=hint)


def plan_from_journal(folder_owner: LockedTempDir, options: Options, settings: Settings, service: ServiceInfo) -> Plan:
    """Return a plan object for the rows in the journal in a temporary folder.

    Args:
        folder_owner: The temporary folder; it is removed when the plan is garbage-collected.
        options: The options of the run.
        settings: The user's settings.
        service: The balance and the back ends that the service reported.

    Raises:
        JournalError: the folder holds no journal.
    """
    with open_read_only(folder_owner.path) as db:
        meta, counts = get_meta(db), count_by_status(db)
        price, retry = int(meta["price_per_image_milli"]), int(meta.get("retry_per_image_milli", "0"))
        charged = least_charged_milli(price, rounding := parse_rounding(meta.get("rounding")))
        reason_counts = tuple(ReasonCount(*row) for row in count_by_reason(db))
        reused, rejected, skipped = cached_frames(db), screened_frames(db), frames_to_skip(db, options)
        credits_, frames = run_price(charged, *frames_to_send(db, UNSENT), retry), frame_savings(db, options, charged)
        videos = video_coverage(pending_video_lengths(db), options.capture_interval, options.max_frames)
    rates = rates_for(options, settings, service)
    # The defaults of the embedded service are known, so a run that names no back end is clear about its price.
    named = options.backends or (rates.defaults if is_embedded(options, settings) else ())
    notes = (*provider_notes(rates, options, settings), *coverage_advice(videos))
    return Plan(
        run_id=meta["run_id"],
        manifest=meta["manifest"],
        manifest_sha256=meta["manifest_sha256"],
        rows=sum(counts.values()),
        counts=counts,
        reasons=reason_counts,
        credits=credits_,
        saved=price_range(charged, reused),
        skipped_credits=CreditRange(0, price_range(charged, skipped).high),
        price_per_image_milli=price,
        retry_per_image_milli=retry,
        screen=ScreenOutcome.from_json(meta.get(SCREEN_META)),
        saved_by_screen=price_range(charged, rejected),
        options=options,
        base_url=options.base_url or settings.base_url,
        videos=videos,
        frame_savings=frames,
        rounding=rounding,
        manifest_notes=tuple(json.loads(meta.get(MANIFEST_NOTES, "[]"))),
        advice=(*price_advice(rates, named, options.features), *notes),
        needs_consent=consent_needed(options, settings, service),
        service=service,
        folder=folder_owner.path,
        folder_owner=folder_owner,
    )


def replan(plan: Plan, options: Options, settings: Settings, clock: Clock) -> Plan:
    """Return a plan of the same rows with new options; frames, prices and cached answers are determined again.

    Args:
        plan: The plan; it does not change.
        options: The new options.
        settings: The user's settings.
        clock: Source of the time.

    Raises:
        SettingsError: an option cannot be priced, or the service lacks a back end.
    """
    same = plan.base_url == (options.base_url or settings.base_url)
    service = plan.service if same else ServiceInfo()
    prices = price_meta(options, settings, service)
    with open_read_only(plan.folder) as db:
        check_sample_column(options, json.loads(get_meta(db)["extra_types"]))
    with temp_dir_unless_error() as temp_dir:
        folder = temp_dir.path
        copy_journal(journal_path(plan.folder), journal_path(folder))
        copy_thumbnails(plan.folder / THUMBNAILS_NAME, folder / THUMBNAILS_NAME)
        with Journal(folder) as journal:
            journal.submit(clear_cached_rows).result()
            before = plan.options
            if (before.capture_interval, before.max_frames) != (options.capture_interval, options.max_frames):
                with open_read_only(folder) as db:
                    frames = frames_by_length(db, options)
                journal.submit(set_frames(frames)).result()
            meta = {"run_id": fresh_run_id(clock), "options": options.model_dump_json(), **prices}
            journal.submit(put_meta(meta)).result()
            reuse_answers(journal, options, settings, clock.now())
            set_send_order(journal, options)
        return plan_from_journal(temp_dir, options, settings, service)
