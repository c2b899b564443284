"""What `serve` and `worker` have in common: the options of the engine, and how it is stopped."""

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

__all__ = ["DATABASE", "database_option", "serve_options", "service_config", "stop_on_signals"]

F = TypeVar("F", bound=Callable[..., Any])

MB: Final = 1024**2
_LIMITS: Final = AnalyzerLimits()

DATABASE: Final = "sqlite:///lightmeter.db"

database_option = click.option(
    "--database", default=DATABASE, show_default=True, help="Where it remembers: sqlite:///PATH or postgresql://…"
)

_OPTIONS: Final = (
    database_option,
    click.option("--allow-private", is_flag=True, help="Fetch from private addresses and any port too."),
    click.option("--backends", metavar="A,B", help="Back ends to offer; none: all local ones."),
    click.option(
        "--workers",
        default=default_workers,
        show_default="two for each core",
        type=click.IntRange(1, 256),
        help="Assets decoded and looked at at once.",
    ),
    click.option(
        "--max-waiting",
        metavar="PICTURES",
        default=_LIMITS.max_pending_pictures,
        show_default=True,
        type=click.IntRange(1),
        help="Pictures taken on and not finished, from which on the answer is 503.",
    ),
    click.option(
        "--cache",
        "cache_mb",
        metavar="MB",
        default=_LIMITS.cache_bytes // MB,
        show_default=True,
        type=click.IntRange(0),
        help="Memory for findings, which the same content gets again; 0: none.",
    ),
    click.option(
        "--decoders",
        default=_LIMITS.decoding.decoders,
        show_default="one for each core",
        type=click.IntRange(1, 256),
        help="Videos decoded at once, each in a process of its own.",
    ),
    click.option(
        "--video-seconds",
        metavar="SECONDS",
        default=int(_LIMITS.decoding.video.wall_s),
        show_default=True,
        type=click.IntRange(1, 3600),
        help="Time to decode a video: on the clock, and of a processor.",
    ),
    click.option(
        "--video-memory",
        "video_mb",
        metavar="MB",
        default=_LIMITS.decoding.video.memory_bytes // MB,
        show_default=True,
        type=click.IntRange(512),
        help="Address space of a process that decodes.",
    ),
    click.option(
        "--rounding",
        type=click.Choice([each.value for each in Rounding]),
        default="image",
        help="Where charges round up.",
    ),
    click.option(
        "--lease",
        "lease_s",
        metavar="SECONDS",
        default=DEFAULT_LEASE_S,
        show_default=True,
        type=click.FloatRange(1.0, 3600.0),
        help="On PostgreSQL: how long a process may be silent before others take over its work.",
    ),
    click.option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="One line for each event, for people or for machines.",
    ),
)


def serve_options(command: F) -> F:
    """Add the options of the engine to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def service_config(*, backends: str | None, rounding: str, log_format: logs.LogFormat, **options: Any) -> ServiceConfig:
    """The engine that the options ask for; logging is set up on the way."""
    logs.configure(log_format)
    logging.getLogger("procrastinate").setLevel(logging.WARNING)  # it tells of every job, and so do we
    names = tuple(name.strip() for name in backends.split(",") if name.strip()) if backends else None
    return ServiceConfig(backends=names, rounding=Rounding(rounding), limits=_limits(options), **options)


def _limits(options: dict[str, Any]) -> AnalyzerLimits:
    """What is taken on and remembered; its options are taken out of the others."""
    seconds, decoding = options.pop("video_seconds"), _LIMITS.decoding
    video = replace(decoding.video, wall_s=seconds, cpu_s=seconds, memory_bytes=options.pop("video_mb") * MB)
    return AnalyzerLimits(
        max_pending_pictures=options.pop("max_waiting"),
        cache_bytes=options.pop("cache_mb") * MB,
        decoding=replace(decoding, decoders=options.pop("decoders"), video=video),
    )


def stop_on_signals() -> asyncio.Event:
    """Set by SIGTERM and by Ctrl-C."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, stop.set)
    return stop
