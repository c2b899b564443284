"""Computes what the rows of a plan cost for each value of a column of the manifest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lightmeter.html_fragments import esc, replace_control_chars
from lightmeter.journal.queries.plan_rows_by_group import PlannedGroup, rows_by_value
from lightmeter.pricing.estimate import CreditRange, FrameRange, counted, run_price

MOST_VALUES: Final = 10
"""Number of values that are listed: those with the most images and frames. All other values share one line."""


@dataclass(frozen=True, slots=True)
class ValueCost:
    """What the rows with one value of a manifest column cost.

    Attributes:
        value: The value; None for rows without a value. `ColumnCost.rest`, the sum of all values that are not listed,
            has None too.
        rows: Number of manifest rows with this value.
        rows_to_send: Number of these rows that a run would send.
        credits: Price of a run of only these rows.
    """

    value: str | None
    rows: int
    rows_to_send: int
    credits: CreditRange


@dataclass(frozen=True, slots=True)
class ColumnCost:
    """What the rows of a plan cost for each value of a column of the manifest.

    The price of a value is the price of a run of only the rows with this value. The lower ends of these price ranges
    may add up to more than the lower end for the whole plan, because each of them is rounded up to whole credits.

    Attributes:
        column: Name of the column.
        values: The values with the most images and frames to be sent, `MOST_VALUES` at most.
        rest: All other values together; None if all values are in `values`.
        rest_values: Number of values in `rest`.
        total: The price of the plan.
    """

    column: str
    values: tuple[ValueCost, ...]
    rest: ValueCost | None
    rest_values: int
    total: CreditRange

    @property
    def lines(self) -> tuple[tuple[str, ValueCost], ...]:
        """A (label, cost) pair for each listed value, and at the end one for all others together, if there are any.

        The label is the value, or `(no value)` for rows without a value.
        """
        listed = tuple((cost.value or "(no value)", cost) for cost in self.values)
        rest = f"({counted(self.rest_values, 'other value')})"
        return listed if self.rest is None else (*listed, (rest, self.rest))

    def to_dict(self) -> dict[str, Any]:
        """Return the costs as plain JSON values."""
        rest = None if self.rest is None else _cost_json(self.rest) | {"values": self.rest_values}
        values = [{"value": cost.value} | _cost_json(cost) for cost in self.values]
        return {"column": self.column, "values": values, "rest": rest}

    def __str__(self) -> str:
        lines = [(" ".join(replace_control_chars(label).split()), cost) for label, cost in self.lines]
        width = max((len(label) for label, _ in lines), default=0)
        rows = (f"  {label:<{width}}  {cost.rows_to_send:>8} to send  {cost.credits}" for label, cost in lines)
        return "\n".join([f"cost by {self.column}: {self.total}", *rows])

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th>{esc(label)}</th><td>{cost.rows}</td><td>{cost.rows_to_send}</td><td>{cost.credits}</td></tr>"
            for label, cost in self.lines
        )
        head = f"<tr><th>{esc(self.column)}</th><th>rows</th><th>to send</th><th>credits</th></tr>"
        return f"<div><b>cost by {esc(self.column)}: {self.total}</b><table>{head}{rows}</table></div>"


def cost_by_column(folder: Path, column: str, least_charged_milli: int, retry_milli: int) -> ColumnCost:
    """Return what the rows of a plan cost for each value of a manifest column.

    Args:
        folder: Folder with the journal of the plan.
        column: Name of the column.
        least_charged_milli: Least millicredits that an image or frame adds to a charge: `Plan.least_charged_milli`.
        retry_milli: Millicredits to repeat the user's question (`--ask`) about an image or frame; 0 without a question.
    """

    def cost(groups: Sequence[PlannedGroup], value: str | None) -> ValueCost:
        return ValueCost(value, *_totals(groups), group_price(groups, least_charged_milli, retry_milli))

    groups = rows_by_value(folder, column)
    top, rest = groups[:MOST_VALUES], groups[MOST_VALUES:]
    return ColumnCost(
        column=column,
        values=tuple(cost([group], group.name) for group in top),
        rest=cost(rest, None) if rest else None,
        rest_values=len(rest),
        total=group_price(groups, least_charged_milli, retry_milli),
    )


def group_price(groups: Sequence[PlannedGroup], least_charged_milli: int, retry_milli: int) -> CreditRange:
    """Return what a run that sends the rows of all `groups` would cost.

    Args:
        groups: Groups of rows of a plan, each with its number of images and frames.
        least_charged_milli: Least millicredits that an image or frame adds to a charge: `Plan.least_charged_milli`.
        retry_milli: Millicredits to repeat the user's question (`--ask`) about an image or frame; 0 without a question.
    """
    frames = sum((FrameRange(group.frames_low, group.frames_high) for group in groups), FrameRange(0, 0))
    return run_price(least_charged_milli, frames, sum(group.single for group in groups), retry_milli)


def _totals(groups: Sequence[PlannedGroup]) -> tuple[int, int]:
    return sum(group.rows for group in groups), sum(group.rows_to_send for group in groups)


def _cost_json(cost: ValueCost) -> dict[str, Any]:
    credits_ = {"low": cost.credits.low, "high": cost.credits.high}
    return {"rows": cost.rows, "rows_to_send": cost.rows_to_send, "credits": credits_}
