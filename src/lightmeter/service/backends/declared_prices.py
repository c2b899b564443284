"""Prices that a back end of another package declares."""

from __future__ import annotations

from collections.abc import Mapping

from lightmeter.errors import SettingsError
from lightmeter.pricing.rates import read_own_prices
from lightmeter.service.backends.base import Backend


def prices_of(backend: Backend) -> Mapping[str, int]:
    """Return a back end's prices for an image or video frame, feature → millicredits; empty if it declares none.

    They come from the attribute `prices` of its class: feature → credits, with at most three decimal places.

    Raises:
        SettingsError: a price is invalid, a feature has no price, or a price is for a feature that it lacks.
    """
    declared = getattr(backend, "prices", None)
    if declared is None:
        return {}
    own = read_own_prices({"unit": "credits", "backends": {backend.name: {"prices": declared}}})
    prices = {} if own is None else own.rates[backend.name]
    if set(prices) != backend.features:
        raise SettingsError(
            f"Back end {backend.name!r} offers {', '.join(sorted(backend.features))}, and its prices are for "
            f"{', '.join(sorted(prices)) or 'nothing'}.",
            hint='Give its class one price for each feature, such as prices = {"tags": 0.15}.',
        )
    return prices
