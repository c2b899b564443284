"""Compare two plans: rows, credits, prices and options. A saved plan is read as it is, even if its manifest is gone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any, Final

from lightmeter.errors import SettingsError
from lightmeter.journal.commands.plan_rows import restore_rows
from lightmeter.journal.queries.frame_counts import UNSENT, frames_to_send
from lightmeter.journal.queries.plan_rows_by_group import PlannedGroup, rows_by_change
from lightmeter.journal.store import Journal, open_read_only
from lightmeter.options import Options, parse_options
from lightmeter.planning.checks.row_checks import CHUNK_ROWS
from lightmeter.planning.comparison.comparison_text import comparison_as_html, comparison_as_text
from lightmeter.planning.comparison.cost_by_column import group_price
from lightmeter.planning.plan_file import read_plan_file
from lightmeter.pricing.estimate import CreditRange, FrameRange, precision_of
from lightmeter.pricing.rates import Rounding, least_charged_milli, parse_rounding
from lightmeter.tempdirs import temp_dir_unless_error

CHANGES: Final = ("added", "removed", "changed", "unchanged")
"""The values of `RowChange.change`: what may have happened to a row between the old and the new plan."""


@dataclass(frozen=True, slots=True)
class PlanSnapshot:
    """The parts of a plan that a comparison with another plan needs.

    Attributes:
        plan_values: What the plan file holds except the rows, as plain JSON values; `plan_as_json` shows most keys.
        folder: Temporary folder with a journal of the rows of the plan.
        folder_owner: Object that removes the folder when it is garbage-collected.
    """

    plan_values: Mapping[str, Any]
    folder: Path
    folder_owner: object

    @property
    def credits(self) -> CreditRange:
        """The price of the plan as a range of credits."""
        return CreditRange(self.plan_values["credits"]["low"], self.plan_values["credits"]["high"])

    @property
    def price_milli(self) -> int:
        """Millicredits for an image or frame, before rounding."""
        return int(self.plan_values["price_per_image_millicredits"])

    @property
    def rounding(self) -> Rounding | None:
        """What the service rounds up to whole credits: each picture or each request. None if it does not say."""
        return parse_rounding(self.plan_values.get("rounding"))

    @property
    def retry_milli(self) -> int:
        """Millicredits to repeat the user's question (`--ask`) about an image or frame; 0 without a question."""
        return int(self.plan_values.get("retry_per_image_millicredits", 0))

    @property
    def prices_are_guessed(self) -> bool:
        """Whether the prices are from lightmeter's built-in table, because the service has not confirmed its prices."""
        service = self.plan_values.get("service") or {}
        own = self.plan_values["options"].get("prices")
        return self.plan_values["base_url"] is not None and service.get("backends") is None and own is None

    def price(self, *groups: PlannedGroup) -> CreditRange:
        """Return what a run of the rows in `groups` would cost in credits, with the prices of this plan."""
        milli = least_charged_milli(self.price_milli, self.rounding)
        return group_price(groups, milli, self.retry_milli)

    def frames(self) -> FrameRange:
        """Return the least and the largest number of images and frames that a run of the plan would send."""
        with open_read_only(self.folder) as db:
            return frames_to_send(db, UNSENT)[0]


@dataclass(frozen=True, slots=True)
class RowChange:
    """Number and price of the rows that have the same change from an old to a new plan, such as all added rows.

    A row of the old plan and a row of the new plan are the same row if they have the same id, or else the same URL.
    The row has changed if its URL or path, its additional columns or its content differ.

    Attributes:
        change: `added`, `removed`, `changed` or `unchanged`.
        rows: Number of rows.
        before: Price of these rows in the old plan.
        after: Price of these rows in the new plan.
    """

    change: str
    rows: int
    before: CreditRange
    after: CreditRange


@dataclass(frozen=True, slots=True)
class FeatureCostChange:
    """What one feature of one back end costs in two plans, in millicredits, before the service rounds up.

    Attributes:
        backend: Name of the back end.
        feature: Name of the feature.
        before_milli: (least, most) millicredits in the old plan; `most` is None if the cost has no upper bound. None in
            place of the pair if the old plan does not request the feature.
        after_milli: The same for the new plan.
        before_label: How far `before_milli` can be trusted: `exact`; `bound` (the cost cannot be outside the range);
            or `estimate`, if the service has not confirmed the prices.
        after_label: How far `after_milli` can be trusted, in the same words.
    """

    backend: str
    feature: str
    before_milli: tuple[int, int | None] | None
    after_milli: tuple[int, int | None] | None
    before_label: str
    after_label: str


@dataclass(frozen=True, slots=True)
class FeaturePriceChange:
    """A feature of a back end whose price differs between the old (`before_milli`) and the new plan (`after_milli`).

    Prices are millicredits for one image or frame.
    """

    backend: str
    feature: str
    before_milli: int
    after_milli: int


@dataclass(frozen=True, slots=True)
class OptionChange:
    """An option whose value differs between the old (`before`) and the new plan (`after`); plain JSON values."""

    name: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class PlanComparison:
    """What differs between an old and a new plan.

    Attributes:
        before: Price of the old plan.
        after: Price of the new plan.
        before_label: How far the old price can be trusted: `exact`; `bound` (it cannot be outside the range); or
            `estimate`, if the service has not confirmed the prices.
        after_label: How far the new price can be trusted, in the same words.
        counts_before: Status → number of rows of the old plan.
        counts_after: Status → number of rows of the new plan.
        rows: Number and price of the added, of the removed, of the changed and of the unchanged rows.
        shares: What each feature of each back end costs in both plans, most expensive first. The order follows the
            lower end of the cost, in the plan in which it is higher.
        prices: The features that both plans request, but at different prices.
        options: The options whose values differ.
    """

    before: CreditRange
    after: CreditRange
    before_label: str
    after_label: str
    counts_before: Mapping[str, int]
    counts_after: Mapping[str, int]
    rows: tuple[RowChange, ...]
    shares: tuple[FeatureCostChange, ...]
    prices: tuple[FeaturePriceChange, ...]
    options: tuple[OptionChange, ...]

    @property
    def rise_percent(self) -> Fraction | None:
        """By how many percent the upper end of the price range rises; negative if it falls.

        None if a price range has no upper end, or if the upper end rises from 0.
        """
        old, new = self.before.high, self.after.high
        if old is None or new is None or (old == 0 and new > 0):
            return None
        return Fraction(100 * (new - old), old) if old else Fraction(0)

    def rises_by_more_than(self, percent: Fraction) -> bool:
        """Return whether the upper end of the price range rises by more than `percent` from the old to the new plan.

        If neither price range has an upper end, the lower ends are compared instead. If only the new range has none,
        return True; if only the old one has none, return False.
        """
        old, new = self.before.high, self.after.high
        if old is None and new is None:
            old, new = self.before.low, self.after.low
        return old is not None and (new is None or 100 * (new - old) > percent * old)

    def __str__(self) -> str:
        return comparison_as_text(self)

    def _repr_html_(self) -> str:
        return comparison_as_html(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as plain JSON values."""
        rise = self.rise_percent
        return {
            "credits": {
                "before": {**_range_json(self.before), "label": self.before_label},
                "after": {**_range_json(self.after), "label": self.after_label},
                "rise_percent": None if rise is None else round(float(rise), 2),
            },
            "counts": {"before": dict(self.counts_before), "after": dict(self.counts_after)},
            "rows": {
                row.change: {"rows": row.rows, "before": _range_json(row.before), "after": _range_json(row.after)}
                for row in self.rows
            },
            "shares": [
                {
                    "backend": share.backend,
                    "feature": share.feature,
                    "before": _share_json(share.before_milli, share.before_label),
                    "after": _share_json(share.after_milli, share.after_label),
                }
                for share in self.shares
            ],
            "prices_millicredits": [
                {
                    "backend": rate.backend,
                    "feature": rate.feature,
                    "before": rate.before_milli,
                    "after": rate.after_milli,
                }
                for rate in self.prices
            ],
            "options": [asdict(option) for option in self.options],
        }


def read_snapshot(path: Path) -> PlanSnapshot:
    """Read a saved plan for a comparison, without checking whether its manifest or the prices have changed.

    Args:
        path: The plan file.

    Raises:
        SettingsError: the file is not a plan file.
        PlanChanged: the rows were changed after the plan was saved.
    """
    saved = read_plan_file(path)
    with temp_dir_unless_error() as temp_dir:
        try:
            with Journal(temp_dir.path) as journal:
                rows = (row for row, _ in saved.read_rows())
                while chunk := list(islice(rows, CHUNK_ROWS)):
                    journal.submit(restore_rows(chunk)).result()
            return _checked(PlanSnapshot(saved.plan_values, temp_dir.path, temp_dir))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            hint = "Make one: lightmeter plan MANIFEST --save FILE"
            raise SettingsError(f"{path} is not a plan file.", hint=hint) from error


def _checked(snapshot: PlanSnapshot) -> PlanSnapshot:
    """Return `snapshot`; raise KeyError, TypeError or ValueError if a value that comparisons need is missing."""
    _ = snapshot.credits, snapshot.price_milli, snapshot.retry_milli, snapshot.prices_are_guessed
    _ = dict(snapshot.plan_values["counts"]), {name: int(milli) for name, milli in _prices(snapshot).items()}
    return snapshot


def compare_plans(old: PlanSnapshot, new: PlanSnapshot) -> PlanComparison:
    """Return what differs between two plans: rows, credits, prices and options."""
    return PlanComparison(
        before=old.credits,
        after=new.credits,
        before_label=_label(old, old.credits.low, old.credits.high),
        after_label=_label(new, new.credits.low, new.credits.high),
        counts_before=old.plan_values["counts"],
        counts_after=new.plan_values["counts"],
        rows=_row_changes(old, new),
        shares=_feature_cost_changes(old, new),
        prices=_feature_price_changes(_prices(old), _prices(new)),
        options=_option_changes(old.plan_values, new.plan_values),
    )


def _row_changes(old: PlanSnapshot, new: PlanSnapshot) -> tuple[RowChange, ...]:
    after, before = rows_by_change(new.folder, old.folder)
    now, then = {group.name: group for group in after}, {group.name: group for group in before}
    changes = []
    for name in CHANGES:
        counted = now.get(name) or then.get(name)
        prices = (old.price(*_listed(then.get(name))), new.price(*_listed(now.get(name))))
        changes.append(RowChange(name, 0 if counted is None else counted.rows, *prices))
    return tuple(changes)


def _listed(group: PlannedGroup | None) -> list[PlannedGroup]:
    return [] if group is None else [group]


def _feature_cost_changes(old: PlanSnapshot, new: PlanSnapshot) -> tuple[FeatureCostChange, ...]:
    before, after = _shares(old), _shares(new)
    changes = []
    for name in after | before:
        backend, _, feature = name.partition(" ")
        labels = [_label(side, *shares.get(name, (0, 0))) for side, shares in ((old, before), (new, after))]
        changes.append(FeatureCostChange(backend, feature, before.get(name), after.get(name), *labels))
    return tuple(sorted(changes, key=lambda one: -max((one.before_milli or (0,))[0], (one.after_milli or (0,))[0])))


def _shares(plan: PlanSnapshot) -> dict[str, tuple[int, int | None]]:
    frames = plan.frames()
    return {
        name: (frames.low * milli, None if frames.high is None else frames.high * milli)
        for name, milli in _prices(plan).items()
    }


def _prices(plan: PlanSnapshot) -> Mapping[str, int]:
    """Return a plan's prices: a text `BACKEND FEATURE` → millicredits for an image or frame."""
    prices: Mapping[str, int] = plan.plan_values["prices_millicredits"]
    return prices


def _feature_price_changes(before: Mapping[str, int], after: Mapping[str, int]) -> tuple[FeaturePriceChange, ...]:
    changes = []
    for name in after:
        backend, _, feature = name.partition(" ")
        if before.get(name, after[name]) != after[name]:
            changes.append(FeaturePriceChange(backend, feature, before[name], after[name]))
    return tuple(changes)


def _label(plan: PlanSnapshot, low: int, high: int | None) -> str:
    return precision_of(low, high, is_estimate=plan.prices_are_guessed)


def _option_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[OptionChange, ...]:
    before, after = _option_values(old), _option_values(new)
    return tuple(
        OptionChange(name, before.get(name), after.get(name))
        for name in sorted(before | after)
        if before.get(name) != after.get(name)
    )


def _option_values(plan_values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a plan's options: name → plain JSON value.

    `plan_values` is the content of the plan file except the rows. Options that did not yet exist in the version of
    lightmeter that saved the plan have their default values.
    """
    known = {name: value for name, value in plan_values["options"].items() if name in Options.model_fields}
    try:
        values = parse_options(**known).model_dump(mode="json")
    except SettingsError:  # (a value that this lightmeter no longer allows is compared as it is)
        values = Options().model_dump(mode="json") | known
    if values["prices"] is not None:
        values["prices"] = {name: value for name, value in values["prices"].items() if name != "path"}
    return {**values, "base_url": plan_values["base_url"]}


def _range_json(credits_: CreditRange) -> dict[str, int | None]:
    return {"low": credits_.low, "high": credits_.high}


def _share_json(share: tuple[int, int | None] | None, label: str) -> dict[str, Any] | None:
    if share is None:
        return None
    low, high = share
    return {"low": low / 1000, "high": None if high is None else high / 1000, "label": label}
