"""Defines the filters and sort keys of the gallery, and builds SQL queries for them over a run's tables. No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from math import hypot
from typing import Annotated, Final

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from lightmeter.facts.columns import FACT_TABLES
from lightmeter.html_fragments import is_hex_color
from lightmeter.media.oklab import ENCODED_KNEE, LMS_TO_OKLAB, RGB_TO_LMS, srgb_to_oklab
from lightmeter.tables.arrow.color_names import color_to_hex
from lightmeter.tables.arrow.schema import POSITION_COLUMN

MIN_CHROMA: Final = 0.05
"""A color with a lower Oklab chroma counts as grey, because it has hardly any hue."""

CHROMATIC_WEIGHTS: Final = (0.5, 0.35, 1.5)
"""Weights of the differences in lightness, chroma and hue, if distances are measured from a color that is not grey."""

GREY_WEIGHTS: Final = (0.6, 2.0, 2.0)
"""Weights of the differences in lightness, chroma and hue, if distances are measured from grey, black or white."""

Score = Annotated[float, Field(ge=0, le=1)]


class ColorNear(BaseModel):
    """Filter for items that have a color near `color`.

    Attributes:
        color: The color to look for, `#rrggbb`.
        distance: Maximum distance of the item's color from `color`, a weighted distance in Oklab (see `distances_sql`):
            0 means equal, 0.05 nearly the same, 0.15 related. All distances are below 1.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    color: Annotated[str, AfterValidator(color_to_hex)]
    distance: float = 0.1


class SimilarItems(BaseModel):
    """Filter for the items that are most similar to one item.

    Attributes:
        item_id: The id of the item to compare with.
        name: The file name of this item, which the page shows.
        item_ids: The ids of the similar items, most similar first.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    item_id: str
    name: str
    item_ids: tuple[str, ...]


class Filters(BaseModel):
    """Filters of the gallery. An item must match all filters; an empty filter or None matches every item.

    Attributes:
        tags: Tags, written exactly as in the table `tags`. An item matches if it has one of them.
        sources: Back ends. An item matches if one of them gave a result for it.
        values: Column of `assets`, such as `status` → the chosen values as text, where None means null. An item matches
            if it has one of the values in each of these columns.
        severity: Range (low, high) of an item's highest NSFW severity. `low` is part of the range. `high` is part of
            the range only if it is 1.
        color: Color to look for.
        similar: Similar items to look for.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    tags: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    values: dict[str, tuple[str | None, ...]] = Field(default_factory=dict)
    severity: tuple[Score, Score] | None = None
    color: ColorNear | None = None
    similar: SimilarItems | None = None


class Sort(BaseModel):
    """Order of the gallery.

    Attributes:
        by: `position` (the order of the manifest), `severity`, `tag:NAME` (the item's highest score for the tag),
            `column:NAME` (a column of `assets`), `distance` (from the color in `Filters.color`) or `similarity` (the
            order of `Filters.similar`). An empty text means the default: `similarity` if `Filters.similar` is set, else
            `distance` if `Filters.color` is set, else `position`.
        descending: Whether the largest value comes first. Null values come last in either direction.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    by: str = ""
    descending: bool = False


def effective_sort(filters: Filters, sort: Sort) -> Sort:
    """Return the order to use: `sort`, or the default order if `sort.by` is empty or needs a filter that is not set."""
    has_key = {"": False, "similarity": filters.similar is not None, "distance": filters.color is not None}
    if has_key.get(sort.by, True):
        return sort
    by = "similarity" if filters.similar else "distance" if filters.color else "position"
    return Sort(by=by, descending=sort.descending if sort.by == by else False)


def conditions(filters: Filters) -> dict[str, str]:
    """Return a dict with an SQL condition on the table `assets` for each filter that is set.

    A key is the name of a filter, such as `tags`, or `values:COLUMN` for a column in `Filters.values`.
    """
    found: dict[str, str] = {}
    if filters.tags:
        found["tags"] = f"item_id IN (SELECT item_id FROM tags WHERE name IN ({_literals(filters.tags)}))"  # noqa: S608 (quoted)
    if filters.sources:
        names = _literals(filters.sources)
        tables = (f"SELECT item_id FROM {table} WHERE source IN ({names})" for table in FACT_TABLES)  # noqa: S608 (quoted)
        found["sources"] = f"item_id IN ({' UNION ALL '.join(tables)})"
    for column, values in filters.values.items():
        if values:
            found[f"values:{column}"] = _value_condition(column, values)
    if filters.severity is not None:
        low, high = filters.severity
        limit = f"max(severity) >= {low!r}" + (f" AND max(severity) < {high!r}" if high < 1 else "")
        found["severity"] = f"item_id IN (SELECT item_id FROM nsfw GROUP BY item_id HAVING {limit})"  # noqa: S608 (numbers)
    if filters.color is not None:
        near = (
            f"SELECT item_id FROM ({distances_sql(filters.color.color)}) WHERE distance <= {filters.color.distance!r}"  # noqa: S608 (numbers)
        )
        found["color"] = f"item_id IN ({near})"
    if filters.similar is not None:
        found["similar"] = f"item_id IN ({_literals(filters.similar.item_ids) or 'NULL'})"
    return found


def items_sql(filters: Filters, sort: Sort) -> str:
    """Return the SQL query for the rows of `assets` that match the filters, sorted.

    The query contains the values of the filters, so that it needs no parameters.
    """
    where = "\n  AND ".join(conditions(filters).values())
    return (
        f"SELECT assets.* EXCLUDE (lm_position)\nFROM {_source(filters, sort)}"
        + (f"\nWHERE {where}" if where else "")
        + f"\nORDER BY {_order(filters, sort)}"
    )


def selection_sql(item_ids: Iterable[str]) -> str:
    """Return the SQL query for the rows of `assets` of the items `item_ids`, in the order of the manifest."""
    condition = f"item_id IN ({_literals(item_ids) or 'NULL'})"
    return f"SELECT assets.* EXCLUDE (lm_position)\nFROM {_BASE}\nWHERE {condition}\nORDER BY lm_position"


def positions_sql(filters: Filters, sort: Sort) -> str:
    """Return the SQL query for the positions in the manifest (from 0) of all items, sorted but not filtered.

    From `filters`, only the color or the similar items are used, to sort by them.
    """
    return f"SELECT (lm_position - 1)::INTEGER AS place FROM {_source(filters, sort)} ORDER BY {_order(filters, sort)}"  # noqa: S608 (quoted)


def matches_sql(condition: str) -> str:
    """Return the SQL query for the positions in the manifest (from 0) of the items that match an SQL condition."""
    return f"SELECT (lm_position - 1)::INTEGER AS place FROM {_BASE} WHERE {condition}"  # noqa: S608 (quoted)


def oklab(color: str) -> tuple[float, float, float]:
    """Return a color `#rrggbb` in Oklab: lightness (0 to 1), green to red, and blue to yellow (each about -0.3 to 0.3).

    Raises:
        ValueError: The text is not `#rrggbb`.
    """
    if not is_hex_color(color):
        raise ValueError(f"{color!r} is not written as #rrggbb")
    lightness, green_red, blue_yellow = srgb_to_oklab(np.array([list(bytes.fromhex(color[1:]))]) / 255)[0].tolist()
    return lightness, green_red, blue_yellow


def distances_sql(color: str) -> str:
    """Return the SQL query that computes the distance of each row of the table `colors` from `color` (`#rrggbb`).

    The query's columns are `item_id` and `distance`. With lightness L, chroma C, a and b of Oklab, the distance is
    `distance² = (wl ΔL)² + (wc ΔC)² + (wh ΔH)²`, where the hue difference is defined as in CIE 1976:
    `ΔH² = Δa² + Δb² - ΔC²`. An equal color has the distance 0.

    The weights `wl`, `wc` and `wh` are `GREY_WEIGHTS` if `color` is grey, else `CHROMATIC_WEIGHTS`. They follow the
    idea of CMC l:c (Clarke, McDonald and Rigg 1984): hue counts more than lightness and chroma, because the red of a
    photograph is duller than #ff0000. If `color` is not grey, the query leaves out grey rows.
    """
    lightness, a, b = oklab(color)
    chroma = hypot(a, b)
    is_chromatic = chroma >= MIN_CHROMA
    weights = CHROMATIC_WEIGHTS if is_chromatic else GREY_WEIGHTS
    asked = dict(zip(("lightness", "a", "b", "chroma"), (lightness, a, b, chroma), strict=True))
    asked |= dict(zip(("wl", "wc", "wh"), weights, strict=True)) | {"least": MIN_CHROMA if is_chromatic else 0.0}
    return _DISTANCES_SQL.format(**{name: f"({value!r})" for name, value in asked.items()})


def quoted(name: str) -> str:
    """Return the column name `name` as an SQL identifier in double quotes."""
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    # SQL text ends at a NUL character, so that it is not written as such.
    return "'" + text.replace("'", "''").replace("\0", "' || chr(0) || '") + "'"


def _literals(texts: Iterable[str]) -> str:
    return ", ".join(f"({_literal(text)})" if "\0" in text else _literal(text) for text in texts)


def _value_condition(column: str, values: tuple[str | None, ...]) -> str:
    texts = _literals(value for value in values if value is not None)
    alternatives = [f"assets.{quoted(column)}::VARCHAR IN ({texts})"] if texts else []
    if None in values:
        alternatives.append(f"assets.{quoted(column)} IS NULL")
    return f"({' OR '.join(alternatives)})"


_BASE: Final = f"(SELECT *, row_number() OVER () AS {POSITION_COLUMN} FROM assets) AS assets"  # noqa: S608 (a constant)


def _source(filters: Filters, sort: Sort) -> str:
    """Return SQL to put after FROM: the table `assets` with one or two additional columns to sort by.

    `lm_position` is the item's position in the manifest, from 1. If the gallery is sorted by severity, tag, distance or
    similarity, `lm_key` is the item's severity, score, distance or similarity rank. From `filters`, only the color or
    the similar items are used, to compute `lm_key`. The rows are not filtered.
    """
    by = effective_sort(filters, sort).by
    if by == "severity":
        keys = "SELECT item_id, max(severity) AS lm_key FROM nsfw GROUP BY item_id"
    elif by.startswith("tag:"):
        tag = _literal(by.removeprefix("tag:"))
        keys = f"SELECT item_id, max(score) AS lm_key FROM tags WHERE name = {tag} GROUP BY item_id"  # noqa: S608 (quoted)
    elif by == "distance" and filters.color is not None:
        distances = distances_sql(filters.color.color)
        keys = f"SELECT item_id, min(distance) AS lm_key FROM ({distances}) GROUP BY item_id"  # noqa: S608 (numbers)
    elif by == "similarity" and filters.similar is not None:
        ids = f"[{_literals(filters.similar.item_ids)}]::VARCHAR[]"
        keys = f"SELECT unnest({ids}) AS item_id, generate_subscripts({ids}, 1) AS lm_key"
    else:
        return _BASE
    return f"{_BASE}\nLEFT JOIN ({keys}) AS sort_keys USING (item_id)"


def _order(filters: Filters, sort: Sort) -> str:
    sort = effective_sort(filters, sort)
    direction = "DESC" if sort.descending else "ASC"
    if sort.by == "position":
        return f"lm_position {direction}"
    key = f"assets.{quoted(sort.by.removeprefix('column:'))}" if sort.by.startswith("column:") else "sort_keys.lm_key"
    return f"{key} {direction} NULLS LAST, lm_position"


def _linear_sql(column: str) -> str:
    share = f"({column} / 255.0)"
    return f"CASE WHEN {share} <= {ENCODED_KNEE} THEN {share} / 12.92 ELSE pow(({share} + 0.055) / 1.055, 2.4) END"


def _weighted(row: tuple[float, float, float], columns: str) -> str:
    return " + ".join(f"{weight!r} * {column}" for weight, column in zip(row, columns, strict=True))


_DISTANCES_SQL: Final = f"""
SELECT item_id, sqrt(pow({{wl}} * (l - {{lightness}}), 2) + pow({{wc}} * (c - {{chroma}}), 2)
    + pow({{wh}}, 2) * greatest(0, pow(a - {{a}}, 2) + pow(b - {{b}}, 2) - pow(c - {{chroma}}, 2))) AS distance
FROM (SELECT *, sqrt(a * a + b * b) AS c FROM (
    SELECT item_id, {_weighted(LMS_TO_OKLAB[0], "lms")} AS l, {_weighted(LMS_TO_OKLAB[1], "lms")} AS a,
           {_weighted(LMS_TO_OKLAB[2], "lms")} AS b
    FROM (SELECT item_id, cbrt({_weighted(RGB_TO_LMS[0], "rgb")}) AS l, cbrt({_weighted(RGB_TO_LMS[1], "rgb")}) AS m,
                 cbrt({_weighted(RGB_TO_LMS[2], "rgb")}) AS s
          FROM (SELECT item_id, {_linear_sql("red")} AS r, {_linear_sql("green")} AS g, {_linear_sql("blue")} AS b
                FROM colors))))
WHERE c >= {{least}}
"""  # noqa: S608 (constants of this module)
"""Template of the query that `distances_sql` returns."""
