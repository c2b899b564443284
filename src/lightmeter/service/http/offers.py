"""The back ends of GET /api/backends: those of this service with their prices, and those that are known elsewhere."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from lightmeter.models.response import BackendOffer, Backends
from lightmeter.pricing.rates import MILLICREDITS, RateTable

__all__ = ["offers"]

NOT_STARTED: Final = "This service was started without it: name it in --backends."
PROVIDER: Final = "It is a provider's, and this service calls no provider."


def offers(offered: Mapping[str, frozenset[str]], rates: RateTable, installed: Collection[str]) -> Backends:
    """All back ends: the available ones by name, then the others of the price table and those that are installed.

    Args:
        offered: Features by back end, of this service.
        rates: Prices.
        installed: Names of back ends that this service could be started with.
    """
    available = [
        BackendOffer(
            name=name,
            features={feature: _credits(rates, name, feature) for feature in sorted(features)},
            default=True,
            local=name in rates.local,
            available=True,
            reason=None,
        )
        for name, features in sorted(offered.items())
    ]
    missing = [
        BackendOffer(
            name=name,
            features={feature: _credits(rates, name, feature) for feature in sorted(rates.rates.get(name, {}))},
            default=False,
            local=name in rates.local,
            available=False,
            reason=NOT_STARTED if name in installed else PROVIDER,
        )
        for name in sorted({*rates.rates, *installed}.difference(offered))
    ]
    return Backends(backends=[*available, *missing])


def _credits(rates: RateTable, backend: str, feature: str) -> float:
    return rates.rates.get(backend, {}).get(feature, 0) / MILLICREDITS
