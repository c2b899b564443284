"""`lightmeter serve` and `lightmeter worker`: start the analysis service, or a process that works for services."""

from __future__ import annotations

import asyncio
import logging
import signal
from dataclasses import replace
from textwrap import wrap
from typing import Any, Final

import click

from lightmeter.cli.options import add_options, database_option
from lightmeter.pricing.rates import Rounding
from lightmeter.service import logs
from lightmeter.service.analysis.analyzer import AnalyzerLimits
from lightmeter.service.app import DEFAULT_LEASE_S, ServiceConfig, default_workers, start_service, start_worker
from lightmeter.service.faults.config import FAULT_KINDS, NO_FAULTS, Faults
from lightmeter.service.http.parameters import MAX_ASSETS

_MB: Final = 1024**2
_LIMITS: Final = AnalyzerLimits()

serve_options = add_options(
    database_option,
    click.option("--allow-private", is_flag=True, help="Also fetch from private addresses and any port."),
    click.option("--backends", metavar="A,B", help="Back ends to offer; default: all local ones."),
    click.option(
        "--workers",
        default=default_workers,
        show_default="two per core",
        type=click.IntRange(1, 256),
        help="Assets of one account analysed at the same time; all accounts together: twice as many.",
    ),
    click.option(
        "--max-waiting",
        metavar="PICTURES",
        default=_LIMITS.max_pending_pictures,
        show_default=True,
        type=click.IntRange(1),
        help="Maximum number of unfinished pictures of one account; further requests are answered with 503.",
    ),
    click.option(
        "--cache",
        "cache_mb",
        metavar="MB",
        default=_LIMITS.cache_bytes // _MB,
        show_default=True,
        type=click.IntRange(0),
        help="Memory for cached results of identical content; 0: no cache.",
    ),
    click.option(
        "--decoders",
        default=_LIMITS.decoding.decoders,
        show_default="one per core",
        type=click.IntRange(1, 256),
        help="Videos decoded at the same time, each in a separate process.",
    ),
    click.option(
        "--video-seconds",
        metavar="SECONDS",
        default=int(_LIMITS.decoding.video.wall_s),
        show_default=True,
        type=click.IntRange(1, 3600),
        help="Limit of wall-clock time and of CPU time to decode a video.",
    ),
    click.option(
        "--video-memory",
        "video_mb",
        metavar="MB",
        default=_LIMITS.decoding.video.memory_bytes // _MB,
        show_default=True,
        type=click.IntRange(512),
        help="Address space limit of a decoder process.",
    ),
    click.option(
        "--rounding",
        type=click.Choice([rounding.value for rounding in Rounding]),
        default="image",
        help="Unit whose charge is rounded up.",
    ),
    click.option(
        "--lease",
        "lease_s",
        metavar="SECONDS",
        default=DEFAULT_LEASE_S,
        show_default=True,
        type=click.FloatRange(1.0, 3600.0),
        help="PostgreSQL: seconds without a heartbeat after which other processes take over the work.",
    ),
    click.option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="Format of log lines.",
    ),
)


def service_config(*, backends: str | None, rounding: str, log_format: logs.LogFormat, **options: Any) -> ServiceConfig:
    """Configure logging, and return the service configuration for these options.

    Args:
        backends: Names of back ends, comma-separated; None for all local ones.
        rounding: The unit (a value of `Rounding`) whose charge is rounded up to whole credits.
        log_format: Format of log lines.
        options: The other options of `serve_options`, and other fields of `ServiceConfig`.
    """
    logs.configure(log_format)
    logging.getLogger("procrastinate").setLevel(logging.WARNING)  # it logs every job, as the service itself does
    names = tuple(name.strip() for name in backends.split(",") if name.strip()) if backends else None
    seconds, decoding = options.pop("video_seconds"), _LIMITS.decoding
    video = replace(decoding.video, wall_s=seconds, cpu_s=seconds, memory_bytes=options.pop("video_mb") * _MB)
    limits = AnalyzerLimits(
        max_pending_pictures=options.pop("max_waiting"),
        cache_bytes=options.pop("cache_mb") * _MB,
        decoding=replace(decoding, decoders=options.pop("decoders"), video=video),
    )
    return ServiceConfig(backends=names, rounding=Rounding(rounding), limits=limits, **options)


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
    """Return the help text on the failures that `--faults` injects; click does not wrap lines after a `\\b`."""
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
@click.option(
    "--max-assets",
    metavar="N",
    default=MAX_ASSETS,
    show_default=True,
    type=click.IntRange(1),
    help="Maximum number of URLs and files in a request; larger ones are answered with 400.",
)
@serve_options
def serve_command(host: str, port: int, accounts: dict[str, int], faults: Faults, **options: Any) -> int:
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


@click.command("worker")
@serve_options
def worker_command(**options: Any) -> int:
    """Process the requests that services have accepted into a shared database, without an HTTP server.

    Prints `working` when it is ready. Start any number of workers, on any machine that reaches the database, with the
    same back ends and rounding as the services. On SIGTERM and Ctrl-C, running requests are completed; the work of a
    worker that dies is taken over by others.

    \b
    Example:
      lightmeter worker --database postgresql://user@host/lightmeter
    """
    asyncio.run(_work(service_config(**options)))
    return 0


async def _serve(config: ServiceConfig, host: str, port: int) -> None:
    stop = _stop_on_signals()
    if config.faults:
        click.echo(f"*** FAULTS ARE ON: this service misbehaves on purpose: {config.faults.text} ***", err=True)
    service = await start_service(config, host, port)
    click.echo(f"listening on {service.base_url}")
    try:
        await stop.wait()
    finally:
        await service.close()


async def _work(config: ServiceConfig) -> None:
    stop = _stop_on_signals()
    async with await start_worker(config):
        click.echo("working")
        await stop.wait()


def _stop_on_signals() -> asyncio.Event:
    """Return an event that SIGTERM and Ctrl-C set."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, stop.set)
    return stop
