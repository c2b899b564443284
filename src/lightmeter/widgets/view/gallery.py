"""What the gallery asks of the tables: filters become SQL with parameters, answers become cards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import PurePosixPath
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from lightmeter.widgets.view.color_distance import DISTANCES_SQL, oklab

__all__ = [
    "COLORS_OF",
    "PAGE_ROWS",
    "STATUS_COUNTS",
    "TAGS_OF",
    "TAG_COUNTS",
    "Card",
    "Filters",
    "Query",
    "SimilarItems",
    "TagChoice",
    "cards",
    "count_query",
    "page_query",
    "pages",
    "short_name",
    "with_details",
]

PAGE_ROWS: Final = 24
TOP_TAGS: Final = 4
TOP_COLORS: Final = 6
VEIL_FROM: Final = 0.5
"""Severity from which a picture is blurred: more likely unsafe than not."""

STATUS_COUNTS: Final = "SELECT status, count(*) AS items FROM assets GROUP BY status ORDER BY items DESC, status"

TAG_COUNTS: Final = """
SELECT name, count(DISTINCT item_id) AS items FROM tags WHERE name IS NOT NULL
GROUP BY name ORDER BY items DESC, name LIMIT 500
"""

TAGS_OF: Final = """
SELECT item_id, name, max(score) AS score FROM tags
WHERE name IS NOT NULL AND item_id IN (SELECT unnest(?)) GROUP BY item_id, name ORDER BY score DESC NULLS LAST, name
"""

COLORS_OF: Final = """
SELECT item_id, hex, avg(coalesce(pixel_fraction, score, 0)) AS share FROM colors
WHERE hex IS NOT NULL AND item_id IN (SELECT unnest(?)) GROUP BY item_id, hex ORDER BY share DESC, hex
"""


@dataclass(frozen=True, slots=True)
class Query:
    """SQL and its parameters."""

    text: str
    params: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class TagChoice:
    """Tags as a list to choose from, and what a typed text means.

    Attributes:
        counts: Tag → items that have it, most frequent first.
    """

    counts: Mapping[str, int]

    @property
    def labels(self) -> list[str]:
        """What the list shows: `cat (12)`."""
        return [f"{name} ({items})" for name, items in self.counts.items()]

    def filter(self, typed: str) -> tuple[str, bool]:
        """The tag that a text stands for, and whether it is a whole tag: else it is looked for inside tags."""
        named = dict(zip(self.labels, self.counts, strict=True))
        name = named.get(typed, typed.strip())
        return name, typed in named or name in self.counts


@dataclass(frozen=True, slots=True)
class SimilarItems:
    """The items most like one item.

    Attributes:
        to: The name of that item, to read.
        items: Their ids, nearest first.
    """

    to: str
    items: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Filters:
    """Which items to show.

    Attributes:
        tag: Items with this tag; empty for all.
        whole_tag: Whether `tag` is a whole tag, capitals included; else any tag that contains it will do.
        colour: Items with a colour near this `#rrggbb`, nearest first; None for all.
        distance: How near, as Oklab distance.
        severity: NSFW severity from, to; (0, 1) also shows items that have none.
        status: Items of this status; None for all.
        similar: Items like another one; None for all.
        page: From 0.
    """

    tag: str = ""
    whole_tag: bool = False
    colour: str | None = None
    distance: float = 0.1
    severity: tuple[float, float] = (0.0, 1.0)
    status: str | None = None
    similar: SimilarItems | None = None
    page: int = 0

    def on_page(self, page: int, items: int) -> Filters:
        """The same filters on another page, kept within those there are."""
        return replace(self, page=max(0, min(page, pages(items) - 1)))


@dataclass(frozen=True, slots=True)
class Card:
    """One item as the gallery shows it.

    Attributes:
        name: A name to read: the file's.
        severity: Highest NSFW severity, 0 to 1, or None.
        tags: The surest ones with their scores.
        colors: The largest ones as `#rrggbb`, with their shares.
    """

    item_id: str
    name: str
    url: str
    kind: str | None
    status: str
    reason: str | None
    error: str | None
    severity: float | None
    duration_s: float | None
    tags: tuple[tuple[str, float | None], ...] = ()
    colors: tuple[tuple[str, float], ...] = ()

    @property
    def blurred(self) -> bool:
        """Whether its picture is shown only when asked for."""
        return self.severity is not None and self.severity >= VEIL_FROM

    @property
    def alt(self) -> str:
        """What somebody who does not see the picture should know of it."""
        said = ", ".join(name for name, _ in self.tags)
        return f"{self.name}: {said}" if said else self.name


def pages(items: int) -> int:
    """How many pages so many items fill; no items fill one."""
    return max(1, ceil(items / PAGE_ROWS))


def short_name(url: str) -> str:
    """The file name in a URL or a path, as a person would write it."""
    name = unquote(PurePosixPath(urlsplit(url).path).name) if "://" in url else url.replace("\\", "/").split("/")[-1]
    return name or url


def count_query(filters: Filters) -> Query:
    """How many items there are under these filters: one row, `items`."""
    source, params = _source(filters)
    return Query(f"SELECT count(*) AS items {source}", params)


def page_query(filters: Filters) -> Query:
    """The items of one page, in the manifest's order, or most similar first, or nearest colour first."""
    source, params = _source(filters)
    order = ", ".join([*(["likeness"] if filters.similar else []), *(["distance"] if filters.colour else []), "place"])
    columns = "item_id, url, kind, status, reason, error, duration_s, severity"
    text = f"SELECT {columns} {source} ORDER BY {order} LIMIT ? OFFSET ?"
    return Query(text, (*params, PAGE_ROWS, filters.page * PAGE_ROWS))


_SIMILAR: Final = """
JOIN (SELECT item_id, likeness FROM (SELECT unnest(items) AS item_id, generate_subscripts(items, 1) AS likeness
                                     FROM (SELECT ?::VARCHAR[] AS items))) USING (item_id)
"""


def _source(filters: Filters) -> tuple[str, tuple[Any, ...]]:
    """FROM and WHERE, with the parameters in the order they stand there."""
    joins = [
        "(SELECT item_id, url, kind, status, reason, error, duration_s, row_number() OVER () AS place FROM assets)",
        "LEFT JOIN (SELECT item_id, max(severity) AS severity FROM nsfw GROUP BY item_id) USING (item_id)",
    ]
    params: list[Any] = []
    if filters.colour:
        near = f"SELECT item_id, min(distance) AS distance FROM ({DISTANCES_SQL}) GROUP BY item_id"  # noqa: S608 (as above)
        joins.append(f"JOIN ({near}) USING (item_id)")
        params += oklab(filters.colour)
    if filters.similar:
        joins.append(_SIMILAR)
        params.append(list(filters.similar.items))
    conditions = list(_conditions(filters))
    where = " AND ".join(text for text, _ in conditions) or "true"
    return f"FROM {' '.join(joins)} WHERE {where}", (*params, *(value for _, values in conditions for value in values))


def _conditions(filters: Filters) -> Iterable[tuple[str, tuple[Any, ...]]]:
    if filters.colour:
        yield "distance <= ?", (filters.distance,)
    if filters.tag:
        test = "name = ?" if filters.whole_tag else "contains(lower(name), lower(?))"
        yield f"item_id IN (SELECT item_id FROM tags WHERE {test})", (filters.tag,)  # noqa: S608 (as above)
    if filters.severity != (0.0, 1.0):
        yield "severity BETWEEN ? AND ?", filters.severity
    if filters.status:
        yield "status = ?", (filters.status,)


def cards(rows: Iterable[Mapping[str, Any]]) -> list[Card]:
    """Cards of the rows that `page_query` answers."""
    return [Card(name=short_name(row["url"]), **row) for row in rows]


def with_details(
    shown: Sequence[Card], tags: Iterable[Mapping[str, Any]], colors: Iterable[Mapping[str, Any]]
) -> list[Card]:
    """The same cards with what `TAGS_OF` and `COLORS_OF` answered for them; the first rows of an item count."""
    tags_of: dict[str, list[tuple[str, float | None]]] = {}
    for row in tags:
        tags_of.setdefault(row["item_id"], []).append((row["name"], row["score"]))
    colors_of: dict[str, list[tuple[str, float]]] = {}
    for row in colors:
        colors_of.setdefault(row["item_id"], []).append((row["hex"], row["share"]))
    return [
        replace(
            card,
            tags=tuple(tags_of.get(card.item_id, [])[:TOP_TAGS]),
            colors=tuple(colors_of.get(card.item_id, [])[:TOP_COLORS]),
        )
        for card in shown
    ]
