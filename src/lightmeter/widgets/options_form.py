"""The planner's form: what to ask, who to ask, how many frames, how much to spend."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import ipywidgets as ipw

from lightmeter.options import Options
from lightmeter.widgets.view.checkboxes import CheckboxGroup, FormChoices

__all__ = ["OptionsForm"]

_WIDE = {"description_width": "165px"}


class OptionsForm:
    """Input fields for the options of a run.

    Attributes:
        box: The form as a widget.
        features: A tick box for each feature; `backends` one for each back end.
        max_frames: Most frames of a video; `capture_interval` seconds between them.
        tag_score: Least tag score that is asked for.
        capped: Whether there is a budget; `budget` is it, in credits.
    """

    def __init__(self, given: Options, offer: FormChoices) -> None:
        self._given = given
        self._offer = offer
        self.features = _boxes(offer.features)
        self.backends = _boxes(offer.backends)
        self.max_frames = _number("Frames per video, 0: all", given.max_frames, least=0)
        self.capture_interval = _number("Seconds per frame", given.capture_interval, least=1)
        self.tag_score = ipw.BoundedFloatText(
            value=given.tag_score, min=0, max=1, step=0.05, description="Least tag score", style=_WIDE, layout=_field()
        )
        self.capped = ipw.Checkbox(value=given.budget is not None, description="Cap what is spent", indent=False)
        self.budget = _number("Budget in credits", given.budget or 0, least=0)
        self.budget.disabled = not self.capped.value
        self.capped.observe(lambda change: setattr(self.budget, "disabled", not change["new"]), "value")
        self.box = ipw.VBox(
            [
                ipw.HTML("<h4>Features</h4>"),
                _rows(self.features),
                ipw.HTML("<h4>Back ends</h4>"),
                _rows(self.backends),
                ipw.HTML("<h4>Videos and tags</h4>"),
                *(self.max_frames, self.capture_interval, self.tag_score),
                ipw.HTML("<h4>Budget</h4>"),
                *(self.capped, self.budget),
            ]
        )

    @property
    def options(self) -> Options:
        """The options as the form stands; what it does not show is as it was given."""
        return self._given.model_copy(
            update={
                "features": self._offer.features.choice(_ticked(self.features)),
                "backends": self._offer.backends.choice(_ticked(self.backends)),
                "max_frames": self.max_frames.value,
                "capture_interval": self.capture_interval.value,
                "tag_score": self.tag_score.value,
                "budget": self.budget.value if self.capped.value else None,
            }
        )

    @property
    def priced(self) -> Options:
        """The options with every tick named: what advice on a choice should start from."""
        features, backends = _ticked(self.features), _ticked(self.backends)
        return self.options.model_copy(
            update={
                "features": tuple(name for name in self.features if name in features),
                "backends": tuple(name for name in self.backends if name in backends),
            }
        )

    @property
    def validation_error(self) -> str | None:
        """Why the form cannot be asked as it stands, or None."""
        return self._offer.validation_error(_ticked(self.features), _ticked(self.backends))

    def on_change(self, changed: Callable[[], None]) -> None:
        """Call `changed` after each change of a field."""
        for field in self._fields():
            field.observe(lambda _: changed(), "value")

    def lock(self, locked: bool) -> None:  # noqa: FBT001 (says itself)
        """Let nobody change a field, or let them again."""
        for field in self._fields():
            field.disabled = locked
        self.budget.disabled = locked or not self.capped.value

    def _fields(self) -> Iterator[Any]:
        yield from self.features.values()
        yield from self.backends.values()
        yield from (self.max_frames, self.capture_interval, self.tag_score, self.capped, self.budget)


def _boxes(boxes: CheckboxGroup) -> dict[str, Any]:
    ticked = set(boxes.ticked)
    layout = ipw.Layout(width="140px")
    return {
        name: ipw.Checkbox(value=name in ticked, description=name, indent=False, layout=layout) for name in boxes.names
    }


def _ticked(boxes: dict[str, Any]) -> set[str]:
    return {name for name, box in boxes.items() if box.value}


def _number(description: str, value: int, *, least: int) -> Any:
    return ipw.BoundedIntText(
        value=value, min=least, max=1_000_000_000, description=description, style=_WIDE, layout=_field()
    )


def _field() -> Any:
    return ipw.Layout(width="290px")


def _rows(boxes: dict[str, Any]) -> Any:
    return ipw.HBox(list(boxes.values()), layout=ipw.Layout(flex_flow="row wrap"))
