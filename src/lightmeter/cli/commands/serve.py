"""`lightmeter serve`: start the analysis service."""

from __future__ import annotations

import asyncio
from textwrap import wrap
from typing import Any

import click

from lightmeter.cli.serve_options import serve_options, service_config, stop_on_signals
from lightmeter.service.app import ServiceConfig, start_service
from lightmeter.service.faults.config import FAULT_KINDS, NO_FAULTS, Faults


def _accounts(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> dict[str, int]:
    accounts = {}
    for text in value:
        name, _, credits_ = text.rpartition("=")
        if not name or not credits_.isdigit():
            raise click.BadParameter("must be NAME=CREDITS, such as mykey=500.", ctx, param)
        accounts[name] = int(credits_)
    return accounts


def _faults(ctx: click.Context, param: click.Parameter, value: str | None) -> Faults:  # noqa: ARG001 (click's own)
    return NO_FAULTS if value is None else Faults.read(value)


def _fault_help() -> str:
    """Return the help on all faults; click leaves the lines after the mark as they are."""
    lines = [
        "\b",
        "Faults, to rehearse failures: the keys of a JSON object or of a TOML file. A table in place of a value,",
        'such as "drop-after": {"chance": 0.05, "on": "poll"}, has further settings; most faults have "on":',
        '"submit", "poll", "credits", "all" or a list of them.',
    ]
    for name, kind in FAULT_KINDS.items():
        lines += [
            f'  "{name}": {kind.example}',
            *wrap(kind.help, 76, initial_indent=" " * 6, subsequent_indent=" " * 6, break_on_hyphens=False),
        ]
    lines += [
        '  "seed": 7',
        "      Seed of all random choices: the same requests in the same order meet the same faults.",
    ]
    return "\n".join(lines)


@click.command("serve", epilog=_fault_help())
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", default=8080, show_default=True, type=click.IntRange(0, 65535), help="Port; 0 selects a free one."
)
@click.option(
    "--key",
    "accounts",
    multiple=True,
    metavar="NAME=CREDITS",
    callback=_accounts,
    help="API key to accept, with its credits.",
)
@click.option(
    "--faults",
    "--fault",
    metavar="FILE|JSON",
    callback=_faults,
    help="Inject faults: a TOML or JSON file, or inline JSON, with the faults below.",
)
@serve_options
def command(host: str, port: int, accounts: dict[str, int], faults: Faults, **options: Any) -> int:
    """Start the analysis service: POST /api/fetch, GET /api/response/<id>, GET /api/credits.

    Prints `listening on http://HOST:PORT` when it is ready. On SIGTERM and Ctrl-C, running requests are completed.
    --key NAME=CREDITS creates an account with these credits unless it exists; NAME is the key that clients send
    as `X-API-Key: Token NAME`. It is stored hashed and never logged. For accounts with generated keys see
    `lightmeter keys`.

    An SQLite file serves one process. With --database postgresql://… any number of `lightmeter serve` and
    `lightmeter worker` processes share the work; if one of them dies, the others take over its work.

    \b
    Examples:
      lightmeter serve --port 8080 --key mykey=500 --allow-private
      lightmeter serve --database postgresql://user@host/lightmeter
      lightmeter serve --faults '{"429": {"bucket": 10}, "drop-after": 0.05, "seed": 7}'
    """
    asyncio.run(_serve(service_config(accounts=accounts, faults=faults, **options), host, port))
    return 0


async def _serve(config: ServiceConfig, host: str, port: int) -> None:
    stop = stop_on_signals()
    if config.faults:
        click.echo(f"*** FAULTS ARE ON: this service misbehaves on purpose: {config.faults.text} ***", err=True)
    service = await start_service(config, host, port)
    click.echo(f"listening on {service.base_url}")
    try:
        await stop.wait()
    finally:
        await service.close()
