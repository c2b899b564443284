"""The gallery's grid of cards, and a cache of thumbnails. A card shows one item with its picture and results."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import ipywidgets as ipw

from lightmeter.html_report.thumbnails import Thumbnail, ThumbnailSource, make_thumbnails
from lightmeter.ui.gallery_queries import PAGE_ROWS, Card

HEIGHT: Final = "800px"
"""Height of the gallery, which scrolls separately, and of the details beside it."""

MAX_CACHED: Final = 512
"""Thumbnails in memory, of about 20 KB each."""


class CardSlot:
    """One cell of the gallery's grid: a card (one item with picture and results), and the button for its details.

    Attributes:
        box: The cell as a widget; contains `html` (the card) and `button`.
        card: The card shown; None if the cell is hidden.
    """

    def __init__(self, on_open: Callable[[Card], None]) -> None:
        self.card: Card | None = None
        self.html = ipw.HTML()
        self.button = ipw.Button(description="Details", layout=ipw.Layout(width="100%", margin="0"))
        self.button.on_click(lambda _: on_open(self.card) if self.card else None)
        self.box = ipw.VBox([self.html, self.button])
        self.box.add_class("lm-card")

    def show(self, card: Card | None, html: str, *, is_selected: bool) -> None:
        """Show `card`, rendered as `html`, in this cell; hide the cell if `card` is None. Outline a selected card."""
        self.card, self.html.value = card, html
        self.box.layout.display = "none" if card is None else ""
        self.button.tooltip = "" if card is None else f"All findings for {card.name}"
        if is_selected:
            self.box.add_class("lm-chosen")
        else:
            self.box.remove_class("lm-chosen")


class CardGrid:
    """The gallery's grid, which shows one page of cards; the cells are created once and reused for each page.

    Attributes:
        box: The grid as a widget.
        slots: The cells of the grid.
    """

    def __init__(self, on_open: Callable[[Card], None]) -> None:
        self.slots = [CardSlot(on_open) for _ in range(PAGE_ROWS)]
        columns = "repeat(auto-fill, minmax(170px, 1fr))"
        layout = ipw.Layout(grid_template_columns=columns, grid_gap="10px", flex="1 1 380px", min_width="0")
        layout.max_height, layout.overflow = HEIGHT, "hidden auto"  # the details stay visible beside any card
        self.box = ipw.GridBox([slot.box for slot in self.slots], layout=layout)

    def show(self, cards: Sequence[Card], selected: Card | None, to_html: Callable[[Card], str]) -> None:
        """Show the cards of a page; only changed cells are sent to the browser.

        Args:
            cards: The cards of the page.
            selected: The card whose details are open, or None.
            to_html: Returns a card as HTML.
        """
        selected_id = None if selected is None else selected.item_id
        for position, slot in enumerate(self.slots):
            if position < len(cards):
                card = cards[position]
                slot.show(card, to_html(card), is_selected=card.item_id == selected_id)
            else:
                slot.show(None, "", is_selected=False)


class ThumbnailCache:
    """In-memory cache of thumbnails: `load` makes missing thumbnails; a full cache drops the least recently loaded."""

    def __init__(self, max_cached: int = MAX_CACHED) -> None:
        self._max_cached = max_cached
        self._thumbnails: OrderedDict[ThumbnailSource, Thumbnail] = OrderedDict()

    def get(self, source: ThumbnailSource) -> Thumbnail | None:
        """Return the cached thumbnail of a picture or video; None if it is not in the cache."""
        return self._thumbnails.get(source)

    async def load(
        self, sources: Iterable[ThumbnailSource], on_loaded: Callable[[ThumbnailSource, Thumbnail], None]
    ) -> None:
        """Make the thumbnails that are not in the cache, and add them to it.

        Args:
            sources: Locations of the pictures and videos.
            on_loaded: Called with each thumbnail, cached or new, as soon as it is ready. If none could be made,
                `jpeg` is None and `reason` says why.
        """

        def store(source: ThumbnailSource, thumbnail: Thumbnail) -> None:
            self._thumbnails[source] = thumbnail
            self._thumbnails.move_to_end(source)
            while len(self._thumbnails) > self._max_cached:
                self._thumbnails.popitem(last=False)
            on_loaded(source, thumbnail)

        missing = []
        for source in dict.fromkeys(sources):
            if (thumbnail := self._thumbnails.get(source)) is None:
                missing.append(source)
            else:
                store(source, thumbnail)
        await make_thumbnails(missing, store, fetch=True)
