"""Options that `serve` and `worker` share, and their conversion to a service configuration."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, TypeVar

import click

from lightmeter.pricing.rates import Rounding
from lightmeter.service import logs
from lightmeter.service.analysis.analyzer import AnalyzerLimits
from lightmeter.service.app import DEFAULT_LEASE_S, ServiceConfig, default_workers

F = TypeVar("F", bound=Callable[..., Any])

MB: Final = 1024**2
_LIMITS: Final = AnalyzerLimits()

DATABASE: Final = "sqlite:///lightmeter.db"

database_option = click.option(
    "--database", default=DATABASE, show_default=True, help="Database: sqlite:///PATH or postgresql://…"
)

_OPTIONS: Final = (
    database_option,
    click.option("--allow-private", is_flag=True, help="Also fetch from private addresses and any port."),
    click.option("--backends", metavar="A,B", help="Back ends to offer; default: all local ones."),
    click.option(
        "--workers",
        default=default_workers,
        show_default="two per core",
        type=click.IntRange(1, 256),
        help="Assets analysed at the same time.",
    ),
    click.option(
        "--max-waiting",
        metavar="PICTURES",
        default=_LIMITS.max_pending_pictures,
        show_default=True,
        type=click.IntRange(1),
        help="Maximum number of unfinished pictures; further requests are answered with 503.",
    ),
    click.option(
        "--cache",
        "cache_mb",
        metavar="MB",
        default=_LIMITS.cache_bytes // MB,
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
        default=_LIMITS.decoding.video.memory_bytes // MB,
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


def serve_options(command: F) -> F:
    """Decorate a command with the options of the service."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def service_config(*, backends: str | None, rounding: str, log_format: logs.LogFormat, **options: Any) -> ServiceConfig:
    """Configure logging, and return the service configuration for these options.

    Args:
        backends: Names of back ends, comma-separated; None for all local ones.
        rounding: Unit whose charge is rounded up.
        log_format: Format of log lines.
        options: The other options of `serve_options`, and other fields of `ServiceConfig`.
    """
    logs.configure(log_format)
    logging.getLogger("procrastinate").setLevel(logging.WARNING)  # it logs every job, as the service itself does
    names = tuple(name.strip() for name in backends.split(",") if name.strip()) if backends else None
    return ServiceConfig(backends=names, rounding=Rounding(rounding), limits=_limits(options), **options)


def _limits(options: dict[str, Any]) -> AnalyzerLimits:
    """Return the limits of the analyzer; removes their options from `options`."""
    seconds, decoding = options.pop("video_seconds"), _LIMITS.decoding
    video = replace(decoding.video, wall_s=seconds, cpu_s=seconds, memory_bytes=options.pop("video_mb") * MB)
    return AnalyzerLimits(
        max_pending_pictures=options.pop("max_waiting"),
        cache_bytes=options.pop("cache_mb") * MB,
        decoding=replace(decoding, decoders=options.pop("decoders"), video=video),
    )


def stop_on_signals() -> asyncio.Event:
    """Return an event that SIGTERM and Ctrl-C set."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, stop.set)
    return stop
