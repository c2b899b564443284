"""`Gallery`: the items of a run that match filters, in order, with counts for each value that one can filter by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from lightmeter.errors import TablesError, UsageError
from lightmeter.html_report.model import REVIEW_FROM, short_name
from lightmeter.tables.dataset import Dataset
from lightmeter.tables.query.duckdb_query import QuerySession
from lightmeter.ui.gallery.gallery_columns import GalleryColumns, read_columns
from lightmeter.ui.gallery.gallery_queries import Filters, Sort, conditions, effective_sort, matches_sql, positions_sql

Mask = NDArray[np.bool_]

BINS: Final = 20
"""Number of bins in the histogram of NSFW severities. The severity is 0 to 1, so that a bin is 1/20 wide."""

BIN_EDGES: Final = np.arange(BINS + 1) / BINS
"""Edges of the bins, from 0 to 1."""

DUCKDB_MEMORY_MIB: Final = 96
"""Memory limit of a DuckDB session, in mebibytes."""

TAGS_PER_CARD: Final = 4
"""Maximum number of tags on an item's card."""

COLORS_PER_CARD: Final = 6
"""Maximum number of colors on an item's card."""

MAX_PAGE: Final = 500
"""Maximum number of cards that `Gallery.page` returns."""

MAX_TAGS_FOUND: Final = 30
"""Maximum number of tags that `Gallery.find_tags` returns."""

_MAX_KEPT: Final = 4
"""Maximum number of SQL results that are kept in memory. A result takes 4 bytes for each item that the query found."""

_MAX_READS: Final = 3
"""Maximum number of attempts to read the tables. An attempt can fail because a writer replaces the files meanwhile."""

PartsVersion = tuple[tuple[str, int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Shown:
    """What the gallery shows: the items that match all filters, and which items match each single filter.

    A facet is a property to filter by, such as `tags`.

    Attributes:
        filters: The filters that were applied.
        order: The positions in the manifest (from 0) of the items that match all filters, in the gallery's order.
        masks: For each facet with a filter, an array with one boolean per item of the run: whether the item matches the
            filter of this facet.
        tag_counts: For each tag in `GalleryColumns.tags`, the number of items that have the tag and match all filters
            other than the filter by tags.
    """

    filters: Filters = field(default_factory=Filters)
    order: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    masks: Mapping[str, Mask] = field(default_factory=dict)
    tag_counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))


class Gallery:
    """Finds, sorts and counts the items of a run for the gallery page.

    The method `show` finds the items that match the filters. The other methods then return details of these items. The
    columns of all items are in memory. `show` reads them again if the tables have changed. Only one thread at a time
    may use a gallery.

    Attributes:
        shown: What the most recent call of `show` has found.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._columns: GalleryColumns | None = None
        self._version: PartsVersion = ()
        self._session: QuerySession | None = None
        self._cached_positions: dict[str, NDArray[np.int32]] = {}
        self.shown = Shown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the DuckDB session that queries the tables."""
        if self._session is not None:
            self._session.__exit__(None, None, None)
            self._session = None

    @property
    def columns(self) -> GalleryColumns:
        """The values by which items are found, sorted and counted, read from the tables at the first use."""
        if self._columns is None:
            self._read()
        assert self._columns is not None  # noqa: S101 (for the type checker)
        return self._columns

    @property
    def item_count(self) -> int:
        """Number of items of the run."""
        return self.columns.item_count

    def show(self, filters: Filters, sort: Sort) -> None:
        """Find the items that match the filters, sort them, and set `shown`.

        Raises:
            UsageError: The tables lack a column that `filters` or `sort` names, or `sort.by` is not a known sort key.
            TablesError: A file of the tables is broken.
        """
        if self._columns is None or parts_version(self._folder) != self._version:
            self._read()
        masks = {facet: self._mask(facet, filters, text) for facet, text in conditions(filters).items()}
        order = self._order(filters, sort)
        matching = _all(masks, self.item_count)
        shown = order[matching[order]] if masks else order
        self.shown = Shown(filters, shown, masks, self.columns.tag_counts(_all_but(masks, "tags", self.item_count)))

    def _read(self) -> None:
        self.close()
        self._cached_positions.clear()
        for attempt in range(_MAX_READS):
            self._version = parts_version(self._folder)
            last = attempt == _MAX_READS - 1
            with (
                suppress(*() if last else (TablesError,)),
                QuerySession(self._folder, memory_mib=DUCKDB_MEMORY_MIB) as tables,
            ):
                self._columns = read_columns(tables)
                return

    def _mask(self, facet: str, filters: Filters, condition: str) -> Mask:
        """Return for each item whether it matches the filter of one facet.

        `facet` is the name of the facet, such as `tags`, and `condition` the SQL condition of its filter. The condition
        is used only if the columns in memory do not tell which items match.
        """
        columns = self.columns
        if facet == "tags":
            return columns.with_tags(filters.tags)
        if facet == "sources":
            chosen = [columns.sources.index(name) for name in filters.sources if name in columns.sources]
            found: Mask = np.logical_or.reduce(columns.has_source[chosen], axis=0)
            return found
        if facet == "severity" and filters.severity is not None:
            low, high = filters.severity
            below = columns.severities < high if high < 1 else ~np.isnan(columns.severities)
            return (columns.severities >= low) & below
        name = facet.removeprefix("values:")
        if facet.startswith("values:") and name in columns.value_columns:
            column = columns.value_columns[name]
            return np.isin(column.codes, [column.values.index(v) for v in filters.values[name] if v in column.values])
        mask = np.zeros(self.item_count, np.bool_)
        mask[self._positions(matches_sql(condition))] = True
        return mask

    def _order(self, filters: Filters, sort: Sort) -> NDArray[np.int32]:
        sort = effective_sort(filters, sort)
        if sort.by == "position":
            forward = np.arange(self.item_count, dtype=np.int32)
            return forward[::-1] if sort.descending else forward
        if (
            sort.by != "severity"
            and not sort.by.startswith(("tag:", "column:"))
            and sort.by not in {"distance", "similarity"}
        ):
            raise UsageError(f"The gallery cannot be sorted by {sort.by!r}.", hint="Sort by position, severity, …")
        return self._positions(positions_sql(filters, sort))

    def _positions(self, query: str) -> NDArray[np.int32]:
        """Return the positions in the manifest (from 0) of the items that the SQL query finds, in the query's order.

        The results of the most recent queries are cached.
        """
        if query not in self._cached_positions:
            if self._session is None:
                self._session = QuerySession(self._folder, memory_mib=DUCKDB_MEMORY_MIB)
            found = self._session.ask(query).column("place").to_numpy()
            self._cached_positions[query] = found[found < self.item_count]
            while len(self._cached_positions) > _MAX_KEPT:
                del self._cached_positions[next(iter(self._cached_positions))]
        return self._cached_positions[query]

    def page(self, offset: int, limit: int) -> list[dict[str, Any]]:
        """Return the cards of at most `limit` shown items, from the item with the index `offset` (from 0).

        At most `MAX_PAGE` cards are returned. A card is a dict with the keys `item_id`, `name`, `url`, `duration_s`,
        `severity` (the item's highest NSFW severity, 0 to 1), `blurred` (whether the page blurs the picture), `tags`
        and `colors` (as `GalleryColumns.tags_of` and `colors_of` return them). It also has the keys `status`, `kind`
        and `reason`. Each of these three is missing if its column of `assets` has more than 30 different values in the
        run, or only nulls. A value that is not known is None.
        """
        first = max(offset, 0)
        return [self._card(int(position)) for position in self.shown.order[first : first + min(limit, MAX_PAGE)]]

    def _card(self, position: int) -> dict[str, Any]:
        columns = self.columns
        severity, duration_s = float(columns.severities[position]), float(columns.durations_s[position])
        values: dict[str, Any] = {
            name: columns.value_columns[name].values[columns.value_columns[name].codes[position]]
            for name in ("status", "kind", "reason")
            if name in columns.value_columns
        }
        return {
            "item_id": columns.item_ids[position].as_py(),
            "name": short_name(columns.urls[position]),
            "url": columns.urls[position],
            **values,
            "duration_s": None if np.isnan(duration_s) else duration_s,
            "severity": None if np.isnan(severity) else severity,
            "blurred": severity >= REVIEW_FROM,
            "tags": columns.tags_of(position, TAGS_PER_CARD),
            "colors": columns.colors_of(position, COLORS_PER_CARD),
        }

    def item_ids(self, first: int, last: int) -> list[str]:
        """Return the ids of the shown items from index `first` to index `last`.

        Both of these items are included. Indices count from 0.
        """
        return [self.columns.item_ids[int(position)].as_py() for position in self.shown.order[first : last + 1]]

    def facets(self) -> dict[str, Any]:
        """Return for each facet (property to filter by) the values to choose from, each with a number of items.

        Such a value is a dict with `value` and `items`, the number of items that have the value and match the filters
        of all other facets. The result has the keys

        - `tags`: the 12 most frequent tags that are not chosen, then the chosen tags;
        - `different_tags`: the number of different tags of the items that match the filters of all other facets;
        - `sources`: all back ends;
        - `columns`: a dict from the name of a column to all its values;
        - `severity`: a dict with `bins` (the number of items in each twentieth of the NSFW severity, which is 0 to 1)
          and `unrated` (the number of items without an NSFW rating).
        """
        columns, filters, masks = self.columns, self.shown.filters, self.shown.masks
        others = _all_but(masks, "sources", self.item_count)
        rated = columns.severities[_all_but(masks, "severity", self.item_count) & ~np.isnan(columns.severities)]
        bins = np.clip(np.searchsorted(BIN_EDGES, rated, side="right") - 1, 0, BINS - 1)
        return {
            "tags": [*self._tag_rows(self._frequent_tags(12, filters.tags)), *self._tag_rows(filters.tags)],
            "different_tags": int(np.count_nonzero(self.shown.tag_counts)),
            "sources": [
                {"value": name, "items": int(np.count_nonzero(has & others))}
                for name, has in zip(columns.sources, columns.has_source, strict=True)
            ],
            "columns": {name: self._value_rows(name) for name in columns.value_columns},
            "severity": {
                "bins": np.bincount(bins, minlength=BINS).tolist(),
                "unrated": int(np.count_nonzero(_all_but(masks, "severity", self.item_count))) - len(rated),
            },
        }

    def find_tags(self, text: str) -> list[dict[str, Any]]:
        """Return the most frequent tags that contain `text`, ignoring case, each as a dict with `value` and `items`.

        `value` is the tag. `items` is the number of items that have the tag and match all filters other than the filter
        by tags.
        """
        wanted = text.strip().casefold()
        found = [number for number, name in enumerate(self.columns.tags) if wanted in name.casefold()]
        counts = self.shown.tag_counts
        best = sorted(found, key=lambda number: (-counts[number], self.columns.tags[number]))[:MAX_TAGS_FOUND]
        return [{"value": self.columns.tags[number], "items": int(counts[number])} for number in best]

    def _frequent_tags(self, most: int, without: tuple[str, ...]) -> Iterator[str]:
        counts = self.shown.tag_counts
        # More than needed, so that equal counts are in the order of the names.
        for number in np.argsort(-counts, kind="stable")[: most + len(without)].tolist():
            if counts[number] and self.columns.tags[number] not in without and most > 0:
                most -= 1
                yield self.columns.tags[number]

    def _tag_rows(self, names: Any) -> list[dict[str, Any]]:
        numbers = {name: self.columns.tags.index(name) for name in names if name in self.columns.tags}
        return [{"value": name, "items": int(self.shown.tag_counts[number])} for name, number in numbers.items()]

    def _value_rows(self, name: str) -> list[dict[str, Any]]:
        column = self.columns.value_columns[name]
        shown = _all_but(self.shown.masks, f"values:{name}", self.item_count)
        counts = np.bincount(column.codes[shown], minlength=len(column.values)).tolist()
        return [{"value": value, "items": items} for value, items in zip(column.values, counts, strict=True)]


def parts_version(folder: Path) -> PartsVersion:
    """Return a value that differs after the tables of the run in `folder` have changed.

    It consists of the name, size, time of change and inode number of each table file.
    """
    dataset, found = Dataset(folder), []
    for table in dataset.tables():
        for part in dataset.parts(table):
            with suppress(FileNotFoundError):
                stat = part.stat()
                found.append((f"{table}/{part.name}", stat.st_size, stat.st_mtime_ns, stat.st_ino))
    return tuple(found)


def _all(masks: Mapping[str, Mask], items: int) -> Mask:
    return _all_but(masks, "", items)


def _all_but(masks: Mapping[str, Mask], facet: str, items: int) -> Mask:
    """Return for each of `items` items whether it matches the filters of all facets other than `facet`.

    `masks` has for each facet with a filter one boolean per item: whether the item matches this filter.
    """
    found = np.ones(items, np.bool_)
    for name, mask in masks.items():
        if name != facet:
            found &= mask
    return found
