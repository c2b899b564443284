"""The planner's form for the options of a run, and the choices that it offers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import ipywidgets as ipw

from lightmeter.options import REQUEST_OPTIONS, Options
from lightmeter.pricing.rates import RateTable
from lightmeter.wire.constants import EXTRA_FEATURES, FEATURES


@dataclass(frozen=True, slots=True)
class CheckboxGroup:
    """Checkboxes for an option of a run whose value is a list of names: the features or the back ends.

    Attributes:
        names: Names with a checkbox.
        initial: The option's value when the form was created.
        empty_means_all: Whether an empty list means all of `names` but `extra`; if false, the service then chooses.
        extra: Names that an empty list does not include.
    """

    names: tuple[str, ...]
    initial: tuple[str, ...]
    empty_means_all: bool
    extra: tuple[str, ...] = ()

    @property
    def initially_checked(self) -> tuple[str, ...]:
        """Names (features or back ends) whose checkboxes are checked when the form is created."""
        if self.initial or not self.empty_means_all:
            return self.initial
        return tuple(name for name in self.names if name not in self.extra)

    def option_value(self, checked: Collection[str]) -> tuple[str, ...]:
        """Return the value of the option (a list of names) for the names `checked`.

        Return the initial value if no checkbox was changed, because only a run with equal options can be resumed.
        """
        if set(checked) == set(self.initially_checked):
            return self.initial
        unchanged = tuple(name for name in self.initial if name in checked)
        return (*unchanged, *(name for name in self.names if name in checked and name not in unchanged))


@dataclass(frozen=True, slots=True)
class FormChoices:
    """The features and back ends that the planner's form offers.

    Attributes:
        embedded: Whether the run uses the embedded service, for which at least one back end must be checked.
    """

    features: CheckboxGroup
    backends: CheckboxGroup
    embedded: bool

    def validation_error(self, features: Collection[str], backends: Collection[str]) -> str | None:
        """Return a message to the user if no feature is checked, or no back end for an embedded service; else None."""
        if not features:
            return "Tick at least one feature."
        if not backends and self.embedded:
            return "Tick at least one back end."
        return None


def form_choices(rates: RateTable, options: Options, *, embedded: bool) -> FormChoices:
    """Return the features and back ends that the planner's form offers.

    The embedded service offers its own back ends; any other service is assumed to offer all that have a price.

    Args:
        rates: The price table.
        options: Initial options; their features and back ends are always offered.
        embedded: Whether the run uses the embedded service.
    """
    hosted_first = tuple(sorted(rates.rates, key=lambda name: (name in rates.local, name)))
    backends = rates.defaults if embedded else hosted_first
    offered = {feature for backend in backends for feature in rates.rates[backend]}
    features = tuple(name for name in (*FEATURES, *EXTRA_FEATURES) if name in offered)
    return FormChoices(
        CheckboxGroup(_union(features, options.features), options.features, empty_means_all=True, extra=EXTRA_FEATURES),
        CheckboxGroup(_union(backends, options.backends), options.backends, empty_means_all=embedded),
        embedded,
    )


def needs_new_answers(planned: Options, wanted: Options) -> bool:
    """Whether `wanted` differs from `planned` in options sent with requests, so that cached answers are of no use."""
    return any(getattr(planned, name) != getattr(wanted, name) for name in REQUEST_OPTIONS)


class OptionsForm:
    """Form with the options of a run. Apart from the attributes below, each field has its option's name as attribute.

    Attributes:
        box: The form as a widget.
        features: Feature name → its checkbox.
        backends: Back end name → its checkbox.
        has_budget: Checkbox that enables the field `budget`; without it, spending has no cap.
    """

    def __init__(self, initial: Options, choices: FormChoices) -> None:
        self._initial = initial
        self._choices = choices
        self.features = _checkboxes(choices.features)
        self.backends = _checkboxes(choices.backends)
        self.max_frames = _number_field("Frames per video, 0: all", initial.max_frames, minimum=0)
        self.capture_interval = _number_field("Seconds per frame", initial.capture_interval, minimum=1)
        self.tag_score = ipw.BoundedFloatText(
            value=initial.tag_score, min=0, max=1, step=0.05, description="Least tag score", **_field_look()
        )
        self.has_budget = ipw.Checkbox(value=initial.budget is not None, description="Cap what is spent", indent=False)
        self.budget = _number_field("Budget in credits", initial.budget or 0, minimum=0)
        self.budget.disabled = not self.has_budget.value
        self.has_budget.observe(lambda change: setattr(self.budget, "disabled", not change["new"]), "value")
        self.box = ipw.VBox(
            [
                ipw.HTML("<h4>Features</h4>"),
                _wrapped_row(self.features),
                ipw.HTML("<h4>Back ends</h4>"),
                _wrapped_row(self.backends),
                ipw.HTML("<h4>Videos and tags</h4>"),
                *(self.max_frames, self.capture_interval, self.tag_score),
                ipw.HTML("<h4>Budget</h4>"),
                *(self.has_budget, self.budget),
            ]
        )

    @property
    def options(self) -> Options:
        """The options of a run as entered in the form; options without a field keep their initial value."""
        return self._initial.model_copy(
            update={
                "features": self._choices.features.option_value(_checked(self.features)),
                "backends": self._choices.backends.option_value(_checked(self.backends)),
                "max_frames": self.max_frames.value,
                "capture_interval": self.capture_interval.value,
                "tag_score": self.tag_score.value,
                "budget": self.budget.value if self.has_budget.value else None,
            }
        )

    @property
    def explicit_options(self) -> Options:
        """The options in the form, with all checked features and back ends listed, even if an empty list means all."""
        features, backends = _checked(self.features), _checked(self.backends)
        return self.options.model_copy(
            update={
                "features": tuple(name for name in self.features if name in features),
                "backends": tuple(name for name in self.backends if name in backends),
            }
        )

    @property
    def validation_error(self) -> str | None:
        """Message for the user if no feature is checked, or no back end for the embedded service; else None."""
        return self._choices.validation_error(_checked(self.features), _checked(self.backends))

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call `callback` after each change of a field in the form."""
        for field in self._fields():
            field.observe(lambda _: callback(), "value")

    def lock(self, *, locked: bool) -> None:
        """Disable all fields of the form if `locked`; else enable them."""
        for field in self._fields():
            field.disabled = locked
        self.budget.disabled = locked or not self.has_budget.value

    def _fields(self) -> Iterator[Any]:
        yield from self.features.values()
        yield from self.backends.values()
        yield from (self.max_frames, self.capture_interval, self.tag_score, self.has_budget, self.budget)


def _checkboxes(group: CheckboxGroup) -> dict[str, Any]:
    checked, layout = set(group.initially_checked), ipw.Layout(width="140px")
    return {
        name: ipw.Checkbox(value=name in checked, description=name, indent=False, layout=layout) for name in group.names
    }


def _checked(checkboxes: dict[str, Any]) -> set[str]:
    return {name for name, checkbox in checkboxes.items() if checkbox.value}


def _number_field(description: str, value: int, *, minimum: int) -> Any:
    return ipw.BoundedIntText(value=value, min=minimum, max=1_000_000_000, description=description, **_field_look())


def _field_look() -> dict[str, Any]:
    return {"style": {"description_width": "165px"}, "layout": ipw.Layout(width="290px")}


def _wrapped_row(checkboxes: dict[str, Any]) -> Any:
    return ipw.HBox(list(checkboxes.values()), layout=ipw.Layout(flex_flow="row wrap"))


def _union(names: Sequence[str], more: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*names, *more)))
