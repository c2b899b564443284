"""The explorer's filters: tag, colour, NSFW severity, status."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import ipywidgets as ipw
from traitlets import Unicode

from lightmeter.tables.color_names import color_to_hex
from lightmeter.widgets.view.gallery import Filters, SimilarItems, TagChoice

__all__ = ["FilterBar"]


class ColourField(ipw.ColorPicker):  # type: ignore[misc]
    """A colour picker that takes any text: what is no colour is said by whoever reads it, not lost on the way."""

    value = Unicode("black", help="The colour, as it was picked or typed.").tag(sync=True)


_FAR = (("nearly the same", 0.05), ("similar", 0.1), ("related", 0.18))
"""Oklab distances in words."""


class FilterBar:
    """Input fields for filters.

    Attributes:
        box: The fields as a widget.
        tag: A tag with its count from the list, or any text to look for inside tags.
        by_colour: Whether to filter by colour; `colour` is it, `near` how near.
        severity: NSFW severity, from and to.
        status: One status, or None for all.
        clear: Sets all of them back.
    """

    def __init__(self, tags: TagChoice, statuses: Mapping[str, int], changed: Callable[[], None]) -> None:
        self._tags = tags
        self._changed = changed
        self._similar: SimilarItems | None = None
        self._quiet = False
        self.tag = ipw.Combobox(
            options=tags.labels, placeholder="any", description="Tag", continuous_update=False, ensure_option=False
        )
        self.by_colour = ipw.Checkbox(description="Colour", indent=False, layout=ipw.Layout(width="80px"))
        self.colour = ColourField(value="#4a7fb5", concise=False, layout=ipw.Layout(width="130px"))
        self.near = ipw.Dropdown(options=_FAR, value=0.1, layout=ipw.Layout(width="130px"))
        self.severity = ipw.FloatRangeSlider(
            value=(0.0, 1.0), min=0, max=1, step=0.05, description="NSFW", continuous_update=False
        )
        choices = [(f"all ({sum(statuses.values())})", "")]
        choices += [(f"{status.replace('_', ' ')} ({items})", status) for status, items in statuses.items()]
        self.status = ipw.Dropdown(options=choices, value="", description="Status")
        self.clear = ipw.Button(description="Clear", tooltip="Show all items again", layout=ipw.Layout(width="80px"))
        self.clear.on_click(lambda _: self.reset())
        for field in (self.tag, self.by_colour, self.colour, self.near, self.severity, self.status):
            field.observe(lambda _: self._tell(), "value")
        colour = ipw.HBox([self.by_colour, self.colour, self.near], layout=ipw.Layout(margin="0 0 0 12px"))
        fields = [self.tag, colour, self.severity, self.status, self.clear]
        self.box = ipw.HBox(fields, layout=ipw.Layout(flex_flow="row wrap", align_items="center"))

    @property
    def filters(self) -> Filters:
        """The filters as the fields stand, on the first page.

        Raises:
            UsageError: the colour is none.
        """
        tag, whole = self._tags.filter(self.tag.value)
        low, high = self.severity.value
        return Filters(
            tag=tag,
            whole_tag=whole,
            colour=color_to_hex(self.colour.value) if self.by_colour.value else None,
            distance=self.near.value,
            severity=(low, high),
            status=self.status.value or None,
            similar=self._similar,
        )

    def show_similar(self, similar: SimilarItems) -> None:
        """Leave only these items, and of them what the other filters leave."""
        self._similar = similar
        self._changed()

    def reset(self) -> None:
        """Set all filters back, as one change."""
        self._quiet, self._similar = True, None
        self.tag.value, self.by_colour.value, self.severity.value, self.status.value = "", False, (0.0, 1.0), ""
        self._quiet = False
        self._changed()

    def _tell(self) -> None:
        if not self._quiet:
            self._changed()
