"""Creates the list of back ends for GET /api/backends and for the command `lightmeter backends`."""

from __future__ import annotations

from collections.abc import Collection

from lightmeter.pricing.rates import MILLICREDITS, RateTable
from lightmeter.service.backends.catalog import BackendCatalog
from lightmeter.wire.response import BackendOffer, Backends

NOT_STARTED = "This service was started without it: name it in --backends."


def list_backends(catalog: BackendCatalog, rates: RateTable, loaded: Collection[str] | None = None) -> Backends:
    """Return all known back ends with their prices: first the available ones, then the unavailable ones.

    Both groups are sorted by name.

    Args:
        catalog: Known back ends.
        rates: Price table. If it has no price for a feature, the feature is listed with the price 0.
        loaded: Names of the back ends that the service has loaded. All other back ends are listed as unavailable. None:
            the catalog alone decides which back ends are available.
    """
    offers = []
    for entry in catalog.entries.values():
        name, reason = entry.alias_of or entry.name, entry.reason
        if reason is None and loaded is not None and name not in loaded:
            reason = NOT_STARTED
        prices = rates.rates.get(name, {})
        offer = BackendOffer(
            name=entry.name,
            features={feature: prices.get(feature, 0) / MILLICREDITS for feature in sorted(entry.features)},
            default=entry.default and reason is None,
            local=entry.local,
            available=reason is None,
            reason=reason,
            model=entry.model or None,
            licence=entry.licence or None,
            alias_of=entry.alias_of,
            follows_prompt=entry.follows_prompt if "descriptions" in entry.features else None,
        )
        offers.append(offer)
    return Backends(backends=sorted(offers, key=lambda offer: (not offer.available, offer.name)))
