"""Prices the rows of a plan for the options in the planner's form, and for alternatives, in a few milliseconds.

Each price has a label that says how reliable it is: `exact`; `bound`, a range that certainly contains the price; or
`estimate`, a guess.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from lightmeter.options import Options
from lightmeter.planning.affordable_rows import RowRange
from lightmeter.planning.plan import Plan
from lightmeter.pricing.estimate import CreditRange, FrameRange, precision_of
from lightmeter.pricing.rates import MILLICREDITS, RateTable, whole_credits
from lightmeter.ui.planner.planner_form import needs_new_answers
from lightmeter.ui.planner.price_preview import PriceQuote, budget_status, credits_for, price_quote
from lightmeter.ui.planner.row_counts import PlannedRows, RowsByLength, RowsToPay

ALTERNATIVES: Final[Mapping[str, Sequence[Any]]] = {
    "max_frames": (1, 3, 5, 10, 0),
    "capture_interval": (1, 5, 10, 30),
    "duplicates": ("off", "exact", "near"),
}
"""Option → values for which the planner shows the price, next to the price for the value in the form."""

_OF_VIDEOS: Final = ("max_frames", "capture_interval")


def range_json(amount: CreditRange | FrameRange | RowRange, *, is_estimate: bool) -> dict[str, Any]:
    """Return an amount for the page: `low`, `high` (None: unbounded), and `label` (`exact`, `bound` or `estimate`)."""
    label = precision_of(amount.low, amount.high, is_estimate=is_estimate)
    return {"low": amount.low, "high": amount.high, "label": label}


@dataclass(frozen=True, slots=True)
class PlannedPrices:
    """Computes what the rows of a plan cost with the options in the planner's form.

    Attributes:
        plan: The plan.
        rows: The rows of the plan, counted by media type and duration.
        rates: The price table.
        rows_by_value: A pair for each value of the manifest column that the user chose: the value, and the numbers of
            rows that have this value. Empty if no column is chosen.
    """

    plan: Plan
    rows: PlannedRows
    rates: RateTable
    rows_by_value: Sequence[tuple[str | None, RowsByLength]] = ()

    def price_json(self, options: Options, ticked: Options) -> dict[str, Any]:
        """Return the price of the plan's rows for the page, with its parts by back end and the price of alternatives.

        The keys are those of `quote_json` and

        - `is_planned`: whether the options in the form are the plan's options;
        - `sentences`: what the plan saves, and what balance and budget pay for; empty unless `is_planned`;
        - `needs_consent`: risks that the user must allow; empty unless `is_planned`;
        - `credits`, `pictures` (images and frames), `rows` and `affordable` (rows that the budget pays for; None
          without a budget, or if this number is not known): dicts from `range_json`;
        - `alternatives`: dicts with `option`, `value`, `is_current` (whether the form has this value) and `credits`;
        - `budgets`: dicts with `budget`, `is_current`, `rows` (that it pays for) and `rows_to_pay` (most rows that a
          run without a budget would pay for);
        - `values`: dicts with `value`, `rows` (most rows to pay for), `pictures` and `credits`, for each value of the
          manifest column that the user chose; empty if no column is chosen.

        Args:
            options: The options in the form.
            ticked: A copy of `options` that names every checked feature and back end, as `with_ticked_names` returns.

        Raises:
            SettingsError: A back end or feature has no price.
        """
        to_pay = self._to_pay(options)
        quote = self._quote(options, ticked, to_pay)
        frames, credits_ = quote.frames, quote.credits
        if frames is None or credits_ is None:
            raise AssertionError("planned rows have a number of frames and a price")
        is_estimate, is_planned = to_pay.is_estimate, options == self.plan.options
        rows = RowRange(int(to_pay.low.sum()), int(to_pay.high.sum()))
        return {
            **quote_json(quote),
            "is_planned": is_planned,
            "sentences": [*self.plan.savings_sentences, *self.plan.affordability_sentences] if is_planned else [],
            "needs_consent": list(self.plan.needs_consent) if is_planned else [],
            "credits": range_json(credits_, is_estimate=is_estimate),
            "pictures": range_json(frames, is_estimate=is_estimate),
            "rows": range_json(rows, is_estimate=is_estimate),
            "affordable": self._affordable(options, quote, rows, is_estimate=is_estimate),
            "alternatives": list(self._alternatives(options, quote)),
            "budgets": list(self._budgets(options, quote, rows, is_estimate=is_estimate)),
            "values": [self._value_json(options, quote, value, part) for value, part in self.rows_by_value],
        }

    def _options_changed(self, options: Options) -> bool:
        return needs_new_answers(self.plan.options, options)

    def _to_pay(self, options: Options, part: RowsByLength | None = None) -> RowsToPay:
        return self.rows.to_pay(options.duplicates, options_changed=self._options_changed(options), part=part)

    def _quote(self, options: Options, ticked: Options, to_pay: RowsToPay) -> PriceQuote:
        """Return the price of the rows `to_pay`.

        The price in credits is taken from the plan if the form has not changed anything that decides it.

        Args:
            options: The options in the form.
            ticked: A copy of `options` that names every checked feature and back end, as `with_ticked_names` returns.
            to_pay: Numbers of rows that the run would pay for.
        """
        quote = price_quote(self.rates, ticked, self.rows.groups(to_pay.high))
        frames = self.rows.total_frames(to_pay, options.capture_interval, options.max_frames)
        credits_ = credits_for(quote.least_charged_milli, quote.retry_milli, frames)
        same = not self._options_changed(options) and options.duplicates == self.plan.options.duplicates
        if same and quote.price_milli == self.plan.price_per_image_milli:
            credits_ = self.plan.credits
        return replace(quote, frames=frames, credits=credits_, budget_status=budget_status(credits_, options.budget))

    def _credits(self, options: Options, quote: PriceQuote, part: RowsByLength | None = None) -> dict[str, Any]:
        to_pay = self._to_pay(options, part)
        frames = self.rows.total_frames(to_pay, options.capture_interval, options.max_frames)
        credits_ = credits_for(quote.least_charged_milli, quote.retry_milli, frames)
        return range_json(credits_, is_estimate=to_pay.is_estimate)

    def _value_json(self, options: Options, quote: PriceQuote, value: str | None, part: RowsByLength) -> dict[str, Any]:
        to_pay = self._to_pay(options, part)
        pictures = self.rows.total_frames(to_pay, options.capture_interval, options.max_frames)
        return {
            "value": value,
            "rows": int(to_pay.high.sum()),
            "pictures": range_json(pictures, is_estimate=to_pay.is_estimate),
            "credits": self._credits(options, quote, part),
        }

    def _alternatives(self, options: Options, quote: PriceQuote) -> Iterator[dict[str, Any]]:
        """Yield a dict with the price for each value of each option in `ALTERNATIVES`.

        Its keys are `option` (the name), `value`, `is_current` (whether the form has this value) and `credits` (from
        `range_json`). If the value in the form is none of those in `ALTERNATIVES`, it comes first.

        In each dict, only this one option is changed. All other options are as in `options`, the options in the form.
        `quote` is the price for `options`. Options for videos are left out if the plan has no videos. If frames are
        sent in place of videos, nothing is yielded.
        """
        for name, values in ALTERNATIVES.items():
            if options.video == "frames" or (name in _OF_VIDEOS and not self.rows.has_videos):
                continue
            current = getattr(options, name)
            for value in values if current in values else (current, *values):
                changed = options.model_copy(update={name: value})
                price = self._credits(changed, quote)
                yield {"option": name, "value": value, "is_current": value == current, "credits": price}

    def _budgets(
        self, options: Options, quote: PriceQuote, rows: RowRange, *, is_estimate: bool
    ) -> Iterator[dict[str, Any]]:
        """Yield, for each of several budgets, the number of rows that this budget pays for, smallest budget first.

        A result is a dict with the keys `budget` (credits), `is_current` (whether it is the budget in the form), `rows`
        (that it pays for, from `range_json`) and `rows_to_pay` (most rows that a run without a budget would pay for).

        The budgets are the budget in the form, the upper end of the price, and half and twice the smaller of these two.
        Twice the smaller one is left out if it exceeds the upper end of the price.

        Args:
            options: The options in the form.
            quote: The price for `options`.
            rows: Number of rows that the run would pay for.
            is_estimate: Whether `rows` is an estimate.
        """
        most, chosen = None if quote.credits is None else quote.credits.high, options.budget
        known = [amount for amount in (chosen, most) if amount]
        if not known or not rows.high:
            return
        base = min(known)
        double = {2 * base} if most is None or 2 * base <= most else set()
        for budget in sorted({base // 2, *known, *double} - {0}):
            paid = self._affordable(options.model_copy(update={"budget": budget}), quote, rows, is_estimate=is_estimate)
            if paid is not None:
                yield {"budget": budget, "is_current": budget == chosen, "rows": paid, "rows_to_pay": rows.high}

    def _affordable(
        self, options: Options, quote: PriceQuote, rows: RowRange, *, is_estimate: bool
    ) -> dict[str, Any] | None:
        """Return how many rows the budget in `options` pays for; None without a budget or if the number is not known.

        The dict, from `range_json`, has `low` and `high` (least and most rows that the budget pays for, at most
        `rows.high`) and `label`. The number is not known without a price, and in some cases if the price may be 0.

        Args:
            options: The options in the form, with the budget.
            quote: The price of `rows` with `options`.
            rows: Number of rows that the run would pay for without a budget.
            is_estimate: Whether `rows` is an estimate.
        """
        if options.budget is None or quote.credits is None:
            return None
        if quote.credits.high is not None and quote.credits.high <= options.budget:
            return range_json(rows, is_estimate=is_estimate)
        planned = self.plan.options
        if rows.high != len(self.rows.order) or options.video == "frames":
            return self._affordable_share(options.budget, quote, rows)
        low, high, unbounded = self.rows.frames(options.capture_interval, options.max_frames)
        most_each = whole_credits(quote.price_milli) + whole_credits(quote.retry_milli)
        at_most = np.cumsum(high[self.rows.order]) * most_each
        at_least = np.cumsum(low[self.rows.order]) * quote.least_charged_milli
        is_open = unbounded[self.rows.order] if most_each else np.zeros(len(self.rows.order), np.bool_)
        first_open = int(is_open.argmax()) if is_open.any() else len(self.rows.order)
        sure = min(int(np.searchsorted(at_most, options.budget, side="right")), first_open)
        possible = int(np.searchsorted(at_least, options.budget * MILLICREDITS, side="right"))
        same_order = (planned.sample, planned.sample_seed) == (options.sample, options.sample_seed)
        return range_json(RowRange(sure, possible), is_estimate=is_estimate or not same_order)

    @staticmethod
    def _affordable_share(budget: int, quote: PriceQuote, rows: RowRange) -> dict[str, Any] | None:
        """Estimate how many of `rows` a budget pays for that is below their highest price, as if all cost the same.

        This is estimated once from the least number of rows and its price, and once from the greatest. The result is a
        dict from `range_json`: `low` and `high` are numbers of rows, at most `rows.low` and `rows.high`, and `label` is
        `estimate`. Return None if the price is not known or may be 0. `rows` is the number of rows that the run would
        pay for without a budget, `quote` has their price, and `budget` is in credits.
        """
        price = quote.credits
        if price is None or not price.low:
            return None
        paid = rows.low * budget // price.low, 0 if price.high is None else rows.high * budget // price.high
        return range_json(RowRange(min(rows.low, *paid), min(rows.high, max(paid))), is_estimate=True)


def quote_json(quote: PriceQuote) -> dict[str, Any]:
    """Return a price quote for the page: the price of one image or frame by back end, the budget and advice.

    The keys are `planned` (whether the price of all rows is known), `parts` (dicts with `backend`, `feature` and
    `millicredits`), `millicredits` (the sum of `parts`), and `charged`, `budget`, `budget_status` and `advice`, as in
    `PriceQuote`.
    """
    return {
        "planned": quote.credits is not None,
        "parts": [
            {"backend": part.backend, "feature": part.feature, "millicredits": part.price_milli} for part in quote.parts
        ],
        "millicredits": quote.price_milli,
        "charged": quote.charged,
        "budget": quote.budget,
        "budget_status": quote.budget_status,
        "advice": list(quote.advice),
    }
