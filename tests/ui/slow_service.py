"""A real analysis service that delays each request that is charged, and counts what it charges."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from lightmeter.background_loop import BackgroundLoop
from lightmeter.service.app import RunningService, ServiceConfig, start_service
from lightmeter.service.faults.config import Faults

KEY = "key-of-the-test"
BALANCE = 99_321


@contextmanager
def running_slow_service(folder: Path, delay_s: float = 0.2) -> Iterator[RunningService]:
    """Run a service with the back end `palette` in this process; the account of `KEY` has `BALANCE` credits."""
    loop = BackgroundLoop("slow-service")
    config = ServiceConfig(
        f"sqlite:///{folder / 'service.db'}",
        ("palette",),
        {KEY: BALANCE},
        allow_private=True,
        faults=Faults.parse({"slow": {"seconds": [delay_s, delay_s], "on": "submit"}}),
    )
    running = loop.run(start_service(config))
    yield running
    loop.run(running.close())
    loop.close()


def charged_requests(service: RunningService) -> int:
    """Return the number of requests for answers that the service has received, from its metrics."""
    with urlopen(f"{service.base_url}/metrics", timeout=20) as reply:  # noqa: S310 (on loopback)
        lines = reply.read().decode().splitlines()
    posts = [
        line for line in lines if line.startswith("lightmeter_http_requests_total{") and 'endpoint="/api/fetch"' in line
    ]
    return sum(round(float(line.rpartition(" ")[2])) for line in posts)
