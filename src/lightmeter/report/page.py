"""The page, whole: head, verdict, sections. No script, and nothing that is asked of any other place."""

from __future__ import annotations

from collections.abc import Iterator

from lightmeter.html_fragments import format_duration
from lightmeter.report.findings import (
    backend_section,
    color_section,
    moderation_section,
    picture_section,
    tag_section,
)
from lightmeter.report.markup import credits_, esc
from lightmeter.report.model import ReportData, short_name
from lightmeter.report.sections import (
    Section,
    credit_section,
    error_section,
    origin_section,
    row_section,
    time_section,
)
from lightmeter.report.style import STYLE

__all__ = ["render_page", "summary_sentence"]

_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def render_page(facts: ReportData) -> str:
    """The report as one HTML document."""
    title = f"{short_name(facts.header.manifest)}: lightmeter report"
    sections = [section for section in _sections(facts) if section.body]
    contents = "".join(f'<a href="#{section.key}">{section.title}</a>' for section in sections)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><meta name="referrer" content="no-referrer">'
        f"<title>{esc(title)}</title><style>{STYLE}</style></head>\n<body><div class=page>{_head(facts)}"
        f'<nav aria-label="Contents">{contents}</nav><main>{"".join(map(_html, sections))}</main>'
        f"<footer>Made by lightmeter, {esc(facts.made_at)}, from the journal and the tables of this run.</footer>"
        "</div></body></html>\n"
    )


def summary_sentence(facts: ReportData) -> str:
    """The run in a sentence."""
    counts, rows = facts.summary.counts, facts.summary.rows
    done = counts["ok"] + counts["duplicate"]
    left = {
        "failed": "failed",
        "skipped": "cannot work and cost nothing",
        "in_doubt": "in doubt",
        "over_budget": "left out by the budget",
        "pending": "still to be sent",
    }
    others = [f"{counts[status]:,} {words}" for status, words in left.items() if counts[status]]
    if not rows:
        return "The manifest has no rows."
    if not others:
        return f"All {rows:,} rows are answered." if rows > 1 else "The one row is answered."
    return f"{done:,} of {rows:,} rows are answered; {', '.join(others)}."


def _sections(facts: ReportData) -> Iterator[Section]:
    yield row_section(facts)
    yield credit_section(facts)
    yield picture_section(facts)
    yield tag_section(facts)
    yield color_section(facts)
    yield moderation_section(facts)
    yield backend_section(facts)
    yield error_section(facts)
    yield time_section(facts)
    yield origin_section(facts)


def _html(section: Section) -> str:
    named = f"{section.key}-h"
    head = f'<header><h2 id="{named}">{section.title}</h2><p>{esc(section.lead)}</p></header>'
    return (
        f'<section id="{section.key}" aria-labelledby="{named}">{head}<div class="body">{section.body}</div></section>'
    )


def _head(facts: ReportData) -> str:
    summary = facts.summary
    rate = summary.rows / summary.seconds if summary.seconds > 0 else None
    cap = "no budget" if summary.budget is None else f"of {summary.budget:,} allowed"
    tiles = [
        ("rows", f"{summary.rows:,}", f"{summary.counts['ok'] + summary.counts['duplicate']:,} answered"),
        ("credits paid", f"{summary.paid:,}", cap if not summary.held else f"{cap}, {summary.held:,} held"),
        (
            "requests",
            f"{summary.requests:,}",
            f"{credits_(summary.balance_after)} left"
            if summary.balance_after is not None and summary.balance_is_current
            else "",
        ),
        ("time", format_duration(summary.seconds), "" if rate is None else f"{rate:,.1f} rows a second"),
    ]
    shown = "".join(
        f"<div><dt>{name}</dt><dd>{value}</dd><dd class=fine>{esc(more)}</dd></div>" for name, value, more in tiles
    )
    warning = (
        ""
        if facts.found.written or not summary.rows
        else '<p class="remark warn">The tables are not written yet: <code>lightmeter rebuild DIR</code> writes them '
        "from the journal; until then only rows and credits can be shown.</p>"
    )
    planned = esc(facts.header.planned_at.replace("T", " ").removesuffix("Z"))
    return (
        f'<header class="top"><p class="eyebrow">lightmeter report</p><h1>{esc(short_name(facts.header.manifest))}</h1>'
        f'<p class="verdict">{summary_sentence(facts)}</p>'
        f'<p class="fine">Run {esc(facts.header.run_id)}, planned {planned} UTC</p>'
        f'<dl class="tiles">{shown}</dl>{warning}</header>'
    )
