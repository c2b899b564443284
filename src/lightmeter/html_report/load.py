"""Loads the data of the report: totals from the journal, statistics from the tables, thumbnails of the items shown.

Memory use does not grow with the manifest, because DuckDB aggregates, and only the first rows of each list become
Python objects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import numpy as np

from lightmeter.api.run_result import summarize
from lightmeter.clock import Clock, utc_from_timestamp
from lightmeter.errors import UsageError
from lightmeter.html_report import queries
from lightmeter.html_report.model import (
    BINS,
    REVIEW_FROM,
    Colors,
    GalleryItem,
    ReportData,
    ReportItem,
    RequestTimeline,
    Row,
    SeverityHistogram,
    TableStatistics,
    TagAgreement,
    with_tags_and_colors,
)
from lightmeter.html_report.thumbnails import Thumbnail, ThumbnailSource, make_thumbnails
from lightmeter.journal.header import read_run_header
from lightmeter.journal.queries.items import count_by_reason, item_paths
from lightmeter.journal.store import open_read_only
from lightmeter.journal.thumbnails import read_thumbnails
from lightmeter.media.oklab import srgb_to_oklab
from lightmeter.money.statement import read_statement
from lightmeter.planning.plan_text import ReasonCount
from lightmeter.statistics.share_estimates import Shares, read_shares
from lightmeter.tables.dataset import Dataset
from lightmeter.tables.query import named_queries
from lightmeter.tables.query.duckdb_query import QuerySession

DUCKDB_MEMORY_MIB: Final = 256
"""Memory limit of DuckDB in MiB. With twice as much memory, a report on a million items is hardly faster."""

MAX_TAGS: Final = 20
"""Maximum number of tags in the chart of tags, and of tags or labels with estimated shares."""

MAX_GROUPS: Final = 24
"""Maximum number of groups of palettes and costs, one for each value of a column. More values raise UsageError."""

MAX_TABLE_ROWS: Final = 12
"""Maximum number of rows in a table of the report."""

MAX_TIME_BINS: Final = 120
"""Maximum number of bins of the timeline."""

TAGS_PER_ITEM: Final = 4
"""Maximum number of tags shown with an item."""

COLORS_PER_ITEM: Final = 6
"""Maximum number of colors shown with an item."""

COLORS_OF_ALL_ITEMS: Final = 12
"""Maximum number of colors in the palette of all items."""

COLORS_PER_GROUP: Final = 8
"""Maximum number of colors in the palette of a group of items."""

BIN_WIDTHS_S: Final = (0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 6 * 3600, 24 * 3600)
"""Widths in seconds from which the width of the timeline's bins is chosen: a tenth of a second to a day."""

GRAY_CHROMA: Final = 0.035
"""A color with a lower Oklab chroma counts as gray, because its hue has no meaning."""


async def load_report_data(
    out: Path, by: str | None, *, fetch_thumbnails: bool, thumbnails: int, clock: Clock
) -> ReportData:
    """Return everything that the HTML report shows about the run in the folder `out`.

    Args:
        out: The folder of the run.
        by: Column of the table `assets` that groups palettes and costs; None groups by `kind` (image or video).
        fetch_thumbnails: Whether to download pictures that are not on this machine.
        thumbnails: Maximum number of items in each list of pictures.
        clock: Source of the time that the report shows.

    Raises:
        JournalError: The folder holds no run.
        UsageError: `by` is not a column of `assets`, or has too many values to show.
    """
    data, paths = await asyncio.to_thread(_load_without_thumbnails, out, by or "kind", thumbnails, clock)
    sources = await asyncio.to_thread(thumbnail_sources, out, (*data.sample, *data.review), paths)
    made: dict[ThumbnailSource, Thumbnail] = {}
    await make_thumbnails(set(sources.values()), made.__setitem__, fetch=fetch_thumbnails)
    sample, review = (
        [replace(item, thumbnail=made[sources[item.item_id]]) for item in shown] for shown in (data.sample, data.review)
    )
    position = {item_id: number for number, item_id in enumerate(paths)}
    sample.sort(key=lambda item: position.get(item.item_id, len(position)))  # those of earlier runs last
    return replace(data, sample=sample, review=review)


def thumbnail_sources(
    folder: Path, items: Sequence[GalleryItem], paths: Mapping[str, str | None]
) -> dict[str, ThumbnailSource]:
    """Return item id → where to get the item's thumbnail.

    Args:
        folder: The folder of the run.
        items: The items to show.
        paths: Item id → local path of the picture or video; None or missing for a URL.
    """
    kept = read_thumbnails(folder, {item.content_sha256 for item in items if item.content_sha256})
    return {
        item.item_id: ThumbnailSource(item.url, paths.get(item.item_id), kept.get(item.content_sha256 or ""))
        for item in items
    }


def _load_without_thumbnails(
    out: Path, group_column: str, most_items: int, clock: Clock
) -> tuple[ReportData, dict[str, str | None]]:
    """Return the report's data without pictures, and the local paths of the items that the report shows.

    The paths are a dict in the order of the manifest: item id → local path, or None for an item at a URL.

    Args:
        out: The folder of the run.
        group_column: Column of the table `assets` that groups palettes and costs.
        most_items: Maximum length of each list of items: the sample of the results, and the items to review.
        clock: Source of the time that the report shows.
    """
    with QuerySession(out, memory_mib=DUCKDB_MEMORY_MIB) as session, open_read_only(out) as db:
        header = read_run_header(out)
        sample = _query(session, queries.CHECKED_SAMPLE if header.checked_only else queries.SAMPLE, most=most_items)
        data = ReportData(
            header=header,
            summary=summarize(out),
            statement=read_statement(out),
            reasons=tuple(ReasonCount(*row) for row in count_by_reason(db)),
            statistics=_statistics(
                session,
                group_column,
                is_written=bool(Dataset(out).parts("assets")),
                shares={
                    table: read_shares(out, table, most=MAX_TAGS, where=session)
                    for table in ("tags", "nsfw")
                    if not header.options.features or table in header.options.features
                },
            ),
            sample=_with_results(session, [ReportItem(**row) for row in sample]),
            review=_review(session, most_items),
            created_at=f"{utc_from_timestamp(clock.now()):%Y-%m-%d %H:%M} UTC",
            lineage=Dataset(out).lineage("assets") or {},
        )
        return data, item_paths(db, sorted({item.item_id for item in (*data.sample, *data.review)}))


def _statistics(
    session: QuerySession, group_column: str, *, is_written: bool, shares: dict[str, Shares]
) -> TableStatistics:
    quoted = named_queries.quoted_column(session, group_column)
    ((group_count),) = _query(session, f"SELECT count(DISTINCT {quoted}) AS n FROM assets")  # noqa: S608 (quoted)
    if group_count["n"] > MAX_GROUPS:
        raise UsageError(
            f"{group_column!r} has {group_count['n']} different values",
            hint=f"A page shows at most {MAX_GROUPS} groups; query the tables instead: lightmeter sql DIR …",
        )
    group_palettes = _palettes(_query(session, queries.PALETTE.format(group=quoted), most=COLORS_PER_GROUP))
    coverage: dict[str, dict[str, int]] = {}
    for row in _query(session, queries.BACKEND_COVERAGE):
        coverage.setdefault(row["source"], {})[row["table_name"]] = row["items"]
    bins = {row["bin"]: row["items"] for row in _query(session, queries.SEVERITY_BINS, bins=BINS)}
    return TableStatistics(
        is_written=is_written,
        group_column=group_column,
        tags=named_queries.top_tags(session, most=MAX_TAGS).to_pylist(),
        palettes=[
            *_palettes(_query(session, queries.PALETTE.format(group="'all'"), most=COLORS_OF_ALL_ITEMS)),
            *(group_palettes if len(group_palettes) > 1 else ()),
        ],
        group_costs=named_queries.cost_by_group(session, by=group_column).to_pylist(),
        severities=SeverityHistogram(
            tuple(bins.get(number, 0) for number in range(BINS)),
            _query(session, queries.LABEL_RATINGS, most=MAX_TABLE_ROWS),
        ),
        coverage=dict(sorted(coverage.items())),
        agreements=_agreements(session),
        error_groups=_query(session, queries.ERROR_GROUPS, most=MAX_TABLE_ROWS),
        findings=_query(session, queries.FINDINGS),
        timeline=_timeline(session),
        slowest=_query(session, queries.SLOWEST, most=MAX_TABLE_ROWS),
        shares={
            table: found
            for table, found in shares.items()
            if found.sampled < found.population and any(share.items for share in found.rows)
        },
    )


def _palettes(rows: Iterable[Row]) -> list[tuple[str | None, Colors]]:
    return [
        (group, sort_colors([(row["hex"], row["share"] or 0.0) for row in group_rows]))
        for group, group_rows in groupby(rows, key=lambda row: row["group"])
    ]


def sort_colors(colors: Sequence[tuple[str, float]]) -> Colors:
    """Return the pairs (`#rrggbb`, share) sorted by color: grays from dark to light, then colors by hue and lightness.

    Hue and lightness are computed in the color space Oklab.
    """
    if not colors:
        return ()
    channels = np.array([list(bytes.fromhex(name[1:])) for name, _ in colors]) / 255
    lab = srgb_to_oklab(channels)
    chroma, hue = np.hypot(lab[:, 1], lab[:, 2]), np.arctan2(lab[:, 2], lab[:, 1])
    keys = [
        (0, 0.0, lightness) if is_gray else (1, round(float(angle), 1), lightness)
        for is_gray, angle, lightness in zip(chroma < GRAY_CHROMA, hue, lab[:, 0].tolist(), strict=True)
    ]
    return tuple(color for _, color in sorted(zip(keys, colors, strict=True)))


def _agreements(session: QuerySession) -> list[TagAgreement]:
    agreements = []
    rows = named_queries.agreement(session).to_pylist()
    for (first, second), pair_rows in groupby(rows, key=lambda row: (row["one"], row["other"])):
        counts = [(row["label"], row["given_by_both"], row["given_by_both"] + row["given_by_one"]) for row in pair_rows]
        both, either = sum(count[1] for count in counts), sum(count[2] for count in counts)
        agreements.append(TagAgreement(first, second, both, either, tuple(counts[:MAX_TABLE_ROWS])))
    return agreements[:MAX_TABLE_ROWS]


def _timeline(session: QuerySession) -> RequestTimeline | None:
    (span,) = _query(session, queries.TIME_SPAN)
    if span["first"] is None:
        return None
    min_width_s, day_s = (span["last"] - span["first"]) / MAX_TIME_BINS, BIN_WIDTHS_S[-1]
    bin_s = next((width for width in BIN_WIDTHS_S if width >= min_width_s), day_s * (1 + min_width_s // day_s))
    rows = _query(session, queries.REQUEST_TIMELINE, first=span["first"], bin_s=bin_s)
    return RequestTimeline(
        started_at=f"{span['started_at'][:19]} UTC",
        bin_s=bin_s,
        bins={row["bin"]: (row["requests"], row["assets"], row["credits"]) for row in rows},
        quantiles_s=span["quantiles_s"],
    )


def _review(session: QuerySession, most: int) -> list[ReportItem]:
    rows = named_queries.nsfw_review(session, least_severity=REVIEW_FROM, most=most).to_pylist()
    ids = [row["item_id"] for row in rows]
    media = {row["item_id"]: row for row in _query(session, queries.ITEM_MEDIA, ids=ids)}
    items = [
        ReportItem(**media.get(row["item_id"], {"item_id": row["item_id"]}), url=row["url"] or "", worst_rating=row)
        for row in rows
    ]
    return _with_results(session, items)


def _with_results(session: QuerySession, items: Sequence[ReportItem]) -> list[ReportItem]:
    """Return copies of `items` that have the tags, colors, problems and highest NSFW severity from the run's tables."""
    ids = [item.item_id for item in items]
    severities = {row["item_id"]: row["severity"] for row in _query(session, queries.ITEM_SEVERITIES, ids=ids)}
    problems = {row["item_id"]: tuple(row["messages"]) for row in _query(session, queries.ITEM_PROBLEMS, ids=ids)}
    return with_tags_and_colors(
        (
            replace(item, severity=severities.get(item.item_id), problems=problems.get(item.item_id, ()))
            for item in items
        ),
        _query(session, queries.ITEM_TAGS, ids=ids, most=TAGS_PER_ITEM),
        _query(session, queries.ITEM_COLORS, ids=ids, most=COLORS_PER_ITEM),
    )


def _query(session: QuerySession, sql: str, **parameters: Any) -> list[Row]:
    rows: list[Row] = session.ask(sql, parameters or None).to_pylist()
    return rows
