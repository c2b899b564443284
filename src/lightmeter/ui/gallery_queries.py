"""Queries of the notebook gallery: SQL with parameters for its filters, and a data class for the items found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, Final

import numpy as np

from lightmeter.html_fragments import is_hex_color
from lightmeter.html_report.model import GalleryItem
from lightmeter.html_report.queries import MEDIA_COLUMNS
from lightmeter.media.oklab import ENCODED_KNEE, LMS_TO_OKLAB, RGB_TO_LMS, srgb_to_oklab

PAGE_ROWS: Final = 24
TAGS_PER_CARD: Final = 4
COLORS_PER_CARD: Final = 6

STATUS_COUNTS: Final = "SELECT status, count(*) AS items FROM assets GROUP BY status ORDER BY items DESC, status"

TAG_COUNTS: Final = """
SELECT name, count(DISTINCT item_id) AS items FROM tags WHERE name IS NOT NULL
GROUP BY name ORDER BY items DESC, name LIMIT 500
"""


@dataclass(frozen=True, slots=True)
class TagChoice:
    """The tags that the gallery's filter offers; `counts` maps tag → number of items, most frequent first."""

    counts: Mapping[str, int]

    @property
    def labels(self) -> list[str]:
        """The tags as choices in the gallery's filter, each with its number of items, such as `cat (12)`."""
        return [f"{name} ({items})" for name, items in self.counts.items()]

    def parse(self, text: str) -> tuple[str, bool]:
        """Return the tag in `text` (typed, or a choice such as `cat (12)`), and whether exactly this tag exists."""
        tag_by_label = dict(zip(self.labels, self.counts, strict=True))
        tag = tag_by_label.get(text, text.strip())
        return tag, text in tag_by_label or tag in self.counts


@dataclass(frozen=True, slots=True)
class SimilarItems:
    """Items most similar to a given item: `item_ids`, most similar first; `name` is the file name of the given item."""

    name: str
    item_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Filters:
    """Filters of the gallery, and the page to show.

    Attributes:
        tag: Show items with this tag; empty for all.
        is_whole_tag: Whether `tag` must match exactly; else tags that contain it match, ignoring case.
        color: Show items with a color near this `#rrggbb`, nearest first; None for all.
        color_distance: Maximum Oklab distance from that color.
        severity: Minimum and maximum NSFW severity; (0, 1) includes items without a rating.
        status: Show items with this status; None for all.
        similar: Show only these items, which are similar to a given item; None for all.
        page: Page number, from 0.
    """

    tag: str = ""
    is_whole_tag: bool = False
    color: str | None = None
    color_distance: float = 0.1
    severity: tuple[float, float] = (0.0, 1.0)
    status: str | None = None
    similar: SimilarItems | None = None
    page: int = 0

    def on_page(self, page: int, items: int) -> Filters:
        """Return the filters with the page number `page`, but at most the last page of `items` matching items."""
        return replace(self, page=max(0, min(page, pages(items) - 1)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Card(GalleryItem):
    """An item (image or video) that the gallery shows, with its status, and any reason and error text."""

    status: str
    reason: str | None = None
    error: str | None = None

    @property
    def alt(self) -> str:
        """Alternative text (HTML `alt`) of the item's picture: its file name and tags."""
        tags = ", ".join(name for name, _ in self.tags)
        return f"{self.name}: {tags}" if tags else self.name


def pages(items: int) -> int:
    """Return the number of gallery pages that `items` items fill, at least 1."""
    return max(1, ceil(items / PAGE_ROWS))


def count_query(filters: Filters) -> tuple[str, tuple[Any, ...]]:
    """Return SQL and parameters to count the items that match the filters: one row with the column `items`."""
    clauses, params = _from_and_where(filters)
    return f"SELECT count(*) AS items {clauses}", params


def page_query(filters: Filters) -> tuple[str, tuple[Any, ...]]:
    """Return SQL and parameters for one page of items; filters by similarity or color put the nearest items first."""
    clauses, params = _from_and_where(filters)
    order = ", ".join(
        [*(["similarity_rank"] if filters.similar else []), *(["distance"] if filters.color else []), "position"]
    )
    columns = f"item_id, url, {MEDIA_COLUMNS}, status, reason, error, severity"
    text = f"SELECT {columns} {clauses} ORDER BY {order} LIMIT ? OFFSET ?"
    return text, (*params, PAGE_ROWS, filters.page * PAGE_ROWS)


def oklab(color: str) -> tuple[float, float, float]:
    """Return a color `#rrggbb` in Oklab: lightness (0 to 1), green to red, and blue to yellow (each about -0.3 to 0.3).

    Raises:
        ValueError: The text is not `#rrggbb`.
    """
    if not is_hex_color(color):
        raise ValueError(f"{color!r} is not written as #rrggbb")
    lightness, green_red, blue_yellow = srgb_to_oklab(np.array([list(bytes.fromhex(color[1:]))]) / 255)[0].tolist()
    return lightness, green_red, blue_yellow


def _linear_sql(column: str) -> str:
    share = f"({column} / 255.0)"
    return f"CASE WHEN {share} <= {ENCODED_KNEE} THEN {share} / 12.92 ELSE pow(({share} + 0.055) / 1.055, 2.4) END"


def _weighted(row: tuple[float, float, float], columns: str) -> str:
    return " + ".join(f"{weight!r} * {column}" for weight, column in zip(row, columns, strict=True))


DISTANCES_SQL: Final = f"""
SELECT item_id, sqrt(pow({_weighted(LMS_TO_OKLAB[0], "lms")} - ?, 2) + pow({_weighted(LMS_TO_OKLAB[1], "lms")} - ?, 2)
                     + pow({_weighted(LMS_TO_OKLAB[2], "lms")} - ?, 2)) AS distance
FROM (SELECT item_id, cbrt({_weighted(RGB_TO_LMS[0], "rgb")}) AS l, cbrt({_weighted(RGB_TO_LMS[1], "rgb")}) AS m,
             cbrt({_weighted(RGB_TO_LMS[2], "rgb")}) AS s
      FROM (SELECT item_id, {_linear_sql("red")} AS r, {_linear_sql("green")} AS g, {_linear_sql("blue")} AS b
            FROM colors))
"""  # noqa: S608 (constants of this module)
"""Query for the Euclidean Oklab distance of each row of `colors` from a color, whose `oklab` values are the parameters.

It is 0 for the same color, about 0.02 for a just noticeable difference, and 1 between black and white.
"""


_SIMILAR: Final = """
JOIN (SELECT item_id, similarity_rank
      FROM (SELECT unnest(items) AS item_id, generate_subscripts(items, 1) AS similarity_rank
            FROM (SELECT ?::VARCHAR[] AS items))) USING (item_id)
"""


def _from_and_where(filters: Filters) -> tuple[str, tuple[Any, ...]]:
    """Return the SQL clauses FROM and WHERE for the items that match the filters, and their parameters in order."""
    joins = [
        f"(SELECT item_id, url, {MEDIA_COLUMNS}, status, reason, error, row_number() OVER () AS position FROM assets)",  # noqa: S608 (constant names)
        "LEFT JOIN (SELECT item_id, max(severity) AS severity FROM nsfw GROUP BY item_id) USING (item_id)",
    ]
    params: list[Any] = []
    if filters.color:
        nearest = f"SELECT item_id, min(distance) AS distance FROM ({DISTANCES_SQL}) GROUP BY item_id"  # noqa: S608 (constant names)
        joins.append(f"JOIN ({nearest}) USING (item_id)")
        params += oklab(filters.color)
    if filters.similar:
        joins.append(_SIMILAR)
        params.append(list(filters.similar.item_ids))
    conditions = list(_conditions(filters))
    where = " AND ".join(text for text, _ in conditions) or "true"
    return f"FROM {' '.join(joins)} WHERE {where}", (*params, *(value for _, values in conditions for value in values))


def _conditions(filters: Filters) -> Iterable[tuple[str, tuple[Any, ...]]]:
    if filters.color:
        yield "distance <= ?", (filters.color_distance,)
    if filters.tag:
        test = "name = ?" if filters.is_whole_tag else "contains(lower(name), lower(?))"
        yield f"item_id IN (SELECT item_id FROM tags WHERE {test})", (filters.tag,)  # noqa: S608 (constant names)
    if filters.severity != (0.0, 1.0):
        yield "severity BETWEEN ? AND ?", filters.severity
    if filters.status:
        yield "status = ?", (filters.status,)
