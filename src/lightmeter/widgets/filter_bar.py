"""The explorer's filters: tag, color, NSFW severity, status."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import ipywidgets as ipw
from traitlets import Unicode

from lightmeter.tables.arrow.color_names import color_to_hex
from lightmeter.ui.gallery_queries import Filters, SimilarItems, TagChoice

_COLOR_DISTANCES = (("nearly the same", 0.05), ("similar", 0.1), ("related", 0.18))
"""Choices of the maximum Oklab distance."""


class ColorField(ipw.ColorPicker):  # type: ignore[misc]
    """A color picker that accepts any text, so that an invalid color causes an error message."""

    value = Unicode("black", help="The color as picked or typed.").tag(sync=True)


class FilterBar:
    """Input fields for the filters of the gallery.

    Attributes:
        box: The fields as a widget.
        tag: A tag with its number of items, such as `cat (12)`, or a text to find in tags.
        by_color: Whether to filter by color.
        color: The color, as a name or `#rrggbb`.
        color_distance: Maximum distance from that color, in the color space Oklab.
        severity: NSFW severity, minimum and maximum.
        status: A status of items, such as `ok`; empty for all.
        clear: Button that resets all filters.
    """

    def __init__(self, tags: TagChoice, statuses: Mapping[str, int], on_change: Callable[[], None]) -> None:
        """Create the input fields of the gallery's filters.

        Args:
            tags: The tags to choose from.
            statuses: Status → number of items with that status.
            on_change: Called after each change of the filters.
        """
        self._tags = tags
        self._on_change = on_change
        self._similar: SimilarItems | None = None
        self._is_resetting = False
        self.tag = ipw.Combobox(
            options=tags.labels, placeholder="any", description="Tag", continuous_update=False, ensure_option=False
        )
        self.by_color = ipw.Checkbox(description="Colour", indent=False, layout=ipw.Layout(width="80px"))
        self.color = ColorField(value="#4a7fb5", concise=False, layout=ipw.Layout(width="130px"))
        self.color_distance = ipw.Dropdown(options=_COLOR_DISTANCES, value=0.1, layout=ipw.Layout(width="130px"))
        self.severity = ipw.FloatRangeSlider(
            value=(0.0, 1.0), min=0, max=1, step=0.05, description="NSFW", continuous_update=False
        )
        choices = [(f"all ({sum(statuses.values())})", "")]
        choices += [(f"{status.replace('_', ' ')} ({items})", status) for status, items in statuses.items()]
        self.status = ipw.Dropdown(options=choices, value="", description="Status")
        self.clear = ipw.Button(description="Clear", tooltip="Show all items again", layout=ipw.Layout(width="80px"))
        self.clear.on_click(lambda _: self.reset())
        for field in (self.tag, self.by_color, self.color, self.color_distance, self.severity, self.status):
            field.observe(lambda _: self._notify(), "value")
        color_fields = ipw.HBox(
            [self.by_color, self.color, self.color_distance], layout=ipw.Layout(margin="0 0 0 12px")
        )
        fields = [self.tag, color_fields, self.severity, self.status, self.clear]
        self.box = ipw.HBox(fields, layout=ipw.Layout(flex_flow="row wrap", align_items="center"))

    @property
    def filters(self) -> Filters:
        """The filters that the user has entered in the fields, for page 0 of the gallery.

        Raises:
            UsageError: The color is invalid.
        """
        tag, is_whole_tag = self._tags.parse(self.tag.value)
        low, high = self.severity.value
        return Filters(
            tag=tag,
            is_whole_tag=is_whole_tag,
            color=color_to_hex(self.color.value) if self.by_color.value else None,
            color_distance=self.color_distance.value,
            severity=(low, high),
            status=self.status.value or None,
            similar=self._similar,
        )

    def show_similar(self, similar: SimilarItems) -> None:
        """Limit the gallery to the items in `similar` that also match the filters in the fields."""
        self._similar = similar
        self._on_change()

    def reset(self) -> None:
        """Reset all filters, so that the gallery shows all items, and call `on_change` once."""
        self._is_resetting, self._similar = True, None
        self.tag.value, self.by_color.value, self.severity.value, self.status.value = "", False, (0.0, 1.0), ""
        self._is_resetting = False
        self._on_change()

    def _notify(self) -> None:
        if not self._is_resetting:
            self._on_change()
