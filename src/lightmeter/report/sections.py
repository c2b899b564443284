"""The sections of the page about money and work, each from the facts to HTML. An empty body is left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from lightmeter.html_fragments import format_duration, format_percent
from lightmeter.journal.items import STATUSES
from lightmeter.money.statement import Statement
from lightmeter.report.charts import credit_chart, timeline_chart
from lightmeter.report.markup import FormattedNumber, Html, credits_, esc, link_html, table
from lightmeter.report.model import ErrorGroup, ReportData, short_name
from lightmeter.report.svg import Chart

__all__ = ["Section", "chart_html", "credit_section", "error_section", "origin_section", "row_section", "time_section"]

_MEANS: Final[Mapping[str, str]] = {
    "ok": "answered",
    "failed": "sent, and no answer for it",
    "skipped": "not sent: it cannot work",
    "duplicate": "shares the answer of an earlier row",
    "in_doubt": "sent, and nobody can say what became of it",
    "over_budget": "not sent: the budget ended",
    "pending": "not sent yet",
}

_SAVINGS: Final[Mapping[str, tuple[str, str]]] = {
    "duplicates": ("duplicates", "assets that stand in several rows are paid for once"),
    "cache": ("earlier runs", "answers that were paid for before"),
    "prechecks": ("pre-checks", "rows that cannot work are not sent"),
}
"""What a statement calls a saving → what the page calls it, and what it is."""

MAX_REASONS: Final = 12


@dataclass(frozen=True, slots=True)
class Section:
    """One section: its name in the page, its title, a sentence about it, and its HTML."""

    key: str
    title: str
    lead: str
    body: str


def chart_html(chart: Chart) -> str:
    """A chart, wide and narrow: the style sheet shows the one that fits."""
    drawn = []
    for size, svg in (("wide", chart.wide), ("narrow", chart.narrow)):
        name = f"{chart.key}-{size}"
        named = f'<svg role="img" aria-labelledby="{name}-t {name}-d"'
        words = f'<title id="{name}-t">{esc(chart.title)}</title><desc id="{name}-d">{esc(chart.description)}</desc>'
        opened, rest = svg.replace("<svg", named, 1).split(">", 1)
        drawn.append(f'<div class="{size}">{opened}>{words}{rest}</div>')
    return f'<figure class="chart" id="chart-{chart.key}">{"".join(drawn)}</figure>'


def row_section(facts: ReportData) -> Section:
    """Rows by status as one bar, and why they are not ok."""
    counts, rows = facts.summary.counts, facts.summary.rows
    there = [status for status in STATUSES if counts[status]]
    said = ", ".join(f"{_word(status)} {counts[status]:,}" for status in there)
    parts = "".join(
        f'<i class="s-{status}" style="flex-grow:{counts[status]}" title="{_word(status)}: {counts[status]:,}"></i>'
        for status in there
    )
    legend = [
        (
            Html(f'<i class="dot s-{status}"></i>{_word(status)}'),
            counts[status],
            FormattedNumber(format_percent(counts[status], rows)),
            _MEANS[status],
        )
        for status in there
    ]
    why = [
        (
            Html(f'<i class="dot s-{esc(reason.status)}"></i>{esc(reason.reason.replace("_", " "))}'),
            reason.rows,
            reason.example,
        )
        for reason in facts.reasons[:MAX_REASONS]
    ]
    body = f'<div class="rows" role="img" aria-label="Rows: {said}">{parts}</div>'
    body += table(("status", "rows", "share", "meaning"), legend)
    if why:
        body += table(("reason", "rows", "for example"), why, caption="Why rows are not ok")
        body += _more(len(facts.reasons) - len(why), "reasons", "assets")
    return Section("rows", "Rows", "Every row of the manifest stands in exactly one count.", body)


def credit_section(facts: ReportData) -> Section:
    """The credit statement, and what each group cost."""
    stated, told = facts.statement, facts.statement.to_dict()
    lines: list[tuple[Any, ...]] = [
        ("predicted", Html(esc(stated.predicted)), "before anything was known of the service's rounding"),
        ("budget", "no cap" if stated.budget is None else credits_(stated.budget), "never more than this is spent"),
        ("paid", credits_(stated.paid), f"for {facts.summary.requests:,} requests"),
        ("held", credits_(stated.held), "set aside for requests whose end is not known"),
        (
            "a picture",
            Html(esc(stated.price_per_picture)),
            f"rounded up by {stated.rounding or 'image or request: not known yet'}",
        ),
        ("balance", _balance(stated), _unexplained(told)),
        *((f"saved by {_SAVINGS[name][0]}", _range(saved), _SAVINGS[name][1]) for name, saved in told["saved"].items()),
    ]
    body = chart_html(credit_chart(stated)) + table(("", "credits", ""), lines)
    body += "".join(f'<p class="remark">{esc(note)}</p>' for note in _notes(told))
    body += _shares(told)
    if len(facts.found.costs) > 1:
        by = facts.found.group_column
        costs = [
            (_group(cost.group), cost.items, cost.ok, cost.credits, cost.credits_per_ok) for cost in facts.found.costs
        ]
        body += table((by, "items", "ok", "credits", "credits an ok item"), costs, caption=f"Cost by {by}")
    lead = "Predicted, set aside, paid: every credit is accounted for, and none is guessed."
    return Section("credits", "Credits", lead, body)


def error_section(facts: ReportData) -> Section:
    """Errors that back ends reported, by cause."""
    causes = facts.found.causes
    rows = [(_cause(cause), cause.backend, cause.times, cause.items, cause.unmatched or None) for cause in causes]
    body = table(("cause", "back end", "times", "rows", "of no row"), rows) if rows else ""
    body += _more(facts.found.causes_in_all - len(rows), "causes", "errors")
    lead = "What back ends reported; messages that differ in addresses and figures only are one cause."
    return Section("errors", "Errors", lead, body)


def time_section(facts: ReportData) -> Section:
    """Requests and credits over time, and what took longest."""
    timeline = facts.found.timeline
    if timeline is None:
        return Section("time", "Time", "", "")
    body = chart_html(timeline_chart(timeline))
    if timeline.quantiles_s is not None:
        named = zip(("median", "95 of 100 within", "longest"), timeline.quantiles_s, strict=True)
        tiles = "".join(f"<div><dt>{name}</dt><dd>{format_duration(value)}</dd></div>" for name, value in named)
        body += f'<dl class="tiles small">{tiles}</dl>'
    rows = [
        (
            link_html(slow.url, short_name(slow.url)) if slow.url else None,
            Html(_word(slow.state)),
            slow.assets,
            slow.credits_paid,
            slow.polls,
            FormattedNumber(f"{slow.seconds:.2f} s"),
        )
        for slow in facts.found.slowest
    ]
    body += (
        table(("address", "state", "assets", "credits", "polls", "time"), rows, caption="Slowest requests")
        if rows
        else ""
    )
    return Section("time", "Time", "From sending a request to its results.", body)


def origin_section(facts: ReportData) -> Section:
    """What was asked for, of which manifest, and how to ask further."""
    header = facts.header
    options = {
        name: _option(value) for name, value in header.options.model_dump().items() if value not in (None, (), "")
    }
    about = {
        "run": header.run_id,
        "manifest": short_name(header.manifest),
        "manifest sha256": header.manifest_sha256,
        "planned at": header.planned_at,
        "tables by": f"lightmeter {facts.lineage['lightmeter']}" if "lightmeter" in facts.lineage else None,
        "page made at": facts.made_at,
    }
    rows = [(name, value) for name, value in about.items() if value]
    rows += [(name.replace("_", " "), value) for name, value in options.items()]
    hint = (
        '<p class="remark">The tables hold everything that was answered, unfiltered; this page shows the first of each '
        'list. Ask further with <code>lightmeter sql DIR "SELECT …"</code>, or in Python with '
        "<code>lm.open(DIR).sql(…)</code>.</p>"
    )
    return Section("origin", "Origin", "What was asked for, of which manifest.", table(("", ""), rows) + hint)


def _notes(told: Mapping[str, Any]) -> Iterator[str]:
    """What somebody who is to trust the account should know of it."""
    yield from told["notes"]
    for gap in told["gaps"]:
        yield f"Gap: {credits_(gap['credits'])} left the account, and no answer accounts for it."
    doubt = told["in_doubt"]
    if doubt["requests"]:
        yield f"In doubt: {doubt['requests']:,} requests with {doubt['rows']:,} rows were sent and never answered."
    if doubt["lost_requests"]:
        lost = credits_(doubt["lost_credits"])
        yield f"Lost: {doubt['lost_requests']:,} requests were charged {lost} and never answered."


def _shares(told: Mapping[str, Any]) -> str:
    """What was paid, back end by back end, where that can be told."""
    if told["shares_unknown"] is not None or not told["shares"]:
        return ""
    rows: list[tuple[Any, ...]] = [
        (share_["backend"], share_["feature"], share_["pictures"], share_["credits"]) for share_ in told["shares"]
    ]
    rows += [("rounded up", None, None, told["rounded_up"])] if told["rounded_up"] else []
    return table(("back end", "feature", "images and frames", "credits"), rows, caption="What was paid for")


def _cause(cause: ErrorGroup) -> Html:
    if cause.cause == cause.example:
        return Html(esc(cause.cause))
    return Html(f'{esc(cause.cause)}<div class="fine">for example: {esc(cause.example)}</div>')


def _word(status: str) -> str:
    return esc(status.replace("_", " "))


def _group(name: str) -> str:
    return "none" if name == "None" else name


def _more(count: int, what: str, where: str) -> str:
    return (
        f'<p class="remark">… and {count:,} more {what}: all are in the table <code>{where}</code>.</p>'
        if count > 0
        else ""
    )


def _balance(stated: Statement) -> str:
    before, after = stated.balance_before, stated.balance_after
    if before is None or after is None:
        return "not read yet"
    return f"{before:,} before, " + (f"{after:,} after" if stated.balance_is_current else "not read since")


def _unexplained(told: Mapping[str, Any]) -> str:
    missing = told["unexplained"]
    if missing is None:
        return ""
    return f"{missing} unexplained" if missing else "nothing is unexplained"


def _range(saved: Mapping[str, int | None]) -> str:
    low, high = saved["low"] or 0, saved["high"]
    if high is None:
        return f"at least {credits_(low)}"
    return credits_(low) if low == high else f"{low:,} to {credits_(high)}"


def _option(value: Any) -> str:
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value))
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
