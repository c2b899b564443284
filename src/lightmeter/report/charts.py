"""What the page draws, each chart by one function of plain values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from lightmeter.html_fragments import format_duration
from lightmeter.money.statement import Statement
from lightmeter.report.model import BINS, REVIEW_FROM, RequestTimeline, SeverityHistogram, TagFrequency
from lightmeter.report.svg import ACCENT, AMBER, LINE, PALE, RED, SOFT, TEXT_COLOR, Canvas, Chart, draw, style_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["credit_chart", "severity_chart", "tag_chart", "timeline_chart"]

BAR_PX: Final = 24
OFF_SCALE: Final = 4
"""A budget that is so many times what was predicted and paid is named, not drawn: all else would be a hair."""


def credit_chart(statement: Statement) -> Chart:
    """Predicted range, what was paid and is held, and the cap, on one scale of credits."""
    low, high = statement.predicted.low, statement.predicted.high
    spent = statement.paid + statement.held
    most = max(low, high or 0, spent, 1)
    budget = statement.budget
    drawn = budget is not None and budget <= OFF_SCALE * most
    end = 1.02 * max(most, budget if drawn and budget is not None else 0)
    names = ["predicted", "paid and held", *(["budget"] if budget is not None else [])]

    def paint(canvas: Canvas) -> None:
        axes = canvas.axes(92 if canvas.narrow else 108, 4, 86 if canvas.narrow else 96, 26)
        places = range(len(names))
        axes.barh(0, (end if high is None else max(high, low)) - low or end / 400, left=low, height=0.5, color=PALE)
        axes.barh(0, max(end / 400, 0), left=low, height=0.5, color=SOFT)
        axes.barh(1, statement.paid, height=0.5, color=ACCENT)
        axes.barh(1, statement.held, left=statement.paid, height=0.5, color=AMBER)
        if budget is not None:
            right = budget if drawn else end  # open where it goes on beyond the scale
            outline = (
                [right, 0, 0, right, *([right] if drawn else [])],
                [1.75, 1.75, 2.25, 2.25, *([1.75] if drawn else [])],
            )
            axes.plot(*outline, color=SOFT, linewidth=1)
        said = [str(statement.predicted).removesuffix(" credits").removesuffix(" credit"), f"{spent:,}"]
        said += [] if budget is None else [f"{budget:,}" if drawn else f"{budget:,} \u2192"]
        for place, text in zip(places, said, strict=True):
            axes.annotate(text, (1, place), (8, 0), ("axes fraction", "data"), "offset points", va="center")
        axes.set(xlim=(0, end), ylim=(len(names) - 0.5, -0.5), yticks=list(places), yticklabels=names)
        axes.locator_params(axis="x", nbins=4 if canvas.narrow else 8, integer=True)
        _thousands(axes)
        style_axes(axes, grid="x")

    cap = "there was no budget" if budget is None else f"the budget was {budget:,}"
    words = f"Predicted: {statement.predicted}. Paid: {statement.paid:,}, held: {statement.held:,}; {cap}."
    height = 30 + BAR_PX * 3 // 2 * len(names)
    return draw("credits", "Credits predicted, spent and allowed", words, (height, height), paint)


def tag_chart(tags: Sequence[TagFrequency], items: int) -> Chart:
    """The most frequent tags as bars, with the items that have them."""

    def paint(canvas: Canvas) -> None:
        left, letters = (116, 14) if canvas.narrow else (184, 23)
        axes = canvas.axes(left, 2, 52, 6)
        counts = [tag.items for tag in tags]
        axes.barh(range(len(tags)), counts, height=0.62, color=ACCENT)
        for place, tag in enumerate(tags):
            name = canvas.foreign(tag.name, letters)
            axes.annotate(
                name, (0, place), (-8, 0), ("data", "data"), "offset points", ha="right", va="center", color=TEXT_COLOR
            )
            axes.annotate(
                f"{tag.items:,}", (tag.items, place), (6, 0), "data", "offset points", va="center", color=SOFT
            )
        axes.set(xlim=(0, max(counts)), ylim=(len(tags) - 0.4, -0.6), xticks=[], yticks=[])
        axes.spines["bottom"].set_visible(False)
        axes.axvline(0, color=LINE, linewidth=1)

    first = ", ".join(f"{tag.name} {tag.items:,}" for tag in tags[:5])
    words = f"{len(tags)} tags by the number of items that have them, of {items:,} items. Most frequent: {first}."
    height = 8 + BAR_PX * len(tags)
    return draw("tags", "Most frequent tags", words, (height, height), paint)


def severity_chart(severities: SeverityHistogram) -> Chart:
    """Items by tenths of the severity scale; what is to be reviewed stands out."""

    def paint(canvas: Canvas) -> None:
        axes = canvas.axes(8, 24, 8, 44)
        bins = severities.bins
        for at, items in enumerate(bins):
            color = ACCENT if at < REVIEW_FROM * BINS else RED
            axes.bar(at + 0.5, items, width=0.86, color=color)
            if items:
                label = _short(items) if canvas.narrow else f"{items:,}"
                axes.annotate(label, (at + 0.5, items), (0, 5), "data", "offset points", ha="center", color=TEXT_COLOR)
        axes.axvline(REVIEW_FROM * BINS, color=SOFT, linewidth=1, linestyle=(0, (3, 3)))
        ticks = list(range(0, BINS + 1, 5 if canvas.narrow else 1))
        labels = [f"{tick / BINS:g}" for tick in ticks]
        axes.set(xlim=(0, BINS), ylim=(0, max(bins) or 1), xticks=ticks, xticklabels=labels, yticks=[])
        axes.set_xlabel("severity: 0 harmless, 1 unsafe", labelpad=6)
        style_axes(axes)

    counts = ", ".join(
        f"{at / BINS:g} to {(at + 1) / BINS:g}: {items:,}" for at, items in enumerate(severities.bins) if items
    )
    review = f"{severities.to_review:,} of {severities.rated:,} are to be reviewed"
    words = f"Items by their highest severity: {counts}. {review}."
    return draw("severity", "Distribution of NSFW severity", words, (220, 190), paint)


def timeline_chart(timeline: RequestTimeline) -> Chart:
    """Requests in each bin of time above, credits paid so far below."""
    last = max(timeline.bins)
    width_s = timeline.bin_s
    unit_s, unit = _time_unit((last + 1) * width_s)
    edges = [at * width_s / unit_s for at in range(last + 2)]
    sent = [timeline.bins.get(at, (0, 0, 0))[0] for at in range(last + 1)]
    paid = [0]
    for at in range(last + 1):
        paid.append(paid[-1] + timeline.bins.get(at, (0, 0, 0))[2])

    def paint(canvas: Canvas) -> None:
        above = canvas.axes(8, 24, 56, 184)
        above.stairs(sent, edges, fill=True, color=ACCENT)
        above.set_ylim(0, max(sent) * 1.02 or 1)
        _headed(above, f"requests sent in {_every(width_s)}")
        below = canvas.axes(8, 162, 56, 46)
        below.fill_between(edges, paid, step=None, color=PALE)
        below.plot(edges, paid, color=AMBER, linewidth=2)
        below.set(ylim=(0, max(paid) * 1.05 or 1), xlabel=f"{unit} since {timeline.started_at}")
        _headed(below, "credits paid so far")
        for axes in (above, below):
            axes.set_xlim(0, edges[-1])
            axes.yaxis.tick_right()
            axes.locator_params(axis="y", nbins=3, integer=True)
            axes.locator_params(axis="x", nbins=4 if canvas.narrow else 9)
            axes.xaxis.set_major_formatter("{x:g}" if axes is below else "")
            _thousands(axes, "y")
            style_axes(axes, grid="y")

    busiest = f"{max(sent):,} in {_every(width_s)}"
    length = format_duration(edges[-1] * unit_s)
    words = f"{sum(sent):,} requests over {length}, {paid[-1]:,} credits paid; busiest: {busiest}."
    return draw("timeline", "Requests and credits over time", words, (310, 310), paint)


def _headed(axes: Axes, text: str) -> None:
    axes.annotate(text, (0, 1), (0, 8), "axes fraction", "offset points", ha="left", color=TEXT_COLOR)


def _thousands(axes: Axes, of: str = "x") -> None:
    axis = axes.xaxis if of == "x" else axes.yaxis
    axis.set_major_formatter("{x:,.0f}")


def _short(count: int) -> str:
    """A count in at most four letters."""
    for unit, size in (("M", 1_000_000), ("k", 1_000)):
        if count >= 10 * size:
            return f"{count / size:.0f}{unit}"
        if count >= size:
            return f"{count / size:.1f}{unit}"
    return str(count)


def _every(width_s: float) -> str:
    for size, name in ((86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second")):
        if width_s >= size:
            many = round(width_s / size)
            return f"{many} {name}s" if many > 1 else f"{'an' if name == 'hour' else 'a'} {name}"
    return f"{width_s:g} seconds"


def _time_unit(span_s: float) -> tuple[int, str]:
    for size, name in ((86_400, "days"), (3600, "hours"), (60, "minutes")):
        if span_s >= 3 * size:
            return size, name
    return 1, "seconds"
