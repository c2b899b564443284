"""`lightmeter credits`: the balance of the account."""

from __future__ import annotations

import asyncio

import click

from lightmeter.cli.options import json_option
from lightmeter.cli.output import print_json
from lightmeter.client.client import Client
from lightmeter.errors import SettingsError, Unreachable
from lightmeter.planning.preflight import PREFLIGHT_TIMEOUTS, fetch_balance, require_api_key
from lightmeter.settings import read_settings


@click.command("credits")
@click.option("--base-url", metavar="URL", help="URL of the service (or LIGHTMETER_BASE_URL).")
@json_option
def command(base_url: str | None, as_json: bool) -> int:
    """Print the balance of the account; one credit is one cent. The request is free."""
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
