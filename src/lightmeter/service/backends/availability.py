"""Selects the available back ends for a request, and writes error messages about unavailable ones. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lightmeter.wire.constants import EXTRA_FEATURES, FEATURES
from lightmeter.wire.request import AnalyzeRequest


@dataclass(frozen=True, slots=True)
class BackendAvailability:
    """Available back ends of a service (models and providers that analyze pictures), and why others are unavailable.

    Attributes:
        features: Name of an available back end → features that it offers, such as `tags`.
        defaults: Available back ends that a request without `backend` uses.
        aliases: Alias → available back end that the alias stands for.
        reasons: Unavailable back end → sentence that says why it is unavailable.
    """

    features: Mapping[str, frozenset[str]]
    defaults: tuple[str, ...]
    aliases: Mapping[str, str] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)

    @property
    def all_features(self) -> frozenset[str]:
        """Features, such as `tags`, that at least one available back end offers."""
        return frozenset().union(*self.features.values())

    def effective_request(self, request: AnalyzeRequest) -> AnalyzeRequest:
        """Return a copy of the request with the back ends and features that the service processes and charges.

        If the request names no back end, the default back ends are filled in; if it names no feature, all features of
        its back ends except `embeddings`. Aliases are resolved. Back ends that are unavailable or offer none of the
        features are removed, so the copy may name no back end at all.
        """
        features = frozenset(request.feature or FEATURES)
        requested = dict.fromkeys(self.aliases.get(name, name) for name in request.backend or self.defaults)
        backends = [name for name in requested if self.features.get(name, frozenset()) & features]
        served = sorted(feature for feature in features if any(feature in self.features[name] for name in backends))
        return request.model_copy(update={"backend": backends, "feature": served})

    def unavailable_errors(self, request: AnalyzeRequest) -> tuple[str, ...]:
        """Return an error sentence for each back end and feature that a request names and the service lacks.

        A request that names no feature has no error about features, because it gets whatever its back ends offer.
        """
        sentences = [
            self._unavailable_error(name)
            for name in request.backend
            if self.aliases.get(name, name) not in self.features
        ]
        served = self.effective_request(request).feature
        for feature in request.feature:
            if feature not in (*FEATURES, *EXTRA_FEATURES) and feature not in self.all_features:
                sentences.append(f"Feature {feature} does not exist.")
            elif feature not in self.all_features:
                sentences.append(f"No available back end serves {feature}.")
            elif feature not in served:
                subject = "None of the back ends asked for" if request.backend else "No default back end"
                sentences.append(f"{subject} serves {feature}.")
        return tuple(sentences)

    def _unavailable_error(self, name: str) -> str:
        reason = self.reasons.get(self.aliases.get(name, name))
        sentence = f"Back end {name} is not available at this service."
        return sentence if reason is None else f"{sentence} {reason}"
