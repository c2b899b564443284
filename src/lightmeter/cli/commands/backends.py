"""`lightmeter backends` and `lightmeter credits`: list what a service offers, and print the balance of the account."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import click
from rich.table import Table

from lightmeter.cli.options import base_url_option, json_option
from lightmeter.cli.print_results import make_console, print_json
from lightmeter.client.client import Client
from lightmeter.embedded_service import embedded_backends
from lightmeter.errors import SettingsError, Unreachable
from lightmeter.planning.preflight import PREFLIGHT_TIMEOUTS, fetch_balance, require_api_key
from lightmeter.pricing.rates import MILLICREDITS, default_rates
from lightmeter.settings import Settings, read_settings
from lightmeter.wire.response import BackendOffer

_JSON_FIELDS: Final = (*("name", "features", "default", "local", "available", "reason"), "model", "licence", "alias_of")


@click.command("backends")
@base_url_option
@click.option("--available", "only_available", is_flag=True, help="List available back ends only.")
@json_option
def backends_command(base_url: str | None, only_available: bool, as_json: bool) -> int:
    """List the back ends of a service: features with prices, model, licence, and the reason if one is not available.

    Prices are in credits per image or video frame, before rounding. A request that names no back end uses the ones
    marked with *. Listing is free, loads no model and calls no provider.

    \b
    Examples:
      lightmeter backends
      lightmeter backends --available --json
      lightmeter backends --base-url https://api.example.org
    """
    settings = read_settings()
    url = base_url or settings.base_url
    offers: Sequence[BackendOffer] | None = (
        embedded_backends(settings) if url is None else asyncio.run(_fetch_offers(url, settings))
    )
    if offers is None:
        click.echo(
            f"{url} does not list its back ends. These are the published prices of {default_rates().as_of}.", err=True
        )
        offers = _published_offers()
    shown = [offer for offer in offers if offer.available or not only_available]
    if as_json:
        print_json({"backends": [offer.model_dump(mode="json", include=set(_JSON_FIELDS)) for offer in shown]})
    else:
        _print_offers(shown)
    return 0


async def _fetch_offers(url: str, settings: Settings) -> tuple[BackendOffer, ...] | None:
    async with Client(url, require_api_key(url, settings), timeouts=PREFLIGHT_TIMEOUTS, proxy=settings.proxy) as client:
        await fetch_balance(client)  # its errors explain a wrong address or key
        return await client.backends()


def _published_offers() -> list[BackendOffer]:
    """Return the hosted service's back ends with their prices, read from the price table in this package."""
    rates = default_rates()
    return [
        BackendOffer(
            name=name,
            features={feature: price / MILLICREDITS for feature, price in sorted(prices.items())},
            default=name in rates.defaults,
        )
        for name, prices in sorted(rates.rates.items())
        if name not in rates.local
    ]


def _print_offers(offers: Sequence[BackendOffer]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("back end", "features (credits)", "model", "licence", "available"):
        table.add_column(title, overflow="fold")
    for offer in offers:
        table.add_row(*_table_row(offer))
    make_console().print(table)


def _table_row(offer: BackendOffer) -> tuple[str, ...]:
    features = ", ".join(f"{feature} {price:g}" for feature, price in offer.features.items())
    model = offer.model or ""
    if offer.alias_of:
        model = f"answered by {offer.alias_of}: {model}" if model else f"answered by {offer.alias_of}"
    available = "yes" if offer.available else f"no: {offer.reason or 'the service does not say why'}"
    return offer.name + (" *" if offer.default else ""), features, model, offer.licence or "", available


@click.command("credits")
@click.option("--base-url", metavar="URL", help="URL of the service (or LIGHTMETER_BASE_URL).")
@json_option
def credits_command(base_url: str | None, as_json: bool) -> int:
    """Print the balance of the account in credits; one credit is one cent. The request is free."""
    settings = read_settings()
    url = base_url or settings.base_url
    if url is None:
        raise SettingsError("No service is named.", hint="Use --base-url URL, or set LIGHTMETER_BASE_URL.")
    key = require_api_key(url, settings)

    async def fetch() -> int:
        async with Client(url, key, timeouts=PREFLIGHT_TIMEOUTS, proxy=settings.proxy) as client:
            balance = await fetch_balance(client)
        if balance is None:
            raise Unreachable(f"{url} asks to slow down.", hint="Try again later.")
        return balance

    balance = asyncio.run(fetch())
    if as_json:
        print_json({"credits": balance})
    else:
        click.echo(balance)
    return 0
