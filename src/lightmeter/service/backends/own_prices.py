"""Prices that a back end brings along, as one of another package does."""

from __future__ import annotations

from collections.abc import Mapping

from lightmeter.errors import SettingsError
from lightmeter.pricing.rates import read_own_prices
from lightmeter.service.backends.base import Backend

__all__ = ["prices_of"]


def prices_of(backend: Backend) -> Mapping[str, int]:
    """What a back end takes for an image or a video frame: feature → millicredits; empty if it does not say.

    It says so in an attribute `prices` of its class: feature → credits, with at most three digits behind the point.

    Raises:
        SettingsError: a price is none, one of its features has no price, or a price is for a feature it lacks.
    """
    said = getattr(backend, "prices", None)
    if said is None:
        return {}
    own = read_own_prices({"unit": "credits", "backends": {backend.name: {"prices": said}}})
    prices = {} if own is None else own.rates[backend.name]
    if set(prices) != backend.features:
        raise SettingsError(
            f"Back end {backend.name!r} offers {', '.join(sorted(backend.features))}, and its prices are for "
            f"{', '.join(sorted(prices)) or 'nothing'}.",
            hint='Give its class one price for each feature, such as prices = {"tags": 0.15}.',
        )
    return prices
