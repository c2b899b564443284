"""Data classes of the report: what the page shows, already counted. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any
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


@dataclass(frozen=True, slots=True)
class TagFrequency:
    """A tag, the number of items and back ends that have it, and its mean score (0 to 1, or None)."""

    name: str
    items: int
    sources: int
    mean_score: float | None


@dataclass(frozen=True, slots=True)
class GroupPalette:
    """The main colors of a group of items: pairs of `#rrggbb` and share (0 to 1), in display order."""

    group: str
    colors: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class GroupCost:
    """The cost of a group of items; `credits_per_ok` is None if no item is ok."""

    group: str
    items: int
    ok: int
    credits: float
    credits_per_ok: float | None


@dataclass(frozen=True, slots=True)
class LabelRating:
    """How one back end rates items under one NSFW label; severities are 0 to 1."""

    label: str | None
    source: str | None
    items: int
    mean: float | None
    highest: float | None


@dataclass(frozen=True, slots=True)
class SeverityHistogram:
    """Number of items per NSFW severity; an item counts by its highest rating.

    Attributes:
        bins: Items per tenth of the scale, `BINS` entries.
        labels: Ratings per label and back end.
    """

    bins: tuple[int, ...]
    labels: tuple[LabelRating, ...] = ()

    @property
    def rated(self) -> int:
        """Number of items with a rating."""
        return sum(self.bins)

    @property
    def to_review(self) -> int:
        """Number of items rated `REVIEW_FROM` or higher."""
        return sum(self.bins[int(REVIEW_FROM * BINS) :])


@dataclass(frozen=True, slots=True)
class WorstRating:
    """The most severe NSFW entry of an item: label, back end, and the spread of severities between back ends."""

    label: str | None
    source: str | None
    spread: float | None


@dataclass(frozen=True, slots=True)
class ReportItem:
    """An item with its thumbnail and the findings shown beside it.

    Attributes:
        severity: Highest NSFW severity, 0 to 1, or None.
        tags: Tags with the highest scores: pairs of name and score.
        colors: Largest colors: pairs of `#rrggbb` and share, 0 to 1.
        worst_rating: Set in the review list only.
    """

    item_id: str
    url: str
    kind: str | None
    duration_s: float | None
    severity: float | None = None
    tags: tuple[tuple[str, float | None], ...] = ()
    colors: tuple[tuple[str, float], ...] = ()
    thumbnail: Thumbnail = field(default_factory=Thumbnail)
    worst_rating: WorstRating | None = None

    @property
    def blurred(self) -> bool:
        """Whether the thumbnail is blurred until the reader opens it."""
        return self.severity is not None and self.severity >= REVIEW_FROM

    @property
    def name(self) -> str:
        """The file name in the item's URL."""
        return short_name(self.url)


@dataclass(frozen=True, slots=True)
class BackendCoverage:
    """Number of items a back end has findings for: table name to count."""

    source: str
    items: dict[str, int]


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
class ErrorGroup:
    """Error messages of a back end that differ only in addresses, numbers and ids.

    Attributes:
        cause: The message with these parts replaced by placeholders.
        times: Number of messages.
        items: Number of manifest rows they belong to.
        unmatched: Messages that belong to no single row.
        example: One of the messages, unchanged.
    """

    backend: str | None
    cause: str
    times: int
    items: int
    unmatched: int
    example: str


@dataclass(frozen=True, slots=True)
class RequestTimeline:
    """Requests over time.

    Attributes:
        started_at: Time of the first request, as text in UTC.
        bin_s: Width of a bin in seconds.
        bins: Bin number (from 0) to requests sent, assets in them, and credits paid for them; without empty bins.
        quantiles_s: Median, 95th percentile and maximum of the seconds from request to results; None without answers.
    """

    started_at: str
    bin_s: float
    bins: dict[int, tuple[int, int, int]]
    quantiles_s: tuple[float, float, float] | None


@dataclass(frozen=True, slots=True)
class SlowRequest:
    """A request with a long response time; `url` is one of the URLs in it."""

    seconds: float
    request_id: str | None
    url: str | None
    assets: int | None
    credits_paid: int | None
    polls: int | None
    state: str


@dataclass(frozen=True, slots=True)
class TableStatistics:
    """Statistics computed from the tables of a run.

    Attributes:
        is_written: Whether the run has tables.
        group_column: Column of `assets` that groups palettes and costs.
        error_groups: The most frequent groups of errors.
        error_group_count: Number of all groups of errors.
    """

    is_written: bool
    group_column: str
    tags: tuple[TagFrequency, ...]
    palettes: tuple[GroupPalette, ...]
    group_costs: tuple[GroupCost, ...]
    severities: SeverityHistogram
    coverage: tuple[BackendCoverage, ...]
    agreements: tuple[Agreement, ...]
    error_groups: tuple[ErrorGroup, ...]
    error_group_count: int
    timeline: RequestTimeline | None
    slowest: tuple[SlowRequest, ...]


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
    sample: tuple[ReportItem, ...]
    review: tuple[ReportItem, ...]
    created_at: str
    lineage: dict[str, Any]


def short_name(url: str) -> str:
    """Return the decoded file name in a URL or path; the whole text if it has none."""
    try:
        path = urlsplit(url).path if "://" in url else url.replace("\\", "/")
    except ValueError:  # square brackets around something that is not an IPv6 address
        return url
    return unquote(PurePosixPath(path).name) or url
