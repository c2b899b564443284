"""Choose the prices of a plan from the shipped table, the service's own list and the user's prices."""

from __future__ import annotations

import json
from collections.abc import Collection

from lightmeter.embedded_service import embedded_backends, embedded_rates, is_embedded
from lightmeter.errors import SettingsError
from lightmeter.journal.header import ALIASES
from lightmeter.options import DESCRIPTIONS, Options
from lightmeter.planning.preflight import (
    ServiceInfo,
    check_backends_offered,
    check_prompt_followed,
    no_feature_offered_error,
)
from lightmeter.pricing.rates import (
    DEMO,
    OwnPrices,
    RateTable,
    Rounding,
    active_pairs,
    default_rates,
    millicredits_per_image,
    read_own_prices,
)
from lightmeter.settings import Settings


def describe_own_prices(own: OwnPrices) -> str:
    """Return a phrase that names the back ends with the user's own prices, and the price file."""
    if own.demo:
        return "play money: the embedded service charges its own price table"
    return f"own prices of {', '.join(own.rates)}" + (f": {own.path}" if own.path else "")


def with_prices_from_settings(options: Options, settings: Settings) -> Options:
    """Return the options with the prices of the settings, unless the options have prices already.

    Play money (`demo`) is for the embedded service alone.

    Raises:
        SettingsError: the price file cannot be read or holds no prices; or the prices are play money, but the run uses
            another service.
    """
    embedded = is_embedded(options, settings)
    if options.prices is not None and options.prices.demo and not embedded:
        raise SettingsError("prices: demo is play money, which only the embedded service charges.")
    if options.prices is not None or settings.prices is None or (settings.prices == DEMO and not embedded):
        return options
    return options.model_copy(update={"prices": read_own_prices(settings.prices)})


def rates_for(options: Options, settings: Settings, service: ServiceInfo | None = None) -> RateTable:
    """Return the price table for the plan of a run with these options.

    Prices that a service lists with its back ends override the shipped table. The user's own prices override both. The
    embedded service charges the user's prices (`embedded_rates`).

    Args:
        options: The options of the run.
        settings: The user's settings.
        service: The back ends that the service reported; None if unknown.

    Raises:
        SettingsError: the price file that the settings name cannot be read or holds no prices.
    """
    shipped, own = default_rates(), with_prices_from_settings(options, settings).prices
    if is_embedded(options, settings):
        offered = ServiceInfo(backends=embedded_backends(settings, own), rounding=Rounding.IMAGE)
        return offered.rates(embedded_rates(own, settings))
    rates = shipped if service is None else service.rates(shipped)
    return rates if own is None else rates.with_own_prices(own)


def costs_nothing(options: Options, settings: Settings) -> bool:
    """Return whether a run with these options is free: local models of the embedded service, without own prices.

    Raises:
        SettingsError: an option cannot be priced.
    """
    if not is_embedded(options, settings):
        return False
    return not millicredits_per_image(rates_for(options, settings), options.backends, options.features)


def price_meta(options: Options, settings: Settings, service: ServiceInfo) -> dict[str, str]:
    """Return the prices of one image, in millicredits, and their rounding as name-value pairs for a journal's `meta`.

    The pairs hold:

    - the sum of the prices of all requested features
    - the price of each feature of each back end
    - the price to repeat the user's question (`--ask`) about an image after an invalid answer; 0 without a question
    - what the service rounds up to whole credits: the price of each image or of each request; empty if unknown
    - alias → name of the back end that answers, for the requested back ends whose name is an alias

    Args:
        options: The options of the run.
        settings: The user's settings.
        service: The back ends that the service reported.

    Raises:
        SettingsError: an option cannot be priced, the service lacks a back end, none offers a requested feature, or a
            back end would ignore the prompt.
    """
    check_backends_offered(options, settings, service)
    rates, prompt_chars = rates_for(options, settings, service), len(options.sent_prompt or "")
    try:
        active = active_pairs(rates, options.backends, options.features)
    except SettingsError as error:
        raise SettingsError(str(error), hint=" ".join(filter(None, (error.hint, service.note)))) from error
    prices = {
        f"{backend} {feature}": millicredits_per_image(rates, [backend], [feature], prompt_chars)
        for backend, feature in active
    }
    if not prices and (is_embedded(options, settings) or service.backends is not None):
        raise no_feature_offered_error(options, settings, rates)
    retry, describing = 0, [backend for backend, feature in active if feature == DESCRIPTIONS]
    check_prompt_followed(describing, options, settings, service)
    if options.ask is not None:
        if not describing:
            raise no_feature_offered_error(options.model_copy(update={"features": (DESCRIPTIONS,)}), settings, rates)
        retry = millicredits_per_image(rates, describing, [DESCRIPTIONS], options.ask.longest_prompt_chars)
    return {
        "price_per_image_milli": str(sum(prices.values())),
        "prices": json.dumps(prices),
        "retry_per_image_milli": str(retry),
        "rounding": rates.rounding or "",
        ALIASES: json.dumps(_aliases({backend for backend, _ in active}, options, settings, service)),
    }


def _aliases(names: Collection[str], options: Options, settings: Settings, service: ServiceInfo) -> dict[str, str]:
    offers = embedded_backends(settings) if is_embedded(options, settings) else service.backends or ()
    real_names = {offer.name.lower(): offer.alias_of for offer in offers}
    return {name: real for name in names if (real := real_names.get(name)) is not None}
