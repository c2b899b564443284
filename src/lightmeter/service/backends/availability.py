"""What a service offers: which back ends answer a request, and what to say of those that do not. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lightmeter.models.request import AnalyzeRequest
from lightmeter.models.vocabulary import EXTRA_FEATURES, FEATURES

__all__ = ["BackendAvailability"]


@dataclass(frozen=True, slots=True)
class BackendAvailability:
    """The back ends of a service.

    Attributes:
        features: Features by back end, of those that are available.
        defaults: Available back ends that a request without `backend` uses.
        aliases: Names for which an available back end answers.
        reasons: Why a known back end is not available, as a sentence, by name.
    """

    features: Mapping[str, frozenset[str]]
    defaults: tuple[str, ...]
    aliases: Mapping[str, str] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)

    @property
    def all_features(self) -> frozenset[str]:
        """What any available back end offers."""
        return frozenset().union(*self.features.values())

    def effective_request(self, request: AnalyzeRequest) -> AnalyzeRequest:
        """The request as it is done and charged: no back ends means the defaults, no features means all of theirs.

        Names of other back ends stand for those that answer in their place. Back ends that offer nothing of what is
        requested, or are gone since it was requested, are left out; there may be none left.
        """
        features = frozenset(request.feature or FEATURES)
        named = dict.fromkeys(self.aliases.get(name, name) for name in request.backend or self.defaults)
        backends = [name for name in named if self.features.get(name, frozenset()) & features]
        served = sorted(feature for feature in features if any(feature in self.features[name] for name in backends))
        return request.model_copy(update={"backend": backends, "feature": served})

    def unavailable_errors(self, request: AnalyzeRequest) -> tuple[str, ...]:
        """What a request names and gets nothing for, a sentence each: back ends and features that are not here.

        With no features named, all that the back ends offer is requested, and nothing is missing.
        """
        sentences = [
            self._unavailable(name) for name in request.backend if self.aliases.get(name, name) not in self.features
        ]
        served = self.effective_request(request).feature
        for feature in request.feature:
            if feature not in (*FEATURES, *EXTRA_FEATURES) and feature not in self.all_features:
                sentences.append(f"Feature {feature} does not exist.")
            elif feature not in self.all_features:
                sentences.append(f"No available back end serves {feature}.")
            elif feature not in served:
                asked = "None of the back ends asked for" if request.backend else "No default back end"
                sentences.append(f"{asked} serves {feature}.")
        return tuple(sentences)

    def _unavailable(self, name: str) -> str:
        reason = self.reasons.get(self.aliases.get(name, name))
        sentence = f"Back end {name} is not available at this service."
        return sentence if reason is None else f"{sentence} {reason}"
