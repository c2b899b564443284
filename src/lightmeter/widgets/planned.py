"""The few totals of a plan that prices are made of, read from its rows once."""

from __future__ import annotations

from typing import Final

from lightmeter.journal.store import reading
from lightmeter.pipeline.plan import Plan
from lightmeter.widgets.view.quote import Group

__all__ = ["groups_of"]

_GROUPS: Final = """
SELECT kind, CAST(duration_s AS INTEGER), count(*) FROM items WHERE status IN ('pending', 'over_budget')
GROUP BY 1, 2 ORDER BY 1, 2
"""


def groups_of(plan: Plan) -> tuple[Group, ...]:
    """The rows a plan would send, as few groups of rows that are charged alike.

    Raises:
        JournalError: the plan's rows are gone.
    """
    with reading(plan.folder) as db:
        return tuple(Group(*row) for row in db.execute(_GROUPS))
