"""The charts of the report: each function draws one chart from plain values."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from lightmeter.html_fragments import format_duration
from lightmeter.html_report.model import BINS, REVIEW_FROM, RequestTimeline, Row, SeverityHistogram
from lightmeter.html_report.svg import (
    ACCENT,
    AMBER,
    BORDER,
    MUTED,
    PALE,
    RED,
    TEXT_COLOR,
    Canvas,
    Chart,
    draw,
    style_axes,
)
from lightmeter.money.statement import Statement

BAR_PX: Final = 24
"""Height in CSS pixels that a bar takes, with the space above and below it."""

MAX_BUDGET_RATIO: Final = 4
"""A budget above this multiple of all other amounts is drawn with an open end, so that their bars stay visible."""


def credit_chart(statement: Statement) -> Chart:
    """Draw the credits of a run on one scale: predicted, paid, held, and the budget.

    Held credits are reserved for requests that may have been charged.
    """
    low, high = statement.predicted.low, statement.predicted.high
    spent, budget = statement.paid + statement.held, statement.budget
    largest = max(low, high or 0, spent, 1)
    budget_fits = budget is not None and budget <= MAX_BUDGET_RATIO * largest
    end = 1.02 * max(largest, budget if budget_fits and budget is not None else 0)
    names = ["predicted", "paid and held"]
    values = [str(statement.predicted).removesuffix(" credits").removesuffix(" credit"), f"{spent:,}"]
    if budget is not None:
        names.append("budget")
        values.append(f"{budget:,}" if budget_fits else f"{budget:,} \N{RIGHTWARDS ARROW}")

    def paint(canvas: Canvas) -> None:
        axes = canvas.axes(92 if canvas.narrow else 108, 4, 86 if canvas.narrow else 96, 26)
        axes.barh(0, (end if high is None else max(high, low)) - low or end / 400, left=low, height=0.5, color=PALE)
        axes.barh(0, max(end / 400, 0), left=low, height=0.5, color=MUTED)
        axes.barh(1, statement.paid, height=0.5, color=ACCENT)
        axes.barh(1, statement.held, left=statement.paid, height=0.5, color=AMBER)
        if budget is not None:  # an outline, open on the right if the budget is beyond the scale
            right = budget if budget_fits else end
            corners = [(right, 1.75), (0, 1.75), (0, 2.25), (right, 2.25), *([(right, 1.75)] if budget_fits else [])]
            axes.plot(*zip(*corners, strict=True), color=MUTED, linewidth=1)
        for row, text in enumerate(values):
            axes.annotate(text, (1, row), (8, 0), ("axes fraction", "data"), "offset points", va="center")
        axes.set(xlim=(0, end), ylim=(len(names) - 0.5, -0.5), yticks=range(len(names)), yticklabels=names)
        axes.locator_params(axis="x", nbins=4 if canvas.narrow else 8, integer=True)
        axes.xaxis.set_major_formatter("{x:,.0f}")
        style_axes(axes, grid="x")

    budget_text = "there was no budget" if budget is None else f"the budget was {budget:,}"
    description = (
        f"Predicted: {statement.predicted}. Paid: {statement.paid:,}, held: {statement.held:,}; {budget_text}."
    )
    height = 30 + BAR_PX * 3 // 2 * len(names)
    return draw("credits", "Credits predicted, spent and allowed", description, (height, height), paint)


def tag_chart(tags: Sequence[Row], items: int) -> Chart:
    """Draw a bar for each of the most frequent tags, as long as the number of items that have the tag.

    A row in `tags` has `name`, the tag, and `items`, the number of items that have the tag. The argument `items` is the
    number of all items of the run.
    """

    def paint(canvas: Canvas) -> None:
        left, max_columns = (116, 14) if canvas.narrow else (184, 23)
        axes = canvas.axes(left, 2, 52, 6)
        axes.barh(range(len(tags)), [tag["items"] for tag in tags], height=0.62, color=ACCENT)
        for row, tag in enumerate(tags):
            name = canvas.placeholder(tag["name"], max_columns)
            axes.annotate(
                name, (0, row), (-8, 0), ("data", "data"), "offset points", ha="right", va="center", color=TEXT_COLOR
            )
            axes.annotate(
                f"{tag['items']:,}", (tag["items"], row), (6, 0), "data", "offset points", va="center", color=MUTED
            )
        largest = max(tag["items"] for tag in tags)
        axes.set(xlim=(0, largest), ylim=(len(tags) - 0.4, -0.6), xticks=[], yticks=[])
        axes.spines["bottom"].set_visible(False)
        axes.axvline(0, color=BORDER, linewidth=1)

    top = ", ".join(f"{tag['name']} {tag['items']:,}" for tag in tags[:5])
    description = f"{len(tags)} tags by the number of items that have them, of {items:,} items. Most frequent: {top}."
    height = 8 + BAR_PX * len(tags)
    return draw("tags", "Most frequent tags", description, (height, height), paint)


def severity_chart(severities: SeverityHistogram) -> Chart:
    """Draw a histogram of items by NSFW severity; bars of items that a person should review have another color."""

    def paint(canvas: Canvas) -> None:
        axes = canvas.axes(8, 24, 8, 44)
        for number, items in enumerate(severities.bins):
            color = ACCENT if number < REVIEW_FROM * BINS else RED
            axes.bar(number + 0.5, items, width=0.86, color=color)
            if items:
                label = _abbreviate(items) if canvas.narrow else f"{items:,}"
                axes.annotate(
                    label, (number + 0.5, items), (0, 5), "data", "offset points", ha="center", color=TEXT_COLOR
                )
        axes.axvline(REVIEW_FROM * BINS, color=MUTED, linewidth=1, linestyle=(0, (3, 3)))
        ticks = list(range(0, BINS + 1, 5 if canvas.narrow else 1))
        labels = [f"{tick / BINS:g}" for tick in ticks]
        axes.set(xlim=(0, BINS), ylim=(0, max(severities.bins) or 1), xticks=ticks, xticklabels=labels, yticks=[])
        axes.set_xlabel("severity: 0 harmless, 1 unsafe", labelpad=6)
        style_axes(axes)

    counts = ", ".join(
        f"{number / BINS:g} to {(number + 1) / BINS:g}: {items:,}"
        for number, items in enumerate(severities.bins)
        if items
    )
    review = f"{severities.to_review:,} of {severities.rated:,} are to be reviewed"
    description = f"Items by their highest severity: {counts}. {review}."
    return draw("severity", "Distribution of NSFW severity", description, (220, 190), paint)


def timeline_chart(timeline: RequestTimeline) -> Chart:
    """Draw the number of requests of a run over time, and below it the running total of credits paid."""
    bin_count = max(timeline.bins) + 1
    rows = [timeline.bins.get(number, (0, 0, 0)) for number in range(bin_count)]
    sent = [requests for requests, _, _ in rows]
    paid = list(accumulate((credits_ for _, _, credits_ in rows), initial=0))
    unit_s, unit = _time_unit(bin_count * timeline.bin_s)
    edges = [number * timeline.bin_s / unit_s for number in range(bin_count + 1)]
    bin_width = _describe_bin(timeline.bin_s)

    def paint(canvas: Canvas) -> None:
        above, below = canvas.axes(8, 24, 56, 184), canvas.axes(8, 162, 56, 46)
        above.stairs(sent, edges, fill=True, color=ACCENT)
        above.set_ylim(0, max(sent) * 1.02 or 1)
        below.fill_between(edges, paid, step=None, color=PALE)
        below.plot(edges, paid, color=AMBER, linewidth=2)
        below.set(ylim=(0, max(paid) * 1.05 or 1), xlabel=f"{unit} since {timeline.started_at}")
        for axes, title in ((above, f"requests sent in {bin_width}"), (below, "credits paid so far")):
            axes.annotate(title, (0, 1), (0, 8), "axes fraction", "offset points", ha="left", color=TEXT_COLOR)
            axes.set_xlim(0, edges[-1])
            axes.yaxis.tick_right()
            axes.locator_params(axis="y", nbins=3, integer=True)
            axes.locator_params(axis="x", nbins=4 if canvas.narrow else 9)
            axes.xaxis.set_major_formatter("{x:g}" if axes is below else "")
            axes.yaxis.set_major_formatter("{x:,.0f}")
            style_axes(axes, grid="y")

    length = format_duration(edges[-1] * unit_s)
    busiest = f"{max(sent):,} in {bin_width}"
    description = f"{sum(sent):,} requests over {length}, {paid[-1]:,} credits paid; busiest: {busiest}."
    return draw("timeline", "Requests and credits over time", description, (310, 310), paint)


def _abbreviate(count: int) -> str:
    """Return a number as a short text: `950`, `1.2k`, `35k`, `4.0M`."""
    for unit, size in (("M", 1_000_000), ("k", 1_000)):
        if count >= 10 * size:
            return f"{count / size:.0f}{unit}"
        if count >= size:
            return f"{count / size:.1f}{unit}"
    return str(count)


def _describe_bin(width_s: float) -> str:
    """Return the width of a time bin in words: `a minute`, `6 hours`, `0.1 seconds`."""
    for size_s, name in ((86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second")):
        if width_s >= size_s:
            count = round(width_s / size_s)
            return f"{count} {name}s" if count > 1 else f"{'an' if name == 'hour' else 'a'} {name}"
    return f"{width_s:g} seconds"


def _time_unit(span_s: float) -> tuple[int, str]:
    """Return the unit for a time axis of `span_s` seconds, as (length in seconds, name), such as (3600, `hours`)."""
    for size_s, name in ((86_400, "days"), (3600, "hours"), (60, "minutes")):
        if span_s >= 3 * size_s:
            return size_s, name
    return 1, "seconds"
