"""What the explorer reads of a run: answers of DuckDB over its tables, and where local files lie."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lightmeter.api.run_result import Run
from lightmeter.html_report.thumbnails import ThumbnailSource
from lightmeter.journal.store import open_read_only
from lightmeter.tables import queries
from lightmeter.tables.similar import similar
from lightmeter.widgets.view.cards import ENTRIES, MAX_ENTRIES
from lightmeter.widgets.view.gallery import (
    COLORS_OF,
    PAGE_ROWS,
    STATUS_COUNTS,
    TAG_COUNTS,
    TAGS_OF,
    Card,
    Filters,
    SimilarItems,
    TagChoice,
    cards,
    count_query,
    page_query,
    with_details,
)

__all__ = ["MAX_SIMILAR", "GalleryPage", "RunData"]

MAX_SIMILAR: Final = 2 * PAGE_ROWS
"""Beyond two pages hardly anything is alike."""


@dataclass(frozen=True, slots=True)
class GalleryPage:
    """One page of the gallery.

    Attributes:
        filters: What it was asked with; its page is one that there is.
        items: How many items these filters leave, on all pages.
        cards: Those of this page.
    """

    filters: Filters
    items: int
    cards: tuple[Card, ...]


class RunData:
    """A run's tables, asked anew each time, so that a run that goes on is seen as it stands.

    Attributes:
        folder: The run's.
        interval_s: Seconds between captured frames.
    """

    def __init__(self, run: Run) -> None:
        self.folder: Path = run.folder
        self.interval_s: int = run.header.options.capture_interval

    def statuses(self) -> dict[str, int]:
        """Items by status, most first."""
        return {row["status"]: row["items"] for row in self._ask(STATUS_COUNTS)}

    def tags(self) -> TagChoice:
        """The most frequent tags."""
        return TagChoice({row["name"]: row["items"] for row in self._ask(TAG_COUNTS)})

    def page(self, filters: Filters) -> GalleryPage:
        """The items of one page, with what their cards show; a page beyond the last is the last."""
        count = count_query(filters)
        ((items),) = (row["items"] for row in self._ask(count.text, count.params))
        within = filters.on_page(filters.page, items)
        query = page_query(within)
        shown = cards(self._ask(query.text, query.params))
        ids = [card.item_id for card in shown]
        full = with_details(shown, self._ask(TAGS_OF, [ids]), self._ask(COLORS_OF, [ids]))
        return GalleryPage(within, items, tuple(full))

    def entries(self, item_id: str) -> dict[str, list[dict[str, Any]]]:
        """What each table says of one item, whole first, then frame by frame; at most one more than is shown."""
        return {
            table: self._ask(
                f'SELECT frame, {_names(columns)} FROM "{table}" WHERE item_id = ? '  # noqa: S608 (names of ours)
                f"ORDER BY frame NULLS FIRST LIMIT {MAX_ENTRIES + 1}",
                [item_id],
            )
            for table, columns in ENTRIES.items()
        }

    def models(self, item_id: str) -> list[str | None]:
        """The models that an item has embeddings of; None stands for one without a name."""
        query = "SELECT DISTINCT model FROM embeddings WHERE item_id = ? ORDER BY model"
        return [row["model"] for row in self._ask(query, [item_id])]

    def similar(self, card: Card, model: str | None) -> SimilarItems:
        """The items most like the one of a card."""
        found = similar(self.folder, card.item_id, most=MAX_SIMILAR, model=model)
        return SimilarItems(card.name, tuple(map(str, found.column("item_id").to_pylist())))

    def sources(self, shown: Sequence[Card]) -> dict[str, ThumbnailSource]:
        """Where the picture of each item is: a local file, or its URL."""
        with open_read_only(self.folder) as db:
            found = db.execute(
                "SELECT item_id, path FROM items WHERE item_id IN (SELECT value FROM json_each(?))",
                (json.dumps([card.item_id for card in shown]),),
            )
            paths = dict(found)
        return {card.item_id: ThumbnailSource(card.url, paths.get(card.item_id)) for card in shown}

    def _ask(self, query: str, params: Sequence[Any] = ()) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = queries.sql(self.folder, query, params).to_pylist()
        return rows


def _names(columns: Sequence[str]) -> str:
    return ", ".join(f'"{column}"' for column in columns)
