"""What the page says of a run, as plain values: counted by the tables and the journal, a few of each kind. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from lightmeter.api.run_result import RunSummary
from lightmeter.journal.header import RunHeader
from lightmeter.money.statement import Statement
from lightmeter.planning.plan import ReasonCount
from lightmeter.report.thumbnails import Thumbnail

__all__ = [
    "BINS",
    "REVIEW_FROM",
    "Agreement",
    "BackendCoverage",
    "ErrorGroup",
    "GroupCost",
    "GroupPalette",
    "ReportData",
    "ReportItem",
    "RequestTimeline",
    "SeverityHistogram",
    "SlowRequest",
    "TableStatistics",
    "TagFrequency",
    "short_name",
]

BINS = 10
"""Of the distribution of severities: a tenth each."""

REVIEW_FROM = 0.5
"""Severity from which a person should look, and until then a picture is blurred: more likely unsafe than not."""


@dataclass(frozen=True, slots=True)
class TagFrequency:
    """A tag, the items that have it, and how sure their back ends are on average (0 to 1, or None)."""

    name: str
    items: int
    sources: int
    mean_score: float | None


@dataclass(frozen=True, slots=True)
class GroupPalette:
    """The main colours of a group as `#rrggbb` with their shares, 0 to 1, in the order in which they are shown."""

    group: str
    colors: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class GroupCost:
    """What a group cost; `credits_per_ok` is None where no item is ok."""

    group: str
    items: int
    ok: int
    credits: float
    credits_per_ok: float | None


@dataclass(frozen=True, slots=True)
class SeverityHistogram:
    """How unsafe the items are rated, each by its highest entry.

    Attributes:
        bins: Items by tenths of the scale, `BINS` of them.
        voices: Rows of label, back end, items, mean and highest severity.
    """

    bins: tuple[int, ...]
    voices: tuple[tuple[str | None, str | None, int, float | None, float | None], ...] = ()

    @property
    def rated(self) -> int:
        """Items with any rating."""
        return sum(self.bins)

    @property
    def to_review(self) -> int:
        """Items rated `REVIEW_FROM` or higher."""
        return sum(self.bins[int(REVIEW_FROM * BINS) :])


@dataclass(frozen=True, slots=True)
class ReportItem:
    """One item with its picture, and what is shown beside it.

    Attributes:
        severity: Highest severity, 0 to 1, or None.
        tags: The surest ones with their scores.
        colors: The largest ones as `#rrggbb`, with their shares.
        said: In the review list: label and back end of the worst entry, and how far back ends are apart.
    """

    item_id: str
    url: str
    kind: str | None
    duration_s: float | None
    severity: float | None
    tags: tuple[tuple[str, float | None], ...] = ()
    colors: tuple[tuple[str, float], ...] = ()
    picture: Thumbnail = field(default_factory=Thumbnail)
    said: tuple[str | None, str | None, float | None] | None = None

    @property
    def blurred(self) -> bool:
        """Whether its picture is shown only when asked for."""
        return self.severity is not None and self.severity >= REVIEW_FROM

    @property
    def name(self) -> str:
        """The file's name."""
        return short_name(self.url)


@dataclass(frozen=True, slots=True)
class BackendCoverage:
    """A back end, and the items that it says something of, by table."""

    source: str
    items: dict[str, int]


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far two back ends agree on tags.

    Attributes:
        both: Times both say a label of a picture that both have tagged.
        either: Times at least one does.
        labels: The most frequent labels: name, both, either.
    """

    one: str
    other: str
    both: int
    either: int
    labels: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True)
class ErrorGroup:
    """Errors that differ in addresses and figures only.

    Attributes:
        items: Rows of the manifest that they belong to.
        unmatched: Errors that belong to no single row.
        example: One of them, as it came.
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
        started_at: When the first was sent, as text in UTC.
        bin_s: Width of a bin in seconds.
        bins: Bin counted from 0 → requests sent in it, assets in them, credits paid for them; empty ones are left out.
        quantiles_s: Seconds from sending to results: median, 95th percentile, longest; None where nothing was answered.
    """

    started_at: str
    bin_s: float
    bins: dict[int, tuple[int, int, int]]
    quantiles_s: tuple[float, float, float] | None


@dataclass(frozen=True, slots=True)
class SlowRequest:
    """A request that took long, with one of its addresses."""

    seconds: float
    request_id: str | None
    url: str | None
    assets: int | None
    credits_paid: int | None
    polls: int | None
    state: str


@dataclass(frozen=True, slots=True)
class TableStatistics:
    """What the tables say; `group_column` is the column of `assets` that groups.

    Attributes:
        written: Whether there are tables at all.
        causes_in_all: Different causes; `causes` are the most frequent.
    """

    written: bool
    group_column: str
    tags: tuple[TagFrequency, ...]
    palettes: tuple[GroupPalette, ...]
    costs: tuple[GroupCost, ...]
    severities: SeverityHistogram
    voices: tuple[BackendCoverage, ...]
    agreements: tuple[Agreement, ...]
    causes: tuple[ErrorGroup, ...]
    causes_in_all: int
    timeline: RequestTimeline | None
    slowest: tuple[SlowRequest, ...]


@dataclass(frozen=True, slots=True)
class ReportData:
    """All that the page says.

    Attributes:
        sample: Some of the items that are ok.
        review: The items rated worst.
        made_at: When, as text in UTC.
        lineage: Where the tables come from, as their footers say.
    """

    header: RunHeader
    summary: RunSummary
    statement: Statement
    reasons: tuple[ReasonCount, ...]
    found: TableStatistics
    sample: tuple[ReportItem, ...]
    review: tuple[ReportItem, ...]
    made_at: str
    lineage: dict[str, Any]


def short_name(url: str) -> str:
    """The file name in a URL or a path, as a person would write it."""
    try:
        path = urlsplit(url).path if "://" in url else url.replace("\\", "/")
    except ValueError:  # brackets that are no IPv6 address
        return url
    return unquote(PurePosixPath(path).name) or url
