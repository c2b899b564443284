"""`lightmeter worker`: process requests of services that share a database."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from lightmeter.cli.serve_options import serve_options, service_config, stop_on_signals
from lightmeter.service.app import ServiceConfig, start_worker


@click.command("worker")
@serve_options
def command(**options: Any) -> int:
    """Process acknowledged requests of a database that services share, without an HTTP server.

    Prints `working` when it is ready. Start any number of workers, on any machine that reaches the database, with the
    same back ends and rounding as the services. On SIGTERM and Ctrl-C, running requests are completed; the work of a
    worker that dies is taken over by others.

    \b
    Example:
      lightmeter worker --database postgresql://user@host/lightmeter
    """
    asyncio.run(_work(service_config(**options)))
    return 0


async def _work(config: ServiceConfig) -> None:
    stop = stop_on_signals()
    worker = await start_worker(config)
    click.echo("working")
    try:
        await stop.wait()
    finally:
        await worker.aclose()
