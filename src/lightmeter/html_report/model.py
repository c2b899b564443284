"""Data classes with what the report shows. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any, TypeAlias, TypeVar
from urllib.parse import unquote, urlsplit

from lightmeter.api.run_result import RunSummary
from lightmeter.html_report.thumbnails import Thumbnail
from lightmeter.journal.header import RunHeader
from lightmeter.money.statement import Statement
from lightmeter.planning.plan import ReasonCount

BINS = 10
"""Bins of the severity histogram: tenths of the scale."""

REVIEW_FROM = 0.5
"""Severity (0 to 1) from which an item is listed for review and its picture blurred: more likely unsafe than not."""

Row: TypeAlias = dict[str, Any]
"""One row of a query's result: column → value. `queries` and `named_queries` hold the queries."""

Colors: TypeAlias = tuple[tuple[str, float], ...]
"""Pairs of a color, as `#rrggbb`, and its share of the pixels, 0 to 1."""


@dataclass(frozen=True, slots=True)
class SeverityHistogram:
    """Number of items for each tenth of the NSFW severity scale; an item counts by its highest severity.

    Attributes:
        bins: Number of items in each of the `BINS` tenths, lowest first.
        labels: Rows of the query `LABEL_RATINGS`: items and severities for each label and back end.
    """

    bins: tuple[int, ...]
    labels: Sequence[Row] = ()

    @property
    def rated(self) -> int:
        """Number of items with a rating."""
        return sum(self.bins)

    @property
    def to_review(self) -> int:
        """Number of items rated `REVIEW_FROM` or higher."""
        return sum(self.bins[int(REVIEW_FROM * BINS) :])


@dataclass(frozen=True, slots=True, kw_only=True)
class GalleryItem:
    """A row of the manifest, as a gallery shows it.

    Attributes:
        kind: `image` or `video`; None if unknown.
        severity: Highest NSFW severity, 0 to 1, or None.
        tags: Tags with the highest scores: pairs of name and score.
        colors: The colors with the largest shares.
    """

    item_id: str
    url: str
    kind: str | None = None
    duration_s: float | None = None
    severity: float | None = None
    tags: tuple[tuple[str, float | None], ...] = ()
    colors: Colors = ()

    @property
    def blurred(self) -> bool:
        """Whether the picture is likely unsafe and therefore blurred until the user opens it."""
        return self.severity is not None and self.severity >= REVIEW_FROM

    @property
    def name(self) -> str:
        """The file name in the item's URL."""
        return short_name(self.url)


ItemT = TypeVar("ItemT", bound=GalleryItem)


def with_tags_and_colors(items: Iterable[ItemT], tags: Iterable[Row], colors: Iterable[Row]) -> list[ItemT]:
    """Return the items with their tags and colors.

    Args:
        items: Items without tags and colors.
        tags: Result rows of the query `ITEM_TAGS`.
        colors: Result rows of the query `ITEM_COLORS`.
    """
    tags_by_item: dict[str, list[tuple[str, float | None]]] = {}
    for row in tags:
        tags_by_item.setdefault(row["item_id"], []).append((row["name"], row["score"]))
    colors_by_item: dict[str, list[tuple[str, float]]] = {}
    for row in colors:
        colors_by_item.setdefault(row["item_id"], []).append((row["hex"], row["share"]))
    return [
        replace(
            item,
            tags=tuple(tags_by_item.get(item.item_id, ())),
            colors=tuple(colors_by_item.get(item.item_id, ())),
        )
        for item in items
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportItem(GalleryItem):
    """An item with its thumbnail; in the review list also with its row of the named query `nsfw_review`."""

    thumbnail: Thumbnail = field(default_factory=Thumbnail)
    worst_rating: Row | None = None


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far two back ends agree on tags.

    Attributes:
        first: Name of one back end.
        second: Name of the other.
        both: How often both assign the same tag to an image that both have tagged.
        either: How often at least one of them assigns the tag.
        labels: The most frequent tags: name, both, either.
    """

    first: str
    second: str
    both: int
    either: int
    labels: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True)
class RequestTimeline:
    """Requests of a run, counted in time bins of equal width.

    Attributes:
        started_at: Time of the first request, as text in UTC.
        bin_s: Width of a bin in seconds.
        bins: Bin number (from 0) → requests sent, assets in them, and credits paid for them; without empty bins.
        quantiles_s: Median, 95th percentile and maximum of the seconds from request to results; None without answers.
    """

    started_at: str
    bin_s: float
    bins: dict[int, tuple[int, int, int]]
    quantiles_s: Sequence[float] | None


@dataclass(frozen=True, slots=True)
class TableStatistics:
    """Statistics computed from the tables of a run.

    Attributes:
        is_written: Whether the run has tables.
        group_column: Column of `assets` that groups palettes and costs.
        tags: Rows of the named query `top_tags`.
        palettes: Pairs of a value of `group_column` and its colors in display order; the first pair is for all items.
        group_costs: Rows of the named query `cost_by_group`.
        severities: NSFW severities of the items.
        coverage: Back end → table → number of items for which the back end filled rows of that table.
        agreements: Agreement of each pair of back ends.
        error_groups: Rows of the query `ERROR_GROUPS`, one for each cause of errors, most frequent first.
        timeline: Requests over time; None if no request was sent.
        slowest: Rows of the query `SLOWEST`: the requests that took longest.
    """

    is_written: bool
    group_column: str
    tags: list[Row]
    palettes: list[tuple[str | None, Colors]]
    group_costs: list[Row]
    severities: SeverityHistogram
    coverage: dict[str, dict[str, int]]
    agreements: list[Agreement]
    error_groups: list[Row]
    timeline: RequestTimeline | None
    slowest: list[Row]


@dataclass(frozen=True, slots=True)
class ReportData:
    """Everything the page shows.

    Attributes:
        sample: Items with status ok, spread over the manifest.
        review: Items with the highest NSFW severity.
        created_at: Time of the page, as text in UTC.
        lineage: Origin of the tables, from their Parquet footers.
    """

    header: RunHeader
    summary: RunSummary
    statement: Statement
    reasons: tuple[ReasonCount, ...]
    statistics: TableStatistics
    sample: list[ReportItem]
    review: list[ReportItem]
    created_at: str
    lineage: Row


def short_name(url: str) -> str:
    """Return the decoded file name in a URL or path; the whole text if it has none."""
    try:
        path = urlsplit(url).path if "://" in url else url.replace("\\", "/")
    except ValueError:  # square brackets around something that is not an IPv6 address
        return url
    return unquote(PurePosixPath(path).name) or url
