"""`lightmeter serve`: the analysis service."""

from __future__ import annotations

import asyncio
import logging
import signal
from typing import Any

import click

from lightmeter.pricing.rates import Rounding
from lightmeter.service.app import DEFAULT_WORKERS, ServiceConfig, start

__all__ = ["command"]


def _accounts(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> dict[str, int]:
    accounts = {}
    for text in value:
        name, _, credits_ = text.rpartition("=")
        if not name or not credits_.isdigit():
            raise click.BadParameter("wants NAME=CREDITS, such as mykey=500.", ctx, param)
        accounts[name] = int(credits_)
    return accounts


@click.command("serve")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8080, show_default=True, type=click.IntRange(0, 65535), help="0 picks a free one.")
@click.option("--database", default="sqlite:///lightmeter.db", show_default=True, help="Where it remembers.")
@click.option("--key", "accounts", multiple=True, metavar="NAME=CREDITS", callback=_accounts, help="A key to let in.")
@click.option("--allow-private", is_flag=True, help="Fetch from private addresses and any port too.")
@click.option("--backends", metavar="A,B", help="Back ends to offer; none: all local ones.")
@click.option(
    "--workers",
    default=DEFAULT_WORKERS,
    show_default="two for each core",
    type=click.IntRange(1, 256),
    help="Assets decoded and looked at at once.",
)
@click.option(
    "--rounding", type=click.Choice([each.value for each in Rounding]), default="image", help="Where charges round up."
)
def command(host: str, port: int, backends: str | None, rounding: str, **options: Any) -> int:
    """Start the analysis service: POST /api/fetch, GET /api/response/<id>, GET /api/credits.

    Prints `listening on http://HOST:PORT` once it is ready. SIGTERM and Ctrl-C let running requests finish.
    --key NAME=CREDITS makes an account with so many credits if it is missing; NAME is the key that clients send
    as `X-API-Key: Token NAME`. It is stored hashed and never logged.

    \b
    Example:
      lightmeter serve --port 8080 --key mykey=500 --allow-private
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    config = ServiceConfig(
        backends=tuple(name.strip() for name in backends.split(",") if name.strip()) if backends else None,
        rounding=Rounding(rounding),
        **options,
    )
    asyncio.run(_serve(config, host, port))
    return 0


async def _serve(config: ServiceConfig, host: str, port: int) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, stop.set)
    service = await start(config, host, port)
    click.echo(f"listening on {service.base_url}")
    try:
        await stop.wait()
    finally:
        await service.close()
