"""Reads what the gallery `Explorer` shows: rows of a run's tables, and paths of local files from the run's journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lightmeter.api.run_result import Run
from lightmeter.html_report.load import thumbnail_sources
from lightmeter.html_report.model import Row, with_tags_and_colors
from lightmeter.html_report.queries import ITEM_COLORS, ITEM_TAGS
from lightmeter.html_report.thumbnails import ThumbnailSource
from lightmeter.journal.queries.items import item_paths
from lightmeter.journal.store import open_read_only
from lightmeter.tables.query.duckdb_query import sql
from lightmeter.tables.query.similar import similar
from lightmeter.ui.gallery_queries import (
    COLORS_PER_CARD,
    PAGE_ROWS,
    STATUS_COUNTS,
    TAG_COUNTS,
    TAGS_PER_CARD,
    Card,
    Filters,
    SimilarItems,
    TagChoice,
    count_query,
    page_query,
)

MAX_ENTRIES: Final = 200
"""Maximum number of rows shown per table and item."""

DETAIL_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "tags": ("name", "score", "source"),
    "colors": ("hex", "pixel_fraction", "score", "source"),
    "nsfw": ("label", "score", "likelihood", "severity", "source"),
    "descriptions": ("description", "source"),
    "faces": ("face", "gender", "age_low", "age_high", "source"),
    "texts": ("text", "score", "source"),
    "brands": ("name", "score", "source"),
    "prechecks": ("check", "severity", "message"),
}
"""Tables with rows about an item → the columns that its details show."""

MAX_SIMILAR: Final = 2 * PAGE_ROWS
"""Maximum number of similar items: beyond two pages, items are hardly similar."""


@dataclass(frozen=True, slots=True)
class GalleryPage:
    """One page of the gallery.

    Attributes:
        filters: The filters, with the number of this page.
        items: Number of items that match the filters, on all pages together.
        cards: The items of this page.
    """

    filters: Filters
    items: int
    cards: tuple[Card, ...]


class RunData:
    """What the gallery shows of a run. Each method reads the tables anew, because the run may be in progress.

    Attributes:
        folder: The run's folder.
        interval_s: Seconds between captured frames of a video.
    """

    def __init__(self, run: Run) -> None:
        self.folder: Path = run.folder
        self.interval_s: int = run.header.options.capture_interval

    def statuses(self) -> dict[str, int]:
        """Return status → number of items of the run, largest number first."""
        return {row["status"]: row["items"] for row in self._query(STATUS_COUNTS)}

    def tags(self) -> TagChoice:
        """Return the most frequent tags of the run, with the number of items of each."""
        return TagChoice({row["name"]: row["items"] for row in self._query(TAG_COUNTS)})

    def page(self, filters: Filters) -> GalleryPage:
        """Return the gallery page `filters.page`, or the last page if there are fewer, with tags and colors."""
        items = self._query(*count_query(filters))[0]["items"]
        page_filters = filters.on_page(filters.page, items)
        cards = [Card(**row) for row in self._query(*page_query(page_filters))]
        ids = [card.item_id for card in cards]
        tags = self._query(ITEM_TAGS, {"ids": ids, "most": TAGS_PER_CARD})
        colors = self._query(ITEM_COLORS, {"ids": ids, "most": COLORS_PER_CARD})
        return GalleryPage(page_filters, items, tuple(with_tags_and_colors(cards, tags, colors)))

    def entries(self, item_id: str) -> dict[str, list[Row]]:
        """Return table name → the first rows of that table about an item; rows about the whole item precede frames.

        A list has at most `MAX_ENTRIES` + 1 rows, so that the caller notices if there are more than `MAX_ENTRIES`.
        """
        return {
            table: self._query(
                f"FROM {table} WHERE item_id = ? ORDER BY frame NULLS FIRST LIMIT {MAX_ENTRIES + 1}", [item_id]
            )
            for table in DETAIL_COLUMNS
        }

    def models(self, item_id: str) -> list[str | None]:
        """Return the names of the models that computed embeddings of an item; None is a model without a name."""
        query = "SELECT DISTINCT model FROM embeddings WHERE item_id = ? ORDER BY model"
        return [row["model"] for row in self._query(query, [item_id])]

    def similar(self, card: Card, model: str | None) -> SimilarItems:
        """Return the items most similar to the item of `card`, compared by the embeddings that `model` computed."""
        found = similar(self.folder, card.item_id, most=MAX_SIMILAR, model=model)
        return SimilarItems(card.name, tuple(map(str, found.column("item_id").to_pylist())))

    def sources(self, shown: Sequence[Card]) -> dict[str, ThumbnailSource]:
        """Return item id → where the item's thumbnail comes from."""
        with open_read_only(self.folder) as db:
            paths = item_paths(db, [card.item_id for card in shown])
        return thumbnail_sources(self.folder, shown, paths)

    def _query(self, query: str, params: Sequence[Any] | Mapping[str, Any] = ()) -> list[Row]:
        rows: list[Row] = sql(self.folder, query, params).to_pylist()
        return rows
