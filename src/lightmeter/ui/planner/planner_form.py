"""Holds the values of the planner's form and the choices that it offers, and converts the values to run options."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from lightmeter.errors import UsageError
from lightmeter.options import DESCRIPTIONS, REQUEST_OPTIONS, DuplicateRule, Options, parse_options
from lightmeter.pricing.rates import RateTable
from lightmeter.wire.constants import EXTRA_FEATURES, FEATURES, ROLES


@dataclass(frozen=True, slots=True)
class CheckboxGroup:
    """The checkboxes for one option whose value is a list of names: the features or the back ends.

    Attributes:
        names: Names with a checkbox.
        initial: The option's value when the form was created.
        empty_means_all: What an empty list as the option's value means. True: all of `names` except `extra`. False: the
            service chooses.
        extra: Names that an empty list does not include, even if `empty_means_all` is true.
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
        """Return the value of the option, a list of names, if the user has checked the names `checked`.

        If no checkbox differs from its initial state, return exactly the initial value, because a run can be resumed
        only with equal options.
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
        """Return a message to the user if too few names are checked; else None.

        At least one feature must be checked, and for the embedded service at least one back end. `features` and
        `backends` are the checked names.
        """
        if not features:
            return "Tick at least one feature."
        if not backends and self.embedded:
            return "Tick at least one back end."
        return None


def form_choices(rates: RateTable, options: Options, *, embedded: bool) -> FormChoices:
    """Return the features and back ends that the planner's form offers.

    The embedded service has its own back ends. Any other service is assumed to have all back ends in the price table.

    Args:
        rates: The price table.
        options: Initial options. The form always offers their features and back ends.
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
    """Return whether `wanted` and `planned` differ in options that are sent with requests.

    If so, stored answers to requests with the options `planned` do not fit the options `wanted`.
    """
    return any(getattr(planned, name) != getattr(wanted, name) for name in REQUEST_OPTIONS)


class FormValues(BaseModel):
    """The values of the planner's form, as the page sends them. `lightmeter.options.Options` describes the fields.

    Attributes:
        features: The checked features.
        backends: The checked back ends.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    features: tuple[str, ...]
    backends: tuple[str, ...]
    max_frames: int
    capture_interval: int
    tag_score: float
    duplicates: DuplicateRule
    sample: str
    sample_seed: int
    budget: int | None
    role: str
    language: str
    prompt: str


_SAME: Final = ("max_frames", "capture_interval", "tag_score", "duplicates", "sample", "sample_seed", "budget")
"""Fields of the form whose value is used unchanged as the option of the same name."""


def initial_values(options: Options, choices: FormChoices) -> FormValues:
    """Return the initial values of the form for `options`.

    The initially checked features and back ends come from `choices`.
    """
    return FormValues(
        features=choices.features.initially_checked,
        backends=choices.backends.initially_checked,
        role=options.role,
        language=options.language,
        prompt=options.prompt or "",
        **{name: getattr(options, name) for name in _SAME},
    )


def form_options(initial: Options, choices: FormChoices, values: FormValues) -> Options:
    """Return the options that the values of the form stand for. An option without a field keeps its initial value.

    Args:
        initial: The options that the form began with.
        choices: The features and back ends that the form offers.
        values: The values of the form.

    Raises:
        UsageError: No feature is checked, or no back end although the embedded service needs one.
        SettingsError: A value is not allowed; the message names it.
    """
    problem = choices.validation_error(values.features, values.backends)
    if problem is not None:
        raise UsageError(problem)
    changes = {
        "features": choices.features.option_value(values.features),
        "backends": choices.backends.option_value(values.backends),
        **{name: getattr(values, name) for name in _SAME},
    }
    if DESCRIPTIONS in values.features:  # else the page hides these fields
        changes |= {"role": values.role, "language": values.language}
        changes |= {"prompt": values.prompt or None} if initial.ask is None else {}
    return parse_options(**{**initial.model_dump(), **changes})


def with_ticked_names(options: Options, choices: FormChoices, values: FormValues) -> Options:
    """Return a copy of `options` that names every checked feature and back end.

    In `options` itself, an empty list can stand for all of them.

    Args:
        options: The options of the form.
        choices: The features and back ends that the form offers.
        values: The values of the form.
    """
    features = tuple(name for name in choices.features.names if name in values.features)
    backends = tuple(name for name in choices.backends.names if name in values.backends)
    return options.model_copy(update={"features": features, "backends": backends})


def _union(names: Sequence[str], more: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*names, *more)))


def choices_json(rates: RateTable, options: Options, choices: FormChoices) -> dict[str, Any]:
    """Return what the form offers, for the page: features, back ends with prices, roles that write descriptions.

    The keys are `features` (names), `backends` (dicts with `name`, `local`, whether it calls no provider, and
    `millicredits`, feature → price for an image), `embedded` (whether the run uses the embedded service), `roles`,
    `has_question` (whether there is a question, `--ask`) and `sends_frames` (whether frames are sent in place of
    videos).

    Args:
        rates: The price table.
        options: The options that the form began with.
        choices: The features and back ends that the form offers.
    """
    return {
        "features": list(choices.features.names),
        "backends": [
            {"name": name, "local": name in rates.local, "millicredits": dict(rates.rates.get(name, {}))}
            for name in choices.backends.names
        ],
        "embedded": choices.embedded,
        "roles": list(ROLES),
        "has_question": options.ask is not None,
        "sends_frames": options.video == "frames",
    }
