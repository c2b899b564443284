"""The few totals of a plan that prices are made of, read from its rows once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lightmeter.journal.store import open_read_only
from lightmeter.media.sampling import WHOLE_SECONDS_SQL
from lightmeter.planning.plan import Plan
from lightmeter.widgets.view.price_quote import RowGroup

__all__ = ["PlanTotals", "plan_totals"]

_GROUPS: Final = f"""
SELECT kind, {WHOLE_SECONDS_SQL}, count(*) FROM items WHERE {{which}} GROUP BY 1, 2 ORDER BY 1, 2
"""  # noqa: S608 (a constant expression)


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
        sent = [RowGroup(*row) for row in db.execute(_GROUPS.format(which="status IN ('pending', 'over_budget')"))]
        cached = [RowGroup(*row) for row in db.execute(_GROUPS.format(which="status = 'ok' AND reason = 'cached'"))]
    return PlanTotals(tuple(sent), tuple(cached))
