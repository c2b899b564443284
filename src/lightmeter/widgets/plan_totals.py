"""The few totals of a plan that prices are made of, read from its rows once."""

from __future__ import annotations

from dataclasses import dataclass

from lightmeter.journal.items import cached_lengths, unsent_lengths
from lightmeter.journal.store import open_read_only
from lightmeter.planning.plan import Plan
from lightmeter.widgets.view.price_quote import RowGroup

__all__ = ["PlanTotals", "plan_totals"]


@dataclass(frozen=True, slots=True)
class PlanTotals:
    """The rows of a plan that could cost something, as few groups of rows that are charged alike.

    Attributes:
        sent: Rows that would be sent.
        cached: Rows that answers of earlier runs answer, as long as the same is asked.
    """

    sent: tuple[RowGroup, ...]
    cached: tuple[RowGroup, ...]

    def billable_groups(self, *, otherwise: bool) -> tuple[RowGroup, ...]:
        """The rows to be paid for; `otherwise`: something else is asked now, so earlier answers may not count."""
        return (*self.sent, *self.cached) if otherwise else self.sent


def plan_totals(plan: Plan) -> PlanTotals:
    """The rows a plan could have to pay for.

    Raises:
        JournalError: the plan's rows are gone.
    """
    with open_read_only(plan.folder) as db:
        sent = [RowGroup(*group) for group in unsent_lengths(db)]
        cached = [RowGroup(*group) for group in cached_lengths(db)]
    return PlanTotals(tuple(sent), tuple(cached))
