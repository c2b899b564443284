"""Writes what Prefect's web page shows about a run: counts, credits, tags, colors and a link to the report."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from prefect import task
from prefect.artifacts import acreate_link_artifact, acreate_markdown_artifact
from prefect.cache_policies import NO_CACHE
from prefect.logging import get_run_logger

from lightmeter.api.run_result import Run
from lightmeter.html_fragments import esc, valid_colors
from lightmeter.prefect_integration.flow_results import write_artifact, write_table
from lightmeter.prefect_integration.run_events import Spent
from lightmeter.pricing.estimate import counted
from lightmeter.redaction import mask_credentials

_MAX_SHOWN: Final = 12
"""Maximum number of tags, and maximum number of colors, that are shown."""

_WIDTH: Final = 640
"""Width of a picture, in pixels."""

_BAR: Final = 22
"""Height of a bar in a picture, in pixels."""

_TOTALS: Final = {name: f"{name} (run's total)" for name in ("paid", "requests", "seconds")}
"""Name of a value → its label in the summary, for values that the run adds up over all flow runs."""


async def show_results(run: Run, name: str, tables: dict[str, int], spent_by_flow_run: Spent) -> None:
    """Write the artifacts of a run: summary, statement of its credits, and pictures of its tags and colors, if any.

    Args:
        run: The run, with its tables.
        name: Name of the manifest.
        tables: Number of rows by table.
        spent_by_flow_run: What this flow run has spent.
    """
    title = f"{name} → {mask_credentials(str(run.folder))}"
    await write_table("analyze-summary", summary_rows(run.summary().to_dict(), tables, spent_by_flow_run), title)
    spent = (
        f"This flow run: {counted(spent_by_flow_run.paid, 'credit')} paid, "
        f"{counted(spent_by_flow_run.requests, 'request')} sent. The whole run:"
    )
    texts = {"analyze-statement": "\n".join((spent, "", "```", *run.statement().lines(), "```"))}
    if tables.get("tags"):
        tags = run.ask("top_tags", most=_MAX_SHOWN).to_pylist()
        texts["analyze-tags"] = tags_as_markdown([(row["name"], row["items"]) for row in tags])
    if tables.get("colors"):
        colors = run.ask("palette", most=_MAX_SHOWN).to_pylist()
        texts["analyze-palette"] = palette_as_markdown([(row["hex"], row["share"] or 0.0) for row in colors])
    for key, text in texts.items():
        await write_artifact(acreate_markdown_artifact(text, key=key, description=title))


@task(cache_policy=NO_CACHE, retries=0)
async def write_report(out: Path) -> Path | None:
    """Write the report page of the run in `out`, link to it in Prefect, and return its path.

    Return None if the extra `report` is not installed.
    """
    if find_spec("jinja2") is None or find_spec("matplotlib") is None:
        get_run_logger().info("No report: pip install 'lightmeter[report]' installs what it needs.")
        return None
    from lightmeter.html_report.page import report  # noqa: PLC0415 (an extra)

    page = await report(out)
    link = page.absolute().as_uri()
    await write_artifact(
        acreate_link_artifact(link, link_text="Report", key="analyze-report", description=f"Report of {out}")
    )
    return page


def tags_as_markdown(tags: Sequence[tuple[str, int]]) -> str:
    """Return Markdown with a bar chart (an image as data URL) and a table of tags.

    `tags` is (name, number of items) of each tag to show, most frequent first.
    """
    largest, shapes = max((items for _, items in tags), default=1), []
    for row, (name, items) in enumerate(tags):
        y = row * _BAR
        shapes += [
            f'<text x="196" y="{y + 15}" text-anchor="end">{esc(name[:28])}</text>',
            f'<rect x="204" y="{y + 3}" width="{max(1, items * 370 // largest)}" height="{_BAR - 6}" fill="#3b6fd4"/>',
            f'<text x="{210 + items * 370 // largest}" y="{y + 15}">{items:,}</text>',
        ]
    picture = _picture("Most frequent tags", len(tags) * _BAR, shapes)
    return _markdown(picture, ("tag", "items"), ((_cell(name), f"{items:,}") for name, items in tags))


def palette_as_markdown(colors: Sequence[tuple[str, float]]) -> str:
    """Return the main colors (`#rrggbb`, share 0 to 1) as a picture with stripes and as a Markdown table."""
    colors = valid_colors(colors)
    total, x, shapes = sum(share for _, share in colors) or 1.0, 0.0, []
    for color, share in colors:
        width = _WIDTH * share / total
        shapes.append(f'<rect x="{x:.1f}" width="{width:.1f}" height="60" fill="{color}"/>')
        x += width
    return _markdown(_picture("Main colors", 60, shapes), ("color", "share"), ((c, f"{s:.1%}") for c, s in colors))


def _picture(title: str, height: int, shapes: Iterable[str]) -> str:
    """Return an image in Markdown that holds SVG shapes in a data URI.

    Args:
        title: Alternative text of the image.
        height: Height of the image in pixels.
        shapes: SVG elements.
    """
    style = 'font-family="sans-serif" font-size="12" fill="#888"'
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" {style}>{"".join(shapes)}</svg>'
    return f"![{title}](data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()})"


def _markdown(picture: str, head: tuple[str, str], rows: Iterable[tuple[str, str]]) -> str:
    table = [f"| {head[0]} | {head[1]} |", "|---|---:|", *(f"| {one} | {other} |" for one, other in rows)]
    return "\n".join((picture, "", *table))


def _cell(text: str) -> str:
    """Return a text on one line, escaped for a cell of a Markdown table. The text need not be trusted."""
    return esc(" ".join(text.split())).replace("|", "\\|")


def summary_rows(summary: dict[str, Any], tables: dict[str, int], spent_by_flow_run: Spent) -> list[dict[str, Any]]:
    """Return rows of a table: what a flow run has spent, then the totals of the run, then the sizes of its tables.

    Each row is a dict with the keys `name` and `value`.

    Args:
        summary: The summary of the run, as `RunSummary.to_dict` returns it.
        tables: Table → number of rows.
        spent_by_flow_run: What this flow run has spent.
    """
    values = {**summary, **summary["credits"], **{f"table {table}": count for table, count in tables.items()}}
    totals = [
        {"name": _TOTALS.get(name, name), "value": value}
        for name, value in values.items()
        if not isinstance(value, dict)
    ]
    return [
        *({"name": name.replace("_", " "), "value": value} for name, value in spent_by_flow_run.payload.items()),
        *totals,
    ]
