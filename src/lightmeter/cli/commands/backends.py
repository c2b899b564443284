"""`lightmeter backends`: who can be asked, for what, and for how much."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Final

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lightmeter.cli.options import json_option
from lightmeter.cli.terminal import PLAIN_WIDTH, print_json
from lightmeter.client.client import Client
from lightmeter.embedded_service import embedded_backends
from lightmeter.models.response import BackendOffer
from lightmeter.planning.preflight import PREFLIGHT_TIMEOUTS, fetch_balance, require_api_key
from lightmeter.pricing.rates import MILLICREDITS, default_rates
from lightmeter.settings import Settings, read_settings

__all__ = ["command"]

_LISTED: Final = (*("name", "features", "default", "local", "available", "reason"), "model", "licence", "alias_of")


@click.command("backends")
@click.option("--base-url", metavar="URL", help="The service (or LIGHTMETER_BASE_URL); none: the embedded one.")
@click.option("--available", "only_available", is_flag=True, help="Leave out what cannot be asked now.")
@json_option
def command(base_url: str | None, only_available: bool, as_json: bool) -> int:
    """List the back ends of a service: features with their price, model, licence, and why one is not available.

    Prices are credits for each image or video frame, before rounding. A back end marked with * is used where a
    request names none. Listing is free, loads no model and calls no provider.

    \b
    Examples:
      lightmeter backends
      lightmeter backends --available --json
      lightmeter backends --base-url https://api.example.org
    """
    settings = read_settings()
    where = base_url or settings.base_url
    offers: Sequence[BackendOffer] | None = (
        embedded_backends(settings) if where is None else asyncio.run(_asked(where, settings))
    )
    if offers is None:
        click.echo(
            f"{where} does not list its back ends. These are the published prices of {default_rates().as_of}.", err=True
        )
        offers = _published()
    shown = [offer for offer in offers if offer.available or not only_available]
    if as_json:
        print_json({"backends": [offer.model_dump(mode="json", include=set(_LISTED)) for offer in shown]})
    else:
        _print(shown)
    return 0


async def _asked(where: str, settings: Settings) -> tuple[BackendOffer, ...] | None:
    async with Client(
        where, require_api_key(where, settings), timeouts=PREFLIGHT_TIMEOUTS, proxy=settings.proxy
    ) as client:
        await fetch_balance(client)  # whose errors say what is wrong with the address or the key
        return await client.backends()


def _published() -> list[BackendOffer]:
    """The back ends of the hosted service as the shipped price table has them."""
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


def _print(offers: Sequence[BackendOffer]) -> None:
    console = Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH, highlight=False)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("back end", "features (credits)", "model", "licence", "available"):
        table.add_column(title, overflow="fold")
    for offer in offers:
        table.add_row(*map(Text, _row(offer)))  # as Text, square brackets are no markup
    console.print(table)


def _row(offer: BackendOffer) -> tuple[str, ...]:
    features = ", ".join(f"{feature} {price:g}" for feature, price in offer.features.items())
    model = offer.model or ""
    if offer.alias_of:
        model = f"answered by {offer.alias_of}: {model}" if model else f"answered by {offer.alias_of}"
    available = "yes" if offer.available else f"no: {offer.reason or 'the service does not say why'}"
    return offer.name + (" *" if offer.default else ""), features, model, offer.licence or "", available
