"""`Explorer`: the items of a run as a gallery, filtered by what was found in them."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from threading import RLock
from typing import Any

import ipywidgets as ipw

from lightmeter.api.run_result import Run
from lightmeter.html_report.thumbnails import Thumbnail, ThumbnailSource
from lightmeter.widgets.background_job import widget_loop
from lightmeter.widgets.callbacks import show_errors_in
from lightmeter.widgets.card_grid import HEIGHT, CardGrid
from lightmeter.widgets.filters import FilterBar
from lightmeter.widgets.run_data import GalleryPage, RunData
from lightmeter.widgets.thumbnails import ThumbnailCache
from lightmeter.widgets.view.cards import card_html, detail_html, where_html
from lightmeter.widgets.view.gallery import Card, pages
from lightmeter.widgets.view.markup import STYLE
from lightmeter.widgets.view.planner import error_html

__all__ = ["Explorer"]


class Explorer:
    """A gallery over a run's tables, with filters, pages, and everything that was found in one item.

    Pictures that are likely unsafe are blurred until they are asked for: then no more than 8 pixels a side are sent.

    Attributes:
        box: The widget; put it wherever widgets go.
        filters: The input fields.
        problem: What the last click or change raised, as text; empty if nothing.
        page: What is shown.
        chosen: The item whose details are shown, or None.
    """

    def __init__(self, run: Run | Path | str) -> None:
        """Open a run.

        Args:
            run: The run, or its folder.

        Raises:
            JournalError: there is no run there.
        """
        self._catalog = RunData(run if isinstance(run, Run) else Run(Path(run)))
        self._thumbnails = ThumbnailCache()
        self._painting = RLock()  # pictures arrive in another thread than clicks
        self._loading: Future[None] | None = None
        self._sources: dict[str, ThumbnailSource] = {}
        self._entries: dict[str, list[dict[str, Any]]] = {}
        self._models: list[str | None] = []
        statuses = self._catalog.statuses()
        self._items = sum(statuses.values())
        self.chosen: Card | None = None
        self.problem = ipw.HTML()
        self._guarded = show_errors_in(self.problem)
        self.filters = FilterBar(self._catalog.tags(), statuses, self._guarded(lambda: self.show(0)))
        self.page = GalleryPage(self.filters.filters, 0, ())
        self._build()
        self.show(0)

    def _build(self) -> None:
        self.show_blurred = ipw.Checkbox(description="Show blurred pictures", indent=False)
        self.back = ipw.Button(description="Previous", layout=ipw.Layout(width="100px"))
        self.forward = ipw.Button(description="Next", layout=ipw.Layout(width="100px"))
        self.close = ipw.Button(description="Close", layout=ipw.Layout(width="80px"))
        self.similar = ipw.Button(description="Similar", tooltip="Pictures most like this one; Clear shows all again")
        self.similar.layout.width = "80px"
        self.where, self.detail = ipw.HTML(), ipw.HTML()
        actions = ipw.HBox([self.close, self.similar])
        actions.layout.flex = self.detail.layout.flex = "none"  # else the one squeezes the other
        self.show_blurred.observe(self._guarded(self._paint), "value")
        self.back.on_click(self._guarded(lambda: self.show(self.page.filters.page - 1)))
        self.forward.on_click(self._guarded(lambda: self.show(self.page.filters.page + 1)))
        self.close.on_click(self._guarded(lambda: self.open(None)))
        self.similar.on_click(self._guarded(self.show_similar))
        self.card_grid = CardGrid(lambda card: self._guarded(lambda: self.open(card))())
        self._side = ipw.VBox([actions, self.detail], layout=ipw.Layout(flex="0 0 380px", max_height=HEIGHT))
        self._side.add_class("lm-detail")
        above = ipw.HBox([self.back, self.forward, self.where, self.show_blurred])
        above.layout = ipw.Layout(flex_flow="row wrap", align_items="center", grid_gap="8px")
        below = ipw.HBox([self.card_grid.box, self._side], layout=ipw.Layout(align_items="flex-start", grid_gap="12px"))
        self.box = ipw.VBox([ipw.HTML(STYLE), self.filters.box, self.problem, above, below])
        self.box.add_class("lightmeter")

    def show(self, page: int) -> None:
        """Show a page of the items that the filters leave; the first is 0."""
        turned = self._catalog.page(replace(self.filters.filters, page=page))
        sources = self._catalog.sources(turned.cards)
        with self._painting:
            self.page, self._sources, self.chosen = turned, sources, None
            self._paint()
        if self._loading is not None:
            self._loading.cancel()
        self._loading = widget_loop().start(self._thumbnails.load(list(sources.values()), lambda *_: self._paint()))
        self._loading.add_done_callback(self._say_loading_failed)

    def _say_loading_failed(self, loading: Future[None]) -> None:
        if not loading.cancelled() and (error := loading.exception()) is not None:
            self.problem.value = error_html(error)

    def open(self, card: Card | None) -> None:
        """Show everything that was found in an item of this page; None shows the gallery alone."""
        entries = {} if card is None else self._catalog.entries(card.item_id)
        models = [] if card is None else self._catalog.models(card.item_id)
        with self._painting:
            self.chosen, self._entries, self._models = card, entries, models
            self._paint()

    def show_similar(self) -> None:
        """Show the items most like the chosen one; of several models, by the first."""
        if self.chosen is not None and self._models:
            self.filters.show_similar(self._catalog.similar(self.chosen, self._models[0]))

    def wait(self, timeout_s: float = 120.0) -> None:
        """Block until the pictures of this page have come.

        Raises:
            TimeoutError: they have not within `timeout_s` seconds.
        """
        if self._loading is not None:
            self._loading.result(timeout_s)

    def _paint(self) -> None:
        """Bring all that is shown up to date."""
        with self._painting:
            at, last = self.page.filters.page, pages(self.page.items) - 1
            self.where.value = where_html(self.page.filters, self.page.items, self._items)
            self.back.disabled, self.forward.disabled = at == 0, at == last
            self.card_grid.put(self.page.cards, self.chosen, self._card)
            self._side.layout.display = "none" if self.chosen is None else ""
            self.similar.layout.display = "" if self._models else "none"
            self.detail.value = "" if self.chosen is None else self._about(self.chosen)

    def _card(self, card: Card) -> str:
        return card_html(card, self._picture(card), show_blurred=self.show_blurred.value)

    def _about(self, card: Card) -> str:
        interval_s = self._catalog.interval_s
        return detail_html(
            card, self._picture(card), self._entries, interval_s=interval_s, show_blurred=self.show_blurred.value
        )

    def _picture(self, card: Card) -> Thumbnail:
        return self._thumbnails.have(self._sources[card.item_id]) or Thumbnail()

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        bundle: dict[str, Any] = self.box._repr_mimebundle_(**kwargs)
        return {**bundle, "text/plain": repr(self)}

    def __repr__(self) -> str:
        return f"Explorer({str(self._catalog.folder)!r}: {self.page.items} of {self._items} items)"
