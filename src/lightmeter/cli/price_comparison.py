"""Compares a plan with a saved plan and with limits on its price, for the commands `plan` and `run`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from lightmeter.errors import UsageError
from lightmeter.planning.comparison.cost_by_column import ColumnCost
from lightmeter.planning.comparison.max_price import PriceLimits, parse_percent, raise_if_exceeded
from lightmeter.planning.comparison.plan_comparison import PlanComparison, PlanSnapshot, compare_plans, read_snapshot
from lightmeter.planning.plan import Plan


@dataclass(frozen=True, slots=True)
class PriceCheck:
    """The saved plan of the option `--compare`, and the price limits of `--fail-above` and `--fail-on-rise`.

    Attributes:
        old: The saved plan to compare with; None if `--compare` is not given.
        limits: The limits on the price.
    """

    old: PlanSnapshot | None
    limits: PriceLimits

    @classmethod
    def from_options(cls, options: dict[str, Any]) -> Self:
        """Make a price check from a command's options, and read the saved plan.

        The options `compare`, `fail_above` and `fail_on_rise` are removed from `options`.

        Raises:
            UsageError: `--fail-on-rise` is given without `--compare`.
            SettingsError: the saved plan cannot be read, or a value is wrong.
        """
        compare: Path | None = options.pop("compare")
        above, rise = options.pop("fail_above"), options.pop("fail_on_rise")
        if rise is not None and compare is None:
            raise UsageError("--fail-on-rise needs an older plan.", hint="Add --compare old.json")
        limits = PriceLimits(above, None if rise is None else parse_percent(rise))
        return cls(None if compare is None else read_snapshot(compare), limits)

    @property
    def is_empty(self) -> bool:
        """Whether none of the options `--compare`, `--fail-above` and `--fail-on-rise` is given."""
        return self.old is None and self.limits == PriceLimits()

    def apply(self, plan: Plan, by: ColumnCost | None = None) -> CheckedPlan:
        """Compare `plan` with the saved plan and the price limits; return it with the results.

        `by` is the cost of the plan by the values of a manifest column. It is shown with the plan; None shows nothing.
        """
        comparison = None if self.old is None else compare_plans(self.old, plan.snapshot())
        return CheckedPlan(plan, comparison, by, self.limits.exceeded(plan.credits, comparison))


@dataclass(frozen=True, slots=True)
class CheckedPlan:
    """A plan to print, with the results of a price check.

    They are its difference from a saved plan, its cost by a manifest column, and messages about exceeded limits.
    """

    plan: Plan
    comparison: PlanComparison | None
    by: ColumnCost | None
    exceeded: tuple[str, ...]

    def lines(self) -> Iterator[str]:
        """Yield texts to print below the plan: what differs from the saved plan, and the cost by a manifest column."""
        if self.comparison is not None:
            yield f"compared with the older plan, {self.comparison}"
        if self.by is not None:
            yield str(self.by)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON values, with three more keys.

        `comparison` is its difference from the saved plan (None without one), `cost_by` its cost by a manifest column
        (None without one), and `exceeded` a list of messages, one for each exceeded limit.
        """
        return {
            **self.plan.to_dict(),
            "comparison": None if self.comparison is None else self.comparison.to_dict(),
            "cost_by": None if self.by is None else self.by.to_dict(),
            "exceeded": list(self.exceeded),
        }

    def raise_if_too_expensive(self) -> None:
        """Raise TooExpensive if the price exceeds a limit of `--fail-above` or `--fail-on-rise`."""
        raise_if_exceeded(self.exceeded)
