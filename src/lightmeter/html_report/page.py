"""Writes the report page: Jinja templates with autoescape, filled from the report data.

Every value in a template is escaped. Before that, `sanitize_text` replaces control characters and shortens long texts.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Coroutine
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from lightmeter import atomic
from lightmeter.api.run_result import Run, output_folder
from lightmeter.clock import Clock, SystemClock
from lightmeter.errors import TablesError
from lightmeter.html_fragments import (
    data_uri,
    esc,
    format_duration,
    format_number,
    format_percent,
    replace_control_chars,
    valid_colors,
)
from lightmeter.html_report.charts import credit_chart, severity_chart, tag_chart, timeline_chart
from lightmeter.html_report.load import load_report_data
from lightmeter.html_report.model import ReportData, short_name
from lightmeter.media.oklab import srgb_to_linear

FILE_NAME: Final = "report.html"

MAX_TEXT_LENGTH: Final = 300
"""Longer texts are cut to this number of characters, so that they do not hide the rest of the page."""

_WEB_URL: Final = re.compile(r"https?://", re.IGNORECASE)

EQUAL_CONTRAST_LUMINANCE: Final = (1.05 * 0.05) ** 0.5 - 0.05
"""Relative luminance of a background on which black and white text have the same contrast, by WCAG 2.2."""


def report(
    run: Run | Path | str,
    *,
    by: str | None = None,
    fetch_thumbnails: bool = False,
    thumbnails: int = 24,
    clock: Clock | None = None,
) -> Coroutine[Any, Any, Path]:
    """Write one self-contained HTML page about a run into the run's folder, and return the path of the page.

    The run may still be in progress. Nothing is sent to the service.

    Args:
        run: The run, or its folder.
        by: Column of the table `assets` that groups palettes and costs; None groups by `kind` (image or video).
        fetch_thumbnails: Whether to download pictures that are not on this machine.
        thumbnails: Maximum number of pictures in the sample of results, and also in the list of items that a person
            should review.
        clock: Source of the time that the page shows; None means the system's clock.

    Raises:
        JournalError: The folder holds no run.
        UsageError: `by` is not a column of `assets`, or has too many values to show.
        TablesError: A table is damaged, or the page cannot be written.
    """
    out = run.folder if isinstance(run, Run) else output_folder(run)
    loading = load_report_data(
        out, by, fetch_thumbnails=fetch_thumbnails, thumbnails=thumbnails, clock=clock or SystemClock()
    )
    return _write_page(out / FILE_NAME, loading)


async def _write_page(target: Path, loading: Awaitable[ReportData]) -> Path:
    data = await loading
    try:
        await asyncio.to_thread(lambda: atomic.write_text(target, render_page(data)))
    except OSError as error:
        raise TablesError(
            f"{target} cannot be written: {error.strerror or error}.",
            hint="Free some disk space, or make the folder writable.",
        ) from error
    return target


def render_page(data: ReportData) -> str:
    """Return the report as one HTML document."""
    statistics = data.statistics
    charts = {"credits": credit_chart(data.statement)}
    if statistics.tags:
        charts["tags"] = tag_chart(statistics.tags, data.summary.rows)
    if statistics.severities.rated:
        charts["severity"] = severity_chart(statistics.severities)
    if statistics.timeline is not None:
        charts["timeline"] = timeline_chart(statistics.timeline)
    return (
        template_environment()
        .get_template("report.html.j2")
        .render(
            data=data,
            summary=data.summary,
            statistics=statistics,
            account=data.statement.to_dict(),
            charts=charts,
            sections=_shown_sections(data),
            sentence=summary_sentence(data),
            style=Markup(files("lightmeter.html_report").joinpath("report.css").read_text(encoding="utf-8")),  # noqa: S704 (our own file)
        )
    )


def _shown_sections(data: ReportData) -> dict[str, str]:
    """Return name → title of the report's sections that have content, in the order of the page.

    The name is the name of the section's template.
    """
    statistics = data.statistics
    sections = (
        ("rows", "Rows", True),
        ("credits", "Credits", not data.header.checked_only),
        ("screen", "Screen", data.summary.screen),
        ("pictures", "Pictures", data.sample),
        ("tags", "Tags", statistics.tags),
        ("shares", "Shares in the manifest", statistics.shares),
        ("colours", "Colours", statistics.palettes),
        ("moderation", "Moderation", statistics.severities.rated),
        ("backends", "Back ends", statistics.coverage or statistics.agreements),
        ("errors", "Errors", statistics.error_groups),
        ("time", "Time", statistics.timeline),
        ("origin", "Origin", True),
    )
    return {key: title for key, title, content in sections if content}


def summary_sentence(data: ReportData) -> str:
    """Return a sentence that says how many rows of the manifest are answered, and what happened to the other rows."""
    counts, rows = data.summary.counts, data.summary.rows
    phrases = {
        "failed": "failed",
        "skipped": "cannot be analysed, or did not pass the screen, and cost nothing"
        if data.summary.screen is not None
        else "cannot be analysed and cost nothing",
        "in_doubt": "in doubt",
        "over_budget": "not sent because of the budget",
        "pending": "still to be sent",
    }
    others = [f"{counts[status]:,} {phrase}" for status, phrase in phrases.items() if counts[status]]
    if not rows:
        return "The manifest has no rows."
    if data.header.checked_only:
        return f"The rows were only checked: {counts['pending']:,} of {rows:,} can be sent."
    if not others:
        return f"All {rows:,} rows are answered." if rows > 1 else "The one row is answered."
    return f"{counts['ok'] + counts['duplicate']:,} of {rows:,} rows are answered; {', '.join(others)}."


@cache
def template_environment() -> Environment:
    """Return the Jinja environment that loads the report's templates, with the filters that the templates use."""
    environment = Environment(
        loader=PackageLoader("lightmeter.html_report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=sanitize_text,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "credits": format_credits,
        "data_uri": lambda jpeg: Markup(data_uri(jpeg)),  # noqa: S704 (base64 only)
        "duration": format_duration,
        "number": format_number,
        "option_value": _format_option,
        "percent_of": format_percent,
        "short_name": short_name,
        "text_color_on": _text_color_on,
        "valid_colors": valid_colors,
        "web_url": web_url,
        "words": lambda name: name.replace("_", " "),
    }
    return environment


def sanitize_text(value: Any) -> Any:
    """Return a text cut to `MAX_TEXT_LENGTH` characters, with control characters replaced.

    Return `Markup` and values that are not texts unchanged.
    """
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return replace_control_chars(value if len(value) <= MAX_TEXT_LENGTH else f"{value[:MAX_TEXT_LENGTH]}…")


def format_credits(count: int | None) -> str:
    """Return a number of credits as text: `1 credit`, `1,234 credits`, or `not known` for None."""
    return "not known" if count is None else f"{count:,} credit{'' if count == 1 else 's'}"


def web_url(url: str | None) -> Markup | None:
    """Return an http or https URL escaped and uncut; None for any other text, because a browser must not open it."""
    if url is None or not _WEB_URL.match(url):
        return None
    return Markup(esc(replace_control_chars(url, "")))  # noqa: S704 (just escaped)


def _text_color_on(background: str) -> str:
    """Return the text color, `#000` or `#fff`, with the higher contrast (WCAG 2.2) on `background` (`#rrggbb`)."""
    luminance = srgb_to_linear(np.array(list(bytes.fromhex(background[1:]))) / 255) @ (0.2126, 0.7152, 0.0722)
    return "#000" if luminance > EQUAL_CONTRAST_LUMINANCE else "#fff"


def _format_option(value: Any) -> str:
    """Return the value of an option of the run as text: lists joined by commas, booleans as `yes` or `no`."""
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value))
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
