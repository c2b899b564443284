"""The few totals of a plan that prices are made of, read from its rows once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lightmeter.journal.store import reading
from lightmeter.media.sampling import WHOLE_SECONDS_SQL
from lightmeter.planning.plan import Plan
from lightmeter.widgets.view.price_quote import Group

__all__ = ["Groups", "groups_of"]

_GROUPS: Final = f"""
SELECT kind, {WHOLE_SECONDS_SQL}, count(*) FROM items WHERE {{which}} GROUP BY 1, 2 ORDER BY 1, 2
"""  # noqa: S608 (a constant expression)


@dataclass(frozen=True, slots=True)
class Groups:
    """The rows of a plan that could cost something, as few groups of rows that are charged alike.

    Attributes:
        sent: Rows that would be sent.
        cached: Rows that answers of earlier runs answer, as long as the same is asked.
    """

    sent: tuple[Group, ...]
    cached: tuple[Group, ...]

    def to_pay(self, *, otherwise: bool) -> tuple[Group, ...]:
        """The rows to be paid for; `otherwise`: something else is asked now, so earlier answers may not count."""
        return (*self.sent, *self.cached) if otherwise else self.sent


def groups_of(plan: Plan) -> Groups:
    """The rows a plan could have to pay for.

    Raises:
        JournalError: the plan's rows are gone.
    """
    with reading(plan.folder) as db:
        sent = [Group(*row) for row in db.execute(_GROUPS.format(which="status IN ('pending', 'over_budget')"))]
        cached = [Group(*row) for row in db.execute(_GROUPS.format(which="status = 'ok' AND reason = 'cached'"))]
    return Groups(tuple(sent), tuple(cached))
