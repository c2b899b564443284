"""Loads the report's data: totals from the journal, statistics from the tables, thumbnails of the items shown.

DuckDB aggregates, and only the first rows of each list become Python objects: memory use does not grow with the
manifest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
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
    Agreement,
    BackendCoverage,
    ErrorGroup,
    GroupCost,
    GroupPalette,
    LabelRating,
    ReportData,
    ReportItem,
    RequestTimeline,
    SeverityHistogram,
    SlowRequest,
    TableStatistics,
    TagFrequency,
    WorstRating,
)
from lightmeter.html_report.thumbnails import Thumbnail, ThumbnailSource, make_thumbnail
from lightmeter.journal.header import read_run_header
from lightmeter.journal.queries.items import count_by_reason, item_paths
from lightmeter.journal.store import open_read_only
from lightmeter.media.oklab import srgb_to_oklab
from lightmeter.money.statement import read_statement
from lightmeter.planning.plan import ReasonCount
from lightmeter.prechecks.url_probe import UrlProber
from lightmeter.tables.dataset import Dataset
from lightmeter.tables.query import named_queries
from lightmeter.tables.query.duckdb_query import QuerySession

DUCKDB_MEMORY_MB: Final = 256
"""Memory limit of DuckDB. With a million items it would use twice as much and be hardly faster."""

MAX_TAGS: Final = 20
MAX_GROUPS: Final = 24
MAX_TABLE_ROWS: Final = 12
MAX_TIME_BINS: Final = 120
MAX_CONCURRENT_THUMBNAILS: Final = 4
TAGS_PER_ITEM: Final = 4
COLORS_PER_ITEM: Final = 6
COLORS_OF_ALL_ITEMS: Final = 12
COLORS_PER_GROUP: Final = 8

BIN_WIDTHS_S: Final = (0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 6 * 3600, 24 * 3600)
"""Bin widths of the timeline in seconds: round figures from a tenth of a second to a day."""

GRAY_CHROMA: Final = 0.035
"""Oklab chroma below which a color looks gray, so that its hue has no meaning."""


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """Options of the report.

    Attributes:
        by: Column of `assets` that groups palettes and costs; None groups by `kind`.
        fetch_thumbnails: Whether to download pictures that are not on this machine.
        thumbnails: Maximum number of pictures in the gallery, and in the review list.
    """

    by: str | None = None
    fetch_thumbnails: bool = False
    thumbnails: int = 24


async def load_report_data(out: Path, options: ReportOptions, clock: Clock) -> ReportData:
    """Return everything the page shows about the run in `out`.

    Args:
        out: The run's folder.
        options: Options of the report.
        clock: Source of the time that the page states.

    Raises:
        JournalError: The folder holds no run.
        UsageError: `options.by` is not a column of `assets`, or has too many values to show.
    """
    data = await asyncio.to_thread(_load_without_thumbnails, out, options, clock)
    items = [*data.sample, *data.review]
    paths = await asyncio.to_thread(_paths_in_manifest_order, out, [item.item_id for item in items])
    sources = {item.item_id: ThumbnailSource(item.url, paths.get(item.item_id)) for item in items}
    thumbnails = await _make_thumbnails(sources, fetch=options.fetch_thumbnails)
    position = {item_id: number for number, item_id in enumerate(paths)}
    return replace(
        data,
        sample=tuple(
            replace(item, thumbnail=thumbnails[item.item_id])
            for item in sorted(data.sample, key=lambda item: position[item.item_id])
        ),
        review=tuple(replace(item, thumbnail=thumbnails[item.item_id]) for item in data.review),
    )


def _load_without_thumbnails(out: Path, options: ReportOptions, clock: Clock) -> ReportData:
    with open_read_only(out) as db:
        reason_counts = tuple(ReasonCount(*row) for row in count_by_reason(db))
    with QuerySession(out, memory_mb=DUCKDB_MEMORY_MB) as session:
        return ReportData(
            header=read_run_header(out),
            summary=summarize(out),
            statement=read_statement(out),
            reasons=reason_counts,
            statistics=_statistics(session, options.by or "kind", is_written=bool(Dataset(out).parts("assets"))),
            sample=_sample(session, options.thumbnails),
            review=_review(session, options.thumbnails),
            created_at=f"{utc_from_timestamp(clock.now()):%Y-%m-%d %H:%M} UTC",
            lineage=Dataset(out).lineage("assets") or {},
        )


def _statistics(session: QuerySession, group_column: str, *, is_written: bool) -> TableStatistics:
    _check_group_count(session, group_column)
    costs = named_queries.cost_by_group(session, by=group_column).to_pylist()  # raises if there is no such column
    quoted = f"assets.{_quoted(group_column)}"
    group_palettes = _palettes(_query(session, queries.PALETTE.format(group=quoted), most=COLORS_PER_GROUP))
    error_groups = _query(session, queries.ERROR_GROUPS, most=MAX_TABLE_ROWS)
    error_group_count = error_groups[0]["group_count"] if error_groups else 0
    return TableStatistics(
        is_written=is_written,
        group_column=group_column,
        tags=tuple(TagFrequency(**row) for row in named_queries.top_tags(session, most=MAX_TAGS).to_pylist()),
        palettes=(
            *_palettes(_query(session, queries.PALETTE.format(group="'all'"), most=COLORS_OF_ALL_ITEMS)),
            *(group_palettes if len(group_palettes) > 1 else ()),
        ),
        group_costs=tuple(GroupCost(**{**row, "group": str(row["group"])}) for row in costs),
        severities=_severities(session),
        coverage=_coverage(session),
        agreements=_agreements(session),
        error_groups=tuple(
            ErrorGroup(**{name: value for name, value in row.items() if name != "group_count"}) for row in error_groups
        ),
        error_group_count=error_group_count,
        timeline=_timeline(session),
        slowest=tuple(SlowRequest(**row) for row in _query(session, queries.SLOWEST, most=MAX_TABLE_ROWS)),
    )


def _check_group_count(session: QuerySession, column: str) -> None:
    """Raise UsageError if grouping by a column would make more groups than a page can show."""
    if column not in {row["column_name"] for row in _query(session, "DESCRIBE assets")}:
        return  # the query that groups by it raises an error that lists the columns
    ((row),) = _query(session, f"SELECT count(DISTINCT {_quoted(column)}) AS groups FROM assets")  # noqa: S608 (quoted)
    if row["groups"] > MAX_GROUPS:
        raise UsageError(
            f"{column!r} has {row['groups']} different values",
            hint=f"A page shows at most {MAX_GROUPS} groups; query the tables instead: lightmeter sql DIR …",
        )


def _quoted(column: str) -> str:
    """Return a column name as a quoted SQL identifier."""
    return '"' + column.replace('"', '""') + '"'


def _palettes(rows: Iterable[dict[str, Any]]) -> list[GroupPalette]:
    return [
        GroupPalette(str(group), sort_colors([(row["hex"], row["share"] or 0.0) for row in group_rows]))
        for group, group_rows in groupby(rows, key=lambda row: row["group"])
    ]


def sort_colors(colors: Sequence[tuple[str, float]]) -> tuple[tuple[str, float], ...]:
    """Sort pairs of `#rrggbb` and share by appearance in Oklab: grays from dark to light, then by hue and lightness."""
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


def _severities(session: QuerySession) -> SeverityHistogram:
    bins = {row["bin"]: row["items"] for row in _query(session, queries.SEVERITY_BINS, bins=BINS)}
    labels = tuple(LabelRating(**row) for row in _query(session, queries.LABEL_RATINGS, most=MAX_TABLE_ROWS))
    return SeverityHistogram(tuple(bins.get(number, 0) for number in range(BINS)), labels)


def _coverage(session: QuerySession) -> tuple[BackendCoverage, ...]:
    items_by_source: dict[str, dict[str, int]] = {}
    for row in _query(session, queries.BACKEND_COVERAGE):
        items_by_source.setdefault(row["source"], {})[row["table_name"]] = row["items"]
    return tuple(BackendCoverage(source, items) for source, items in sorted(items_by_source.items()))


def _agreements(session: QuerySession) -> tuple[Agreement, ...]:
    """Return how often each pair of back ends gives the same label; the most frequent labels come first."""
    agreements = []
    rows = named_queries.agreement(session).to_pylist()
    for (first, second), pair_rows in groupby(rows, key=lambda row: (row["one"], row["other"])):
        counts = [(row["label"], row["both_say"], row["both_say"] + row["one_says"]) for row in pair_rows]
        both, either = sum(count[1] for count in counts), sum(count[2] for count in counts)
        agreements.append(Agreement(first, second, both, either, tuple(counts[:MAX_TABLE_ROWS])))
    return tuple(agreements[:MAX_TABLE_ROWS])


def _timeline(session: QuerySession) -> RequestTimeline | None:
    (span,) = _query(session, queries.TIME_SPAN)
    if span["first"] is None:
        return None
    min_width_s, day_s = (span["last"] - span["first"]) / MAX_TIME_BINS, BIN_WIDTHS_S[-1]
    bin_s = next((width for width in BIN_WIDTHS_S if width >= min_width_s), day_s * (1 + min_width_s // day_s))
    rows = _query(session, queries.REQUEST_TIMELINE, first=span["first"], bin_s=bin_s)
    (latency,) = _query(session, queries.LATENCY)
    return RequestTimeline(
        started_at=f"{span['started_at'][:19]} UTC",
        bin_s=bin_s,
        bins={row["bin"]: (row["requests"], row["assets"], row["credits"]) for row in rows},
        quantiles_s=None if latency["median"] is None else (latency["median"], latency["late"], latency["longest"]),
    )


def _sample(session: QuerySession, most: int) -> tuple[ReportItem, ...]:
    return _with_findings(session, [ReportItem(**row) for row in _query(session, queries.SAMPLE, most=most)])


def _review(session: QuerySession, most: int) -> tuple[ReportItem, ...]:
    rows = named_queries.nsfw_review(session, least_severity=REVIEW_FROM, most=most).to_pylist()
    media = {
        row["item_id"]: (row["kind"], row["duration_s"])
        for row in _query(session, queries.ITEM_MEDIA, ids=[row["item_id"] for row in rows])
    }
    items = [
        ReportItem(
            row["item_id"],
            row["url"] or "",
            *media.get(row["item_id"], (None, None)),
            severity=row["severity"],
            worst_rating=WorstRating(row["label"], row["source"], row["spread"]),
        )
        for row in rows
    ]
    return _with_findings(session, items)


def _with_findings(session: QuerySession, items: Sequence[ReportItem]) -> tuple[ReportItem, ...]:
    """Return the items with their tags, colors and severity."""
    ids = [item.item_id for item in items]
    severities = {row["item_id"]: row["severity"] for row in _query(session, queries.ITEM_SEVERITIES, ids=ids)}
    tags: dict[str, list[tuple[str, float | None]]] = {}
    for row in _query(session, queries.ITEM_TAGS, ids=ids, most=TAGS_PER_ITEM):
        tags.setdefault(row["item_id"], []).append((row["name"], row["best"]))
    colors: dict[str, list[tuple[str, float]]] = {}
    for row in _query(session, queries.ITEM_COLORS, ids=ids, most=COLORS_PER_ITEM):
        colors.setdefault(row["item_id"], []).append((row["hex"], row["share"] or 0.0))
    return tuple(
        replace(
            item,
            severity=severities.get(item.item_id, item.severity),
            tags=tuple(tags.get(item.item_id, ())),
            colors=tuple(colors.get(item.item_id, ())),
        )
        for item in items
    )


def _paths_in_manifest_order(out: Path, item_ids: Iterable[str]) -> dict[str, str | None]:
    with open_read_only(out) as db:
        return item_paths(db, sorted(set(item_ids)))


async def _make_thumbnails(sources: dict[str, ThumbnailSource], *, fetch: bool) -> dict[str, Thumbnail]:
    """Return the thumbnail of each item by its id; `fetch` allows downloads."""
    async with AsyncExitStack() as stack:
        prober = await stack.enter_async_context(UrlProber(connections=MAX_CONCURRENT_THUMBNAILS)) if fetch else None
        slots = asyncio.Semaphore(MAX_CONCURRENT_THUMBNAILS)

        async def load(source: ThumbnailSource) -> Thumbnail:
            async with slots:
                return await make_thumbnail(source, prober)

        thumbnails = await asyncio.gather(*(load(source) for source in sources.values()))
    return dict(zip(sources, thumbnails, strict=True))


def _query(session: QuerySession, sql: str, **parameters: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = session.ask(sql, parameters or None).to_pylist()
    return rows
