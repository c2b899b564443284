"""`lightmeter worker`: more hands for services that share a database."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from lightmeter.cli.serve_options import serve_options, service_config, stop_on_signals
from lightmeter.service.app import ServiceConfig, start_worker

__all__ = ["command"]


@click.command("worker")
@serve_options
def command(**options: Any) -> int:
    """Do acknowledged requests of a database that services share, without listening.

    Prints `working` once it is ready. Start as many as you like, on any machine that reaches the database; give
    them the back ends and the rounding of the services. SIGTERM and Ctrl-C let running requests finish; what is cut
    off, or left by a worker that dies, is done by another.

    \b
    Example:
      lightmeter worker --database postgresql://user@host/lightmeter
    """
    asyncio.run(_work(service_config(**options)))
    return 0


async def _work(config: ServiceConfig) -> None:
    stop = stop_on_signals()
    working = await start_worker(config)
    click.echo("working")
    try:
        await stop.wait()
    finally:
        await working.aclose()
