"""`lightmeter serve` and `lightmeter worker`: start the analysis service, or a process that works for services."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from ipaddress import ip_network
from textwrap import wrap
from typing import Any, Final

import click

from lightmeter.cli.options import add_options, database_option
from lightmeter.client.base_url import normalize_base_url
from lightmeter.errors import SettingsError
from lightmeter.pricing.rates import Rounding
from lightmeter.service import logs
from lightmeter.service.analysis.analyzer_limits import AnalyzerLimits
from lightmeter.service.app import DEFAULT_LEASE_S, ServiceConfig, default_workers, start_service, start_worker
from lightmeter.service.faults.config import FAULT_KINDS, NO_FAULTS, Faults
from lightmeter.service.http.connections import ConnectionLimits
from lightmeter.service.http.parameters import MAX_ASSETS
from lightmeter.service.http.public_url import Network, PublicUrl
from lightmeter.stop_signals import on_stop_signals
from lightmeter.wire.constants import MAX_CREDITS

log = logging.getLogger("lightmeter.service")

_MB: Final = 1024**2
_LIMITS: Final = AnalyzerLimits()
_CONNECTIONS: Final = ConnectionLimits()

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
        type=click.IntRange(512, 2**24),
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
    """Configure logging, and return the configuration of the service that these command-line options describe.

    Args:
        backends: Names of back ends, comma-separated; None for all local ones.
        rounding: What is rounded up to whole credits, each picture or each request: a value of `Rounding`.
        log_format: Format of log lines.
        options: Other options of `serve_options`, and values of other fields of `ServiceConfig`.
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
    accounts: dict[str, int] = {}
    for text in value:
        name, _, credits_ = text.rpartition("=")
        if not name or not credits_.isdecimal():
            raise click.BadParameter("must be NAME=CREDITS, such as mykey=500.", ctx, param)
        if len(credits_) > len(str(MAX_CREDITS)) or int(credits_) > MAX_CREDITS:
            raise click.BadParameter(f"CREDITS must be at most {MAX_CREDITS}.", ctx, param)
        if name != name.strip() or not name.isprintable():
            raise click.BadParameter("NAME must have no spaces at its ends and no control characters.", ctx, param)
        if name in accounts:  # NAME is secret
            raise click.BadParameter("the same NAME is given twice.", ctx, param)
        accounts[name] = int(credits_)
    return accounts


def _public_url(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    try:
        return None if value is None else normalize_base_url(value)
    except SettingsError as error:
        raise click.BadParameter(f"{error} Give one such as https://example.org.", ctx, param) from error


def _networks(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[Network, ...]:
    try:
        return tuple(ip_network(text.strip()) for text in value)
    except ValueError as error:
        raise click.BadParameter(f"{error}. Give one such as 10.0.0.0/8 or 127.0.0.1.", ctx, param) from error


def _faults(ctx: click.Context, param: click.Parameter, value: str | None) -> Faults:  # noqa: ARG001 (click's own)
    return NO_FAULTS if value is None else Faults.read(value)


def _fault_help() -> str:
    """Return the help text about the failures that the option `--faults` injects.

    The text begins with a backspace character, which stops click from wrapping the lines after it.
    """
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
@click.option(
    "--public-url",
    metavar="URL",
    callback=_public_url,
    help="URL under which clients reach the service, such as https://example.org; default: the host of each request.",
)
@click.option(
    "--trusted-proxy",
    "trusted_proxies",
    multiple=True,
    metavar="NETWORK",
    callback=_networks,
    help="Address or network of a proxy whose X-Forwarded-Proto and X-Forwarded-Host are believed; repeatable.",
)
@click.option(
    "--max-connections",
    default=_CONNECTIONS.max_connections,
    show_default=True,
    type=click.IntRange(1),
    help="Maximum number of open connections, at most half of the open files that the process may have.",
)
@serve_options
def serve_command(
    host: str,
    port: int,
    public_url: str | None,
    trusted_proxies: tuple[Network, ...],
    max_connections: int,
    **options: Any,
) -> int:
    """Start the analysis service: POST /api/fetch, GET /api/response/<id>, GET /api/credits.

    Prints `listening on http://HOST:PORT` when it is ready. On SIGTERM or Ctrl-C, the service completes its running
    requests, and ends. --key NAME=CREDITS creates an account with these credits, if it does not exist yet. NAME is the
    key that clients send as `X-API-Key: Token NAME`. It is stored as a hash and never logged. For accounts with
    generated keys, see `lightmeter keys`.

    An SQLite file can be used by only one process. With --database postgresql://… any number of `lightmeter serve` and
    `lightmeter worker` processes share the work; if one of them dies, the others take over its work.

    Behind a proxy that ends TLS, give --public-url: the service tells clients this address for polling.

    \b
    Examples:
      lightmeter serve --port 8080 --key mykey=500 --allow-private
      lightmeter serve --database postgresql://user@host/lightmeter
      lightmeter serve --faults '{"429": {"bucket": 10}, "drop-after": 0.05, "seed": 7}'
    """
    config = replace(
        service_config(**options),
        public_url=PublicUrl(public_url, trusted_proxies),
        connections=ConnectionLimits(max_connections),
    )
    asyncio.run(_serve(config, host, port))
    return 0


@click.command("worker")
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    help="Serve Prometheus metrics on this port; 0 selects a free one, which the log names. Default: not served.",
)
@click.option("--metrics-host", default="127.0.0.1", show_default=True, help="Address to serve metrics on.")
@serve_options
def worker_command(metrics_host: str, metrics_port: int | None, **options: Any) -> int:
    """Process the requests that services have accepted into a shared database, without an HTTP server.

    Prints `working` when it is ready. Start any number of workers, on any machine that reaches the database, with the
    same back ends and rounding as the services. On SIGTERM or Ctrl-C, a worker completes its running requests, and
    ends. If a worker dies, other workers take over its work.

    \b
    Example:
      lightmeter worker --database postgresql://user@host/lightmeter
    """
    asyncio.run(_work(service_config(**options), metrics_host, metrics_port))
    return 0


async def _serve(config: ServiceConfig, host: str, port: int) -> None:
    stop = asyncio.Event()
    with on_stop_signals(stop.set):
        if config.faults:
            click.echo(f"*** FAULTS ARE ON: this service misbehaves on purpose: {config.faults.text} ***", err=True)
        for warning in _start_warnings(config, host):
            log.warning("%s", warning)
        service = await start_service(config, host, port)
        click.echo(f"listening on {service.base_url}")
        try:
            await stop.wait()
        finally:
            await service.close()


def _start_warnings(config: ServiceConfig, host: str) -> Iterator[str]:
    """Yield a sentence for the log about each setting of the service that may be a mistake.

    `config` holds the settings. `host` is the address at which the service listens.
    """
    if host not in {"127.0.0.1", "::1", "localhost"}:
        yield f"{host} may be reachable from other machines, and keys travel unencrypted: put a TLS proxy in front."
    if config.allow_private:
        yield "--allow-private: everyone with a key can make this service read URLs of the internal network."
    with suppress(PackageNotFoundError):
        yield (
            f"The package decord {version('decord')} is installed beside decord2 and may replace its files: run "
            "pip uninstall -y decord, then pip install --force-reinstall --no-deps decord2."
        )


async def _work(config: ServiceConfig, metrics_host: str, metrics_port: int | None) -> None:
    stop = asyncio.Event()
    with on_stop_signals(stop.set):
        async with await start_worker(config, metrics_host=metrics_host, metrics_port=metrics_port):
            click.echo("working")
            await stop.wait()
