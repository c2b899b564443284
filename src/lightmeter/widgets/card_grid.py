"""Places for cards: made once, filled anew for each page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import ipywidgets as ipw

from lightmeter.widgets.view.gallery import PAGE_ROWS, Card

__all__ = ["HEIGHT", "CardGrid", "CardSlot"]

HEIGHT: Final = "800px"
"""Of the gallery, which scrolls by itself, and of the details beside it."""


class CardSlot:
    """A place for one card and the button that opens it.

    Attributes:
        box: It as a widget; `html` is the card, `button` opens it.
        card: What stands there, or None.
    """

    def __init__(self, opened: Callable[[Card], None]) -> None:
        self.card: Card | None = None
        self.html = ipw.HTML()
        self.button = ipw.Button(description="Details", layout=ipw.Layout(width="100%", margin="0"))
        self.button.on_click(lambda _: opened(self.card) if self.card else None)
        self.box = ipw.VBox([self.html, self.button])
        self.box.add_class("lm-card")

    def put(self, card: Card | None, *, chosen: bool) -> None:
        """Place a card, or clear the place."""
        self.card = card
        self.box.layout.display = "none" if card is None else ""
        self.button.tooltip = "" if card is None else f"All that was found in {card.name}"
        if chosen:
            self.box.add_class("lm-chosen")
        else:
            self.box.remove_class("lm-chosen")


class CardGrid:
    """A page of cards.

    Attributes:
        box: It as a widget.
        slots: Its places.
    """

    def __init__(self, opened: Callable[[Card], None]) -> None:
        self.slots = [CardSlot(opened) for _ in range(PAGE_ROWS)]
        columns = "repeat(auto-fill, minmax(170px, 1fr))"
        layout = ipw.Layout(grid_template_columns=columns, grid_gap="10px", flex="1 1 380px", min_width="0")
        layout.max_height, layout.overflow = HEIGHT, "hidden auto"  # the details stay beside a card far down
        self.box = ipw.GridBox([slot.box for slot in self.slots], layout=layout)

    def put(self, cards: Sequence[Card], chosen: Card | None, html: Callable[[Card], str]) -> None:
        """Show these cards; only what changed is sent to the browser."""
        for place, slot in enumerate(self.slots):
            card = cards[place] if place < len(cards) else None
            slot.put(card, chosen=card is not None and chosen is not None and card.item_id == chosen.item_id)
            slot.html.value = "" if card is None else html(card)
