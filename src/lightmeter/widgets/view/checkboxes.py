"""Tick boxes for what may be asked, and back: what no name means, and that ticking back changes nothing."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from lightmeter.models.vocabulary import EXTRA_FEATURES, FEATURES
from lightmeter.options import REQUEST_OPTIONS, Options
from lightmeter.pricing.rates import RateTable

__all__ = ["CheckboxGroup", "FormChoices", "form_choices", "needs_new_answers"]


@dataclass(frozen=True, slots=True)
class CheckboxGroup:
    """A row of tick boxes.

    Attributes:
        names: One box each.
        given: The names the user's code gave.
        none_means_all: Whether no name stands for all of `names`, without `extra`; else for a choice made elsewhere.
        extra: Names that are asked for by name only.
    """

    names: tuple[str, ...]
    given: tuple[str, ...]
    none_means_all: bool
    extra: tuple[str, ...] = ()

    @property
    def ticked(self) -> tuple[str, ...]:
        """The boxes that are ticked to begin with."""
        if self.given or not self.none_means_all:
            return self.given
        return tuple(name for name in self.names if name not in self.extra)

    def choice(self, ticked: Collection[str]) -> tuple[str, ...]:
        """The option that stands for these ticks: exactly `given` where they mean the same, so that a run goes on."""
        if set(ticked) == set(self.ticked):
            return self.given
        kept = tuple(name for name in self.given if name in ticked)
        return (*kept, *(name for name in self.names if name in ticked and name not in kept))


@dataclass(frozen=True, slots=True)
class FormChoices:
    """What can be ticked.

    Attributes:
        features: What to ask for.
        backends: Who to ask.
        embedded: Whether the embedded service is asked: it has no account whose defaults would choose back ends.
    """

    features: CheckboxGroup
    backends: CheckboxGroup
    embedded: bool

    def validation_error(self, features: Collection[str], backends: Collection[str]) -> str | None:
        """Why these ticks cannot be asked for, or None."""
        if not features:
            return "Tick at least one feature."
        if not backends and self.embedded:
            return "Tick at least one back end."
        return None


def form_choices(rates: RateTable, options: Options, *, embedded: bool) -> FormChoices:
    """What the service of a run may be asked, with what `options` ask already.

    The embedded service has its own few back ends; another one is taken to have all of the price table, those of the
    hosted service first.
    """
    hosted_first = tuple(sorted(rates.rates, key=lambda name: (name in rates.local, name)))
    backends = rates.defaults if embedded else hosted_first
    served = {feature for backend in backends for feature in rates.rates[backend]}
    features = tuple(name for name in (*FEATURES, *EXTRA_FEATURES) if name in served)
    return FormChoices(
        CheckboxGroup(_with(features, options.features), options.features, none_means_all=True, extra=EXTRA_FEATURES),
        CheckboxGroup(_with(backends, options.backends), options.backends, none_means_all=embedded),
        embedded,
    )


def needs_new_answers(planned: Options, wanted: Options) -> bool:
    """Whether an answer to one set of options is none to the other."""
    return any(getattr(planned, name) != getattr(wanted, name) for name in REQUEST_OPTIONS)


def _with(names: Sequence[str], given: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*names, *given)))
