"""Shows the comparison of two plans as text and HTML, and a plan with its comparison as Markdown for pull requests."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from lightmeter.html_fragments import esc, replace_control_chars
from lightmeter.pricing.estimate import CreditRange, amount_text, counted
from lightmeter.pricing.rates import MILLICREDITS

if TYPE_CHECKING:
    from lightmeter.planning.comparison.cost_by_column import ColumnCost
    from lightmeter.planning.comparison.plan_comparison import FeatureCostChange, PlanComparison
    from lightmeter.planning.plan import Plan

_MOST_CHARS: Final = 60
"""Longer values of options and of the manifest are cut to this number of characters."""

_MOST_REASONS: Final = 5
"""The Markdown text lists at most this number of reasons why rows are not sent; it only counts the others."""

_WWW: Final = re.compile(r"(www)\.", re.IGNORECASE)
"""Matches `www.`, the start of a text that GitHub turns into a link, even inside `<code>`."""

_MOST_SHARES: Final = 12
"""A text lists the costs of at most this number of pairs of back end and feature, and then the sum of the others.

`PlanComparison.to_dict` has all pairs.
"""


_WORDS: Final = (
    "Exact: the price is known. Bound: the price cannot leave the range. Estimate: the service has not confirmed "
    "the prices. Rounded up: charges are whole credits."
)


def comparison_as_text(comparison: PlanComparison) -> str:
    """Return what differs between two plans as lines of text, the price first."""
    lines = [f"credits: {_before_after(comparison)}{_rise(comparison)}"]
    changes = [row for row in comparison.rows if row.rows]
    lines += [f"  {row.change:<9} {row.rows:>8}  {_range_change(row.before, row.after)}" for row in changes]
    lines += [f"  {name:<9} {before:>8} → {after}" for name, before, after in _count_changes(comparison)]
    lines += [f"  {name}: {before} → {after}" for name, before, after in _cost_rows(comparison)]
    lines += [f"  price of {name}: {before} → {after} credits an image" for name, before, after in _prices(comparison)]
    lines += [f"  option {name}: {before} → {after}" for name, before, after in _options(comparison)]
    return "\n".join(lines)


def comparison_as_html(comparison: PlanComparison) -> str:
    """Return what differs between two plans as HTML, for notebooks."""
    first, *more = comparison_as_text(comparison).splitlines()
    lines = "".join(f"<li>{esc(line.strip())}</li>" for line in more)
    return f"<div><b>{esc(first)}</b><ul>{lines}</ul></div>"


def plan_as_markdown(
    plan: Plan, comparison: PlanComparison | None, by: ColumnCost | None, exceeded: Sequence[str]
) -> str:
    """Return a plan as Markdown for a comment on a pull request: totals first, then short tables.

    Values of the manifest and of options are escaped, so that they cannot become links, mentions or HTML.

    Args:
        plan: The plan.
        comparison: What differs from an older plan; None to leave it out.
        by: The cost by a column of the manifest; None to leave it out.
        exceeded: A sentence for each limit that the price exceeds.
    """
    before = "" if comparison is None else f", before {comparison.before}{_rise(comparison)}"
    title = f"### lightmeter plan: {plan.credits}{before}"
    parts = [title, *(f"**Too expensive:** {sentence}" for sentence in exceeded)]
    rows = f"{_escape_as_code(plan.manifest)}: {counted(plan.rows, 'row')}, {plan.counts['pending']} to send"
    budget = "" if plan.options.budget is None else f", budget {plan.options.budget}"
    parts.append(rows + budget + ".")
    if comparison is not None:
        parts += _comparison_tables(comparison)
    reasons = [
        (_escape_as_code(f"{one.status} {one.reason}"), one.rows, _escape_as_code(one.example)) for one in plan.reasons
    ]
    parts.append(_table(("rows not sent", "rows", "for example"), reasons[:_MOST_REASONS]))
    if len(reasons) > _MOST_REASONS:
        parts.append(f"{counted(len(reasons) - _MOST_REASONS, 'more reason')}.")
    if by is not None:
        costs = [(_escape_as_code(label), cost.rows_to_send, cost.credits) for label, cost in by.lines]
        parts.append(_table((_escape_as_code(by.column), "rows to send", "credits"), costs))
    parts.append("\n".join(f"- Advice: {_escaped(sentence)}" for sentence in plan.advice))
    return "\n\n".join(part for part in parts if part) + "\n"


def _comparison_tables(comparison: PlanComparison) -> Iterator[str]:
    total = ("**all**", sum(comparison.counts_after.values()), comparison.before, comparison.after)
    rows = [(row.change, row.rows, row.before, row.after) for row in comparison.rows if row.rows]
    yield f"Price: {_before_after(comparison)}."
    yield _table(("rows", "number", "credits before", "credits now"), [total, *rows])
    yield _table(("rows by outcome", "before", "now"), _count_changes(comparison))
    yield _table(
        ("cost of", "credits before", "credits now"),
        ((_escape_as_code(name), *both) for name, *both in _cost_rows(comparison)),
    )
    yield _WORDS
    prices = [(_escape_as_code(name), *both) for name, *both in _prices(comparison)]
    yield _table(("price for an image", "before", "now"), prices)
    options = [tuple(map(_escape_as_code, entry)) for entry in _options(comparison)]
    yield _table(("option", "before", "now"), options)


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table with the column titles `head`; an empty text if there are no rows."""
    lines = [f"| {' | '.join(map(str, row))} |" for row in rows]
    return "\n".join([f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}", *lines]) if lines else ""


def _escape_as_code(value: str) -> str:
    """Return an untrusted text, shortened and with special characters escaped, as `<code>…</code>` for Markdown."""
    return f"<code>{_escaped(_shorten(value))}</code>"


def _escaped(value: str) -> str:
    """Return a text in one line, escaped for Markdown and HTML.

    Every character except letters, digits, spaces, `-`, `/` and `.` becomes an HTML character reference: `*` becomes
    `&#42;`. The dot in `www.` becomes one too, so that GitHub does not make a link.
    """
    shown = _WWW.sub("\\1\x00", replace_control_chars(value)).replace("\n", " ").replace("\t", " ")
    return "".join(c if c.isalnum() or c in " -/." else f"&#{ord(c) or ord('.')};" for c in shown)


def _shorten(text: str) -> str:
    return text if len(text) <= _MOST_CHARS else text[: _MOST_CHARS - 1] + "…"


def _before_after(comparison: PlanComparison) -> str:
    before, after = comparison.before, comparison.after
    return f"{before} ({comparison.before_label}) → {after} ({comparison.after_label})"


def _rise(comparison: PlanComparison) -> str:
    rise = comparison.rise_percent
    text = "" if rise is None else f", {'+' if rise > 0 else ''}{float(rise):.3g} %"
    is_range = comparison.before.low != comparison.before.high or comparison.after.low != comparison.after.high
    return f"{text} at the upper end" if text and is_range else text


def _range_change(before: CreditRange, after: CreditRange) -> str:
    return str(after) if before == after else f"{before} → {after}"


def _count_changes(comparison: PlanComparison) -> list[tuple[str, int, int]]:
    """Return (status, rows in the old plan, rows in the new plan) for each status that a row of either plan has."""
    before, after = comparison.counts_before, comparison.counts_after
    return [
        ("to send" if name == "pending" else name, before.get(name, 0), after.get(name, 0))
        for name in {**after, **before}
        if before.get(name) or after.get(name)
    ]


def _cost_rows(comparison: PlanComparison) -> list[tuple[str, str, str]]:
    """Return table rows (label, cost in the old plan, cost in the new plan) as texts, for each feature of a back end.

    The `_MOST_SHARES` most expensive features come first, then one row with the sum of the others, if there are others.
    The last row, `rounded up`, is the rest of the price: rounding up, and repeating the user's question (`--ask`).
    Return no rows if neither plan requests a feature.
    """

    def line(share: FeatureCostChange) -> tuple[str, str, str]:
        before = _share_text(share.before_milli, share.before_label)
        return f"{share.backend} {share.feature}", before, _share_text(share.after_milli, share.after_label)

    lines = [line(share) for share in comparison.shares[:_MOST_SHARES]]
    if rest := comparison.shares[_MOST_SHARES:]:
        texts = (_sum_text([share.before_milli for share in rest]), _sum_text([share.after_milli for share in rest]))
        lines.append((f"{len(rest)} more", *texts))
    before = _rounded_up(comparison.before, [share.before_milli for share in comparison.shares])
    after = _rounded_up(comparison.after, [share.after_milli for share in comparison.shares])
    return [*lines, ("rounded up", before, after)] if lines else []


def _sums(shares: Sequence[tuple[int, int | None] | None]) -> tuple[int, int | None]:
    """Add up the costs of features in a plan, (lower end, upper end) pairs in millicredits; return the sum as a pair.

    An upper end of None means that there is no bound; the upper end of the sum is then None too. None in place of a
    pair counts as 0: the plan does not request this feature.
    """
    known = [share for share in shares if share is not None]
    highs = [high for _, high in known if high is not None]
    return sum(low for low, _ in known), sum(highs) if len(highs) == len(known) else None


def _sum_text(shares: Sequence[tuple[int, int | None] | None]) -> str:
    low, high = _sums(shares)
    return _milli_text(low, high)


def _rounded_up(price: CreditRange, shares: Sequence[tuple[int, int | None] | None]) -> str:
    """Return by how much `price`, that of a plan, exceeds the sum of `shares`, the costs of the features in the plan.

    The difference comes from rounding up to whole credits and from repeating the user's question (`--ask`). The result
    is a text in credits, such as `0.5` or `0.5 to 2`, or `at least 0.5` if `price` or the sum has no upper end.

    `shares` has a pair (lower end, upper end), in millicredits, for each feature of each back end. An upper end of None
    means that there is no bound. None in place of a pair counts as 0: the plan does not request this feature.
    """
    low, high = _sums(shares)
    most = None if price.high is None or high is None else price.high * MILLICREDITS - high
    return _milli_text(price.low * MILLICREDITS - low, most)


def _milli_text(low: int, high: int | None) -> str:
    if high is None:
        return f"at least {amount_text(low)}"
    return amount_text(low) if low == high else f"{amount_text(low)} to {amount_text(high)}"


def _share_text(share: tuple[int, int | None] | None, label: str) -> str:
    if share is None:
        return "-"
    return f"{_milli_text(*share)} ({label})"


def _prices(comparison: PlanComparison) -> list[tuple[str, str, str]]:
    return [
        (f"{rate.backend} {rate.feature}", amount_text(rate.before_milli), amount_text(rate.after_milli))
        for rate in comparison.prices
    ]


def _options(comparison: PlanComparison) -> list[tuple[str, str, str]]:
    return [
        (option.name.replace("_", "-"), _shorten(_value(option.before)), _shorten(_value(option.after)))
        for option in comparison.options
    ]


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
