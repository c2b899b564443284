"""`Explorer`: a notebook gallery of a run's items with filters."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from threading import RLock
from typing import Any

import ipywidgets as ipw

from lightmeter.api.run_result import Run
from lightmeter.html_report.thumbnails import Thumbnail, ThumbnailSource
from lightmeter.ui.background_job import view_loop
from lightmeter.ui.gallery_queries import Card, pages
from lightmeter.ui.run_data import GalleryPage, RunData
from lightmeter.widgets.background_job import error_html, show_errors_in
from lightmeter.widgets.card_grid import HEIGHT, CardGrid, ThumbnailCache
from lightmeter.widgets.card_html import card_html, detail_html, position_html
from lightmeter.widgets.filter_bar import FilterBar
from lightmeter.widgets.markup import STYLE


class Explorer:
    """A gallery of a run's items with filters, pages, and the details of a selected item.

    Likely unsafe pictures are blurred until the user chooses to see them: the browser gets at most 8 x 8 pixels.

    Attributes:
        box: The widget, to be placed in any layout.
        filters: The bar with the input fields for the filters.
        error: The error of the last click or change, as HTML; empty if there was none.
        page: The page of items shown.
        selected: The item whose details are shown, or None.
    """

    def __init__(self, run: Run | Path | str) -> None:
        """Create the gallery of a run, and show its first page.

        Args:
            run: The run, or its folder.

        Raises:
            JournalError: The folder holds no run.
        """
        self._data = RunData(run if isinstance(run, Run) else Run(Path(run)))
        self._thumbnails = ThumbnailCache()
        self._render_lock = RLock()  # thumbnails arrive in another thread than clicks
        self._loading: Future[None] | None = None
        self._sources: dict[str, ThumbnailSource] = {}
        self._entries: dict[str, list[dict[str, Any]]] = {}
        self._models: list[str | None] = []
        statuses = self._data.statuses()
        self._items = sum(statuses.values())
        self.selected: Card | None = None
        self.error = ipw.HTML()
        self._with_errors_shown = show_errors_in(self.error)
        self.filters = FilterBar(self._data.tags(), statuses, self._with_errors_shown(lambda: self.show_page(0)))
        self.page = GalleryPage(self.filters.filters, 0, ())
        self._build()
        self.show_page(0)

    def _build(self) -> None:
        self.show_blurred = ipw.Checkbox(description="Show blurred pictures", indent=False)
        self.previous = ipw.Button(description="Previous", layout=ipw.Layout(width="100px"))
        self.next = ipw.Button(description="Next", layout=ipw.Layout(width="100px"))
        self.close = ipw.Button(description="Close", layout=ipw.Layout(width="80px"))
        self.similar = ipw.Button(description="Similar", tooltip="Pictures most like this one; Clear shows all again")
        self.similar.layout.width = "80px"
        self.position, self.detail = ipw.HTML(), ipw.HTML()
        actions = ipw.HBox([self.close, self.similar])
        actions.layout.flex = self.detail.layout.flex = "none"  # else one would shrink the other
        self.show_blurred.observe(self._with_errors_shown(self._render), "value")
        self.previous.on_click(self._with_errors_shown(lambda: self.show_page(self.page.filters.page - 1)))
        self.next.on_click(self._with_errors_shown(lambda: self.show_page(self.page.filters.page + 1)))
        self.close.on_click(self._with_errors_shown(lambda: self.open(None)))
        self.similar.on_click(self._with_errors_shown(self.show_similar))
        self.card_grid = CardGrid(lambda card: self._with_errors_shown(lambda: self.open(card))())
        self._sidebar = ipw.VBox([actions, self.detail], layout=ipw.Layout(flex="0 0 380px", max_height=HEIGHT))
        self._sidebar.add_class("lm-detail")
        above = ipw.HBox([self.previous, self.next, self.position, self.show_blurred])
        above.layout = ipw.Layout(flex_flow="row wrap", align_items="center", grid_gap="8px")
        below = ipw.HBox(
            [self.card_grid.box, self._sidebar], layout=ipw.Layout(align_items="flex-start", grid_gap="12px")
        )
        self.box = ipw.VBox([ipw.HTML(STYLE), self.filters.box, self.error, above, below])
        self.box.add_class("lightmeter")

    def show_page(self, page: int) -> None:
        """Show page number `page` (from 0) of the gallery's items that match the filters."""
        page_data = self._data.page(replace(self.filters.filters, page=page))
        sources = self._data.sources(page_data.cards)
        with self._render_lock:
            self.page, self._sources, self.selected = page_data, sources, None
            self._render()
        if self._loading is not None:
            self._loading.cancel()
        self._loading = view_loop().start(self._thumbnails.load(list(sources.values()), lambda *_: self._render()))
        self._loading.add_done_callback(self._show_loading_error)

    def _show_loading_error(self, loading: Future[None]) -> None:
        if not loading.cancelled() and (error := loading.exception()) is not None:
            self.error.value = error_html(error)

    def open(self, card: Card | None) -> None:
        """Show the details of an item of the current page beside the gallery; None closes the details."""
        entries = {} if card is None else self._data.entries(card.item_id)
        models = [] if card is None else self._data.models(card.item_id)
        with self._render_lock:
            self.selected, self._entries, self._models = card, entries, models
            self._render()

    def show_similar(self) -> None:
        """Show only the items most similar to the selected item. Do nothing if no item with embeddings is selected."""
        if self.selected is not None and self._models:
            self.filters.show_similar(self._data.similar(self.selected, self._models[0]))

    def wait(self, timeout_s: float = 120.0) -> None:
        """Block until the thumbnails of the gallery's current page are loaded.

        Raises:
            TimeoutError: The thumbnails are not loaded within `timeout_s` seconds.
        """
        if self._loading is not None:
            self._loading.result(timeout_s)

    def _render(self) -> None:
        """Redraw the gallery: position line, cards, details, and the buttons."""
        with self._render_lock:
            current, last = self.page.filters.page, pages(self.page.items) - 1
            self.position.value = position_html(self.page.filters, self.page.items, self._items)
            self.previous.disabled, self.next.disabled = current == 0, current == last
            self.card_grid.show(self.page.cards, self.selected, self._card_html)
            self._sidebar.layout.display = "none" if self.selected is None else ""
            self.similar.layout.display = "" if self._models else "none"
            self.detail.value = "" if self.selected is None else self._detail_html(self.selected)

    def _card_html(self, card: Card) -> str:
        return card_html(card, self._thumbnail(card), show_blurred=self.show_blurred.value)

    def _detail_html(self, card: Card) -> str:
        interval_s = self._data.interval_s
        return detail_html(
            card, self._thumbnail(card), self._entries, interval_s=interval_s, show_blurred=self.show_blurred.value
        )

    def _thumbnail(self, card: Card) -> Thumbnail:
        return self._thumbnails.get(self._sources[card.item_id]) or Thumbnail()

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        bundle: dict[str, Any] = self.box._repr_mimebundle_(**kwargs)
        return {**bundle, "text/plain": repr(self)}

    def __repr__(self) -> str:
        return f"Explorer({str(self._data.folder)!r}: {self.page.items} of {self._items} items)"
