"""Data classes with what the HTML report of a run shows. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any, TypeAlias, TypeVar
from urllib.parse import unquote, urlsplit

from lightmeter.api.run_result import RunSummary
from lightmeter.html_fragments import format_bytes
from lightmeter.html_report.thumbnails import Thumbnail
from lightmeter.journal.header import RunHeader
from lightmeter.money.statement import Statement
from lightmeter.planning.plan_text import ReasonCount
from lightmeter.statistics.share_estimates import Shares

BINS = 10
"""Number of bins in the histogram of NSFW severities. The severity is 0 to 1, so that a bin is 1/10 wide."""

REVIEW_FROM = 0.5
"""An item with this NSFW severity (0 to 1) or a higher one is listed for review, and its picture is blurred."""

Row: TypeAlias = dict[str, Any]
"""One row of a query's result: column → value. The queries are in the modules `queries` and `named_queries`."""

Colors: TypeAlias = tuple[tuple[str, float], ...]
"""Pairs of a color, as `#rrggbb`, and its share of the pixels, 0 to 1."""


@dataclass(frozen=True, slots=True)
class SeverityHistogram:
    """Histogram of the items by NSFW severity (0 to 1). An item counts once, with its highest severity.

    Attributes:
        bins: Number of items in each tenth of the scale, lowest severity first.
        labels: Rows of the query `LABEL_RATINGS`, one for each pair of moderation label and back end: number of items,
            mean and highest severity.
    """

    bins: tuple[int, ...]
    labels: Sequence[Row] = ()

    @property
    def rated(self) -> int:
        """Number of items for which at least one NSFW severity is known."""
        return sum(self.bins)

    @property
    def to_review(self) -> int:
        """Number of items that a person should review, because their severity is `REVIEW_FROM` (0.5) or higher."""
        return sum(self.bins[int(REVIEW_FROM * BINS) :])


@dataclass(frozen=True, slots=True, kw_only=True)
class GalleryItem:
    """A row of the manifest (one image or video), with the results that a gallery shows.

    Attributes:
        kind: `image` or `video`; None if unknown.
        duration_s: Length of the video in seconds; None for an image, or if unknown.
        width: Width in pixels; None if unknown.
        height: Height in pixels; None if unknown.
        size_bytes: Size of the file in bytes; None if unknown.
        content_sha256: SHA-256 of the content, the key of the thumbnail in `thumbnails.sqlite`; None if unknown.
        severity: Highest NSFW severity, 0 to 1; None if unknown.
        tags: The tags with the highest scores, as pairs (name, score). The score is None if the back end gave no score.
        colors: The colors with the largest shares of the picture.
    """

    item_id: str
    url: str
    kind: str | None = None
    duration_s: float | None = None
    width: int | None = None
    height: int | None = None
    size_bytes: int | None = None
    content_sha256: str | None = None
    severity: float | None = None
    tags: tuple[tuple[str, float | None], ...] = ()
    colors: Colors = ()

    @property
    def blurred(self) -> bool:
        """Whether the item's picture is likely unsafe, and therefore shown blurred until the user chooses to see it."""
        return self.severity is not None and self.severity >= REVIEW_FROM

    @property
    def name(self) -> str:
        """The file name at the end of the item's URL; the whole URL if it contains no file name."""
        return short_name(self.url)

    @property
    def measures(self) -> str:
        """Width and height in pixels, and size of the file: `640 x 480, 12.3 kB`. What is unknown is left out."""
        dimensions = f"{self.width} x {self.height}" if self.width and self.height else ""
        size = "" if self.size_bytes is None else format_bytes(self.size_bytes)
        return ", ".join(filter(None, (dimensions, size)))


ItemT = TypeVar("ItemT", bound=GalleryItem)


def with_tags_and_colors(items: Iterable[ItemT], tags: Iterable[Row], colors: Iterable[Row]) -> list[ItemT]:
    """Return copies of `items`, completed with their tags and colors.

    Args:
        items: Items without tags and colors.
        tags: Rows with `item_id`, `name` and `score`, one for each tag to show with an item.
        colors: Rows with `item_id`, `hex` and `share`, one for each color to show with an item.
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
    """A row of the manifest (one image or video) as the HTML report shows it.

    Attributes:
        thumbnail: The thumbnail, or the reason why there is none.
        problems: Messages of the warnings and errors of the pre-checks, at most three.
        worst_rating: The item's row in the result of the query `nsfw_review`. It has the `label` and the `source` (back
            end) of the item's highest NSFW severity. None if the item is not listed for review.
    """

    thumbnail: Thumbnail = field(default_factory=Thumbnail)
    problems: tuple[str, ...] = ()
    worst_rating: Row | None = None


@dataclass(frozen=True, slots=True)
class TagAgreement:
    """How often two back ends assign the same tags. Only images and video frames count that both have tagged.

    Attributes:
        first: Name of the first back end.
        second: Name of the second back end.
        both: Number of tags that both back ends assigned, summed over the images and frames.
        either: Number of tags that at least one of the two back ends assigned, summed over the images and frames.
        top_tags: The most frequent tags, as tuples (tag, number of images and frames to which both back ends assigned
            the tag, number to which at least one of them assigned the tag).
    """

    first: str
    second: str
    both: int
    either: int
    top_tags: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True)
class RequestTimeline:
    """Requests of a run over time, counted in time intervals (bins) of equal width.

    Attributes:
        started_at: Time of the first request, as text in UTC.
        bin_s: Width of a bin in seconds.
        bins: Number of a bin (from 0) → tuple of three numbers: requests sent, assets (images and videos) in these
            requests, credits paid for them. Bins without a request are missing.
        quantiles_s: Median, 95th percentile and maximum of the time from request to results, in seconds; None if no
            request has results.
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
        tags: Rows of the query `top_tags`: the most frequent tags, with the number of items.
        palettes: First the pair of the text `all` and the main colors of all items. Then, if there are several groups,
            pairs of a value of `group_column` (None means null) and the main colors of the items with this value.
        group_costs: Rows of the query `cost_by_group`, one for each value of `group_column`: number of items, credits.
        severities: Number of items by NSFW severity.
        coverage: Back end → table → number of items about which the table has rows from the back end.
        agreements: For each pair of back ends, how often they assign the same tags.
        error_groups: Rows of the query `ERROR_GROUPS`, one for each cause of errors, most frequent first.
        findings: Rows of the query `FINDINGS` on warnings and errors of the pre-checks: one for each pair of check and
            severity, with the number of items.
        timeline: Requests over time; None if no request was sent.
        slowest: Rows of the query `SLOWEST`: the requests that took longest.
        shares: Table (`tags` or `nsfw`) → estimated shares of its tags or labels in the whole manifest, if only a
            sample of the rows was sent. Empty if all rows were sent.
    """

    is_written: bool
    group_column: str
    tags: list[Row]
    palettes: list[tuple[str | None, Colors]]
    group_costs: list[Row]
    severities: SeverityHistogram
    coverage: dict[str, dict[str, int]]
    agreements: list[TagAgreement]
    error_groups: list[Row]
    findings: list[Row]
    timeline: RequestTimeline | None
    slowest: list[Row]
    shares: dict[str, Shares]


@dataclass(frozen=True, slots=True)
class ReportData:
    """Everything that the HTML report of a run shows.

    Attributes:
        sample: Items to show as pictures, spread over the manifest: items with status ok, or checked items if the rows
            were only checked.
        review: Items with the highest NSFW severity, which a person should review.
        created_at: Time at which the page was made, as text in UTC.
        lineage: The runs, manifest and options that the tables come from, as stored in their Parquet files.
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
    """Return the percent-decoded file name at the end of `url`, a URL or path; all of `url` if it has no file name."""
    try:
        path = urlsplit(url).path if "://" in url else url.replace("\\", "/")
    except ValueError:  # square brackets around something that is not an IPv6 address
        return url
    return unquote(PurePosixPath(path).name) or url
