"""`ExplorerView`: the view-model of the gallery of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import traitlets

from lightmeter.api.run_result import Run
from lightmeter.html_report.thumbnails import ThumbnailSource
from lightmeter.ui.gallery_queries import Filters
from lightmeter.ui.item_requests import ItemRequests
from lightmeter.ui.run_data import RunData
from lightmeter.ui.view_model import request


class ExplorerView(ItemRequests):
    """The gallery of a run.

    Attributes:
        items: Number of items of the run.
    """

    items = traitlets.Int(0).tag(sync=True)

    def __init__(self, run: Run | Path | str) -> None:
        """Create the gallery of a run, or of the run in a folder.

        Raises:
            JournalError: The folder holds no run.
        """
        super().__init__()
        self._data = RunData(run if isinstance(run, Run) else Run(Path(run)))
        self.items = sum(self._data.statuses().values())

    def thumbnail_sources(self, item_ids: Sequence[str]) -> dict[str, ThumbnailSource]:  # noqa: D102 (inherited)
        return self._data.sources([self._cards[item] for item in item_ids if item in self._cards])

    @request
    def page(self, number: int) -> dict[str, Any]:
        """Return the page `number` (from 0) of the gallery: `cards`, one for each item, and `items`, their number."""
        page = self._data.page(Filters(page=number))
        self._cards = {card.item_id: card for card in page.cards}
        return {"cards": [{"item_id": card.item_id, "name": card.name} for card in page.cards], "items": page.items}
