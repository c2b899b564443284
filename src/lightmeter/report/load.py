"""Reads what the page says: counts from the journal, facts from the tables, thumbnails of the few items it shows.

DuckDB counts; what comes into Python is the top of each list. So memory does not grow with the manifest.
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
from lightmeter.journal.header import read_run_header
from lightmeter.journal.items import count_by_reason, row_locations
from lightmeter.journal.store import open_read_only
from lightmeter.media.oklab import srgb_to_oklab
from lightmeter.money.statement import read_statement
from lightmeter.planning.plan import ReasonCount
from lightmeter.prechecks.url_probe import UrlProber
from lightmeter.report import queries
from lightmeter.report.model import (
    BINS,
    REVIEW_FROM,
    Agreement,
    BackendCoverage,
    ErrorGroup,
    GroupCost,
    GroupPalette,
    ReportData,
    ReportItem,
    RequestTimeline,
    SeverityHistogram,
    SlowRequest,
    TableStatistics,
    TagFrequency,
)
from lightmeter.report.thumbnails import Thumbnail, ThumbnailSource, make_thumbnail
from lightmeter.tables import named_queries
from lightmeter.tables.dataset import Dataset
from lightmeter.tables.queries import QuerySession

__all__ = ["ReportOptions", "load_report_data", "sort_colors"]

MEMORY_MB: Final = 256
"""What DuckDB may hold; with a million items it would take twice that, and is hardly faster for it."""

MAX_TAGS: Final = 20
MAX_GROUPS: Final = 24
MAX_ROWS: Final = 12
MAX_BINS: Final = 120
AT_ONCE: Final = 4
TAGS_OF_ONE: Final = 4
COLORS_OF_ONE: Final = 6
COLORS_OF_ALL: Final = 12
COLORS_OF_A_GROUP: Final = 8

BIN_WIDTHS_S: Final = (0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 6 * 3600, 24 * 3600)
"""Widths that people read: a tenth of a second to a day."""

GREY_CHROMA: Final = 0.035
"""Oklab chroma under which a colour reads as a grey and its hue means nothing."""


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """What the caller of the report chooses.

    Attributes:
        by: Column of `assets` that groups palettes and costs; None: the kind.
        fetch_thumbnails: Whether pictures that are not on this machine are fetched.
        thumbnails: Most pictures in the gallery, and most in the review list.
    """

    by: str | None = None
    fetch_thumbnails: bool = False
    thumbnails: int = 24


async def load_report_data(out: Path, wishes: ReportOptions, clock: Clock) -> ReportData:
    """Everything the page says of the run in `out`.

    Raises:
        JournalError: there is no run there.
        UsageError: `wishes.by` is no column of `assets`, or has too many values to be shown.
    """
    facts = await asyncio.to_thread(_counted, out, wishes, clock)
    items = await _with_pictures(out, [*facts.sample, *facts.review], fetch=wishes.fetch_thumbnails)
    return replace(facts, sample=tuple(items[: len(facts.sample)]), review=tuple(items[len(facts.sample) :]))


def _counted(out: Path, wishes: ReportOptions, clock: Clock) -> ReportData:
    header, summary = read_run_header(out), summarize(out)
    with open_read_only(out) as db:
        why = tuple(ReasonCount(*row) for row in count_by_reason(db))
    with QuerySession(out, memory_mb=MEMORY_MB) as tables:
        found = _found(tables, wishes.by, written=bool(Dataset(out).parts("assets")))
        sample, review = _sample(tables, wishes.thumbnails), _review(tables, wishes.thumbnails)
    return ReportData(
        header=header,
        summary=summary,
        statement=read_statement(out),
        reasons=why,
        found=found,
        sample=sample,
        review=review,
        made_at=f"{utc_from_timestamp(clock.now()):%Y-%m-%d %H:%M} UTC",
        lineage=Dataset(out).lineage("assets") or {},
    )


def _found(tables: QuerySession, by: str | None, *, written: bool) -> TableStatistics:
    group = "kind" if by is None else by
    _check_groups(tables, group)
    costs = named_queries.cost_by_group(tables, by=group).to_pylist()  # says so where there is no such column
    palettes = _palettes(_ask(tables, queries.PALETTE.format(group="'all'"), most=COLORS_OF_ALL))
    column = f"assets.{_quoted(group)}"
    grouped = _palettes(_ask(tables, queries.PALETTE.format(group=column), most=COLORS_OF_A_GROUP))
    causes = _ask(tables, queries.CAUSES, most=MAX_ROWS)
    in_all = causes[0]["in_all"] if causes else 0
    return TableStatistics(
        written=written,
        group_column=group,
        tags=tuple(TagFrequency(**row) for row in named_queries.top_tags(tables, most=MAX_TAGS).to_pylist()),
        palettes=(*palettes, *(grouped if len(grouped) > 1 else ())),
        costs=tuple(GroupCost(**{**row, "group": str(row["group"])}) for row in costs),
        severities=_severities(tables),
        voices=_voices(tables),
        agreements=_agreements(tables),
        causes=tuple(ErrorGroup(**{name: row[name] for name in row if name != "in_all"}) for row in causes),
        causes_in_all=in_all,
        timeline=_tempo(tables),
        slowest=tuple(SlowRequest(**row) for row in _ask(tables, queries.SLOWEST, most=MAX_ROWS)),
    )


def _check_groups(tables: QuerySession, column: str) -> None:
    """Raises UsageError where a column would make more groups than a page can show."""
    known = {row["column_name"] for row in _ask(tables, "DESCRIBE assets")}
    if column in known:  # else the question itself says so, and which columns there are
        count = f"SELECT count(DISTINCT {_quoted(column)}) AS groups FROM assets"  # noqa: S608 (quoted)
        ((groups),) = (row["groups"] for row in _ask(tables, count))
        if groups > MAX_GROUPS:
            raise UsageError(
                f"{column!r} has {groups} different values",
                hint=f"A page shows {MAX_GROUPS} groups at most; ask the tables: lightmeter sql DIR …",
            )


def _quoted(column: str) -> str:
    """A column's name as it stands in SQL."""
    return '"' + column.replace('"', '""') + '"'


def _palettes(rows: Iterable[dict[str, Any]]) -> list[GroupPalette]:
    return [
        GroupPalette(str(group), sort_colors([(row["hex"], row["share"] or 0.0) for row in of_group]))
        for group, of_group in groupby(rows, key=lambda row: row["group"])
    ]


def sort_colors(colors: Sequence[tuple[str, float]]) -> tuple[tuple[str, float], ...]:
    """Colours `#rrggbb` as the eye sorts them, by Oklab: greys from dark to light, then by hue, dark to light."""
    if not colors:
        return ()
    channels = np.array([list(bytes.fromhex(name[1:])) for name, _ in colors]) / 255
    lab = srgb_to_oklab(channels)
    chroma, hue = np.hypot(lab[:, 1], lab[:, 2]), np.arctan2(lab[:, 2], lab[:, 1])
    keys = [
        (0, 0.0, light) if grey else (1, round(float(turn), 1), light)
        for grey, turn, light in zip(chroma < GREY_CHROMA, hue, lab[:, 0].tolist(), strict=True)
    ]
    return tuple(color for _, color in sorted(zip(keys, colors, strict=True)))


def _severities(tables: QuerySession) -> SeverityHistogram:
    bins = {row["bin"]: row["items"] for row in _ask(tables, queries.SEVERITIES, bins=BINS)}
    voices = tuple(tuple(row.values()) for row in _ask(tables, queries.LABELS, most=MAX_ROWS))
    return SeverityHistogram(tuple(bins.get(at, 0) for at in range(BINS)), voices)


def _voices(tables: QuerySession) -> tuple[BackendCoverage, ...]:
    said: dict[str, dict[str, int]] = {}
    for row in _ask(tables, queries.BACKEND_COVERAGE):
        said.setdefault(row["source"], {})[row["said"]] = row["items"]
    return tuple(BackendCoverage(source, items) for source, items in sorted(said.items()))


def _agreements(tables: QuerySession) -> tuple[Agreement, ...]:
    """For each two back ends; the question answers by frequency, so the first labels are the most frequent."""
    rows = named_queries.agreement(tables).to_pylist()
    agreements = []
    for (one, other), of_pair in groupby(rows, key=lambda row: (row["one"], row["other"])):
        counts = [(row["label"], row["both_say"], row["both_say"] + row["one_says"]) for row in of_pair]
        both, either = sum(count[1] for count in counts), sum(count[2] for count in counts)
        agreements.append(Agreement(one, other, both, either, tuple(counts[:MAX_ROWS])))
    return tuple(agreements[:MAX_ROWS])


def _tempo(tables: QuerySession) -> RequestTimeline | None:
    (span,) = _ask(tables, queries.SPAN)
    if span["first"] is None:
        return None
    wide_s = (span["last"] - span["first"]) / MAX_BINS
    bin_s = next(
        (width for width in BIN_WIDTHS_S if width >= wide_s), BIN_WIDTHS_S[-1] * (1 + wide_s // BIN_WIDTHS_S[-1])
    )
    rows = _ask(tables, queries.REQUEST_TIMELINE, first=span["first"], bin_s=bin_s)
    (late,) = _ask(tables, queries.LATENCY)
    quantiles = None if late["median"] is None else (late["median"], late["late"], late["longest"])
    bins = {row["bin"]: (row["requests"], row["assets"], row["credits"]) for row in rows}
    return RequestTimeline(f"{span['started_at'][:19]} UTC", bin_s, bins, quantiles)


def _sample(tables: QuerySession, most: int) -> tuple[ReportItem, ...]:
    rows = _ask(tables, queries.SAMPLE, most=most)
    return _described(tables, [ReportItem(**row, severity=None) for row in rows])


def _review(tables: QuerySession, most: int) -> tuple[ReportItem, ...]:
    rows = named_queries.nsfw_review(tables, least_severity=REVIEW_FROM, most=most).to_pylist()
    known = {
        row["item_id"]: row
        for row in _ask(
            tables,
            "SELECT item_id, kind, duration_s FROM assets WHERE item_id IN (SELECT unnest($ids))",
            ids=[row["item_id"] for row in rows],
        )
    }
    items = []
    for row in rows:
        about = known.get(row["item_id"], {})
        said = (row["label"], row["source"], row["spread"])
        item = ReportItem(row["item_id"], row["url"] or "", about.get("kind"), about.get("duration_s"), row["severity"])
        items.append(replace(item, said=said))
    return _described(tables, items)


def _described(tables: QuerySession, items: Sequence[ReportItem]) -> tuple[ReportItem, ...]:
    """The items with their tags, colours and severity."""
    ids = [item.item_id for item in items]
    severity = {row["item_id"]: row["severity"] for row in _ask(tables, queries.SEVERITY_OF, ids=ids)}
    tags: dict[str, list[tuple[str, float | None]]] = {}
    for row in _ask(tables, queries.TAGS_OF, ids=ids, most=TAGS_OF_ONE):
        tags.setdefault(row["item_id"], []).append((row["name"], row["best"]))
    colors: dict[str, list[tuple[str, float]]] = {}
    for row in _ask(tables, queries.COLORS_OF, ids=ids, most=COLORS_OF_ONE):
        colors.setdefault(row["item_id"], []).append((row["hex"], row["share"] or 0.0))
    return tuple(
        replace(
            item,
            severity=severity.get(item.item_id, item.severity),
            tags=tuple(tags.get(item.item_id, ())),
            colors=tuple(colors.get(item.item_id, ())),
        )
        for item in items
    )


async def _with_pictures(out: Path, items: Sequence[ReportItem], *, fetch: bool) -> list[ReportItem]:
    """The items with their thumbnails, those of the gallery in the manifest's order."""
    ids = sorted({item.item_id for item in items})
    with open_read_only(out) as db:
        places = row_locations(db, ids)
    sources = {item.item_id: ThumbnailSource(item.url, places.get(item.item_id, (0, None))[1]) for item in items}
    async with AsyncExitStack() as stack:
        reach = await stack.enter_async_context(UrlProber(connections=AT_ONCE)) if fetch else None
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(item_id: str) -> tuple[str, Thumbnail]:
            async with gate:
                return item_id, await make_thumbnail(sources[item_id], reach)

        pictures = dict(await asyncio.gather(*(one(item_id) for item_id in ids)))
    shown = [replace(item, picture=pictures[item.item_id]) for item in items]
    sampled = sorted((item for item in shown if item.said is None), key=lambda item: places[item.item_id][0])
    return [*sampled, *(item for item in shown if item.said is not None)]


def _ask(tables: QuerySession, query: str, **parameters: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = tables.ask(query, parameters or None).to_pylist()
    return rows
