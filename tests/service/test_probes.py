"""GET /healthz and GET /readyz report whether the service runs and accepts requests."""

from __future__ import annotations

import asyncio

import pytest


async def test_a_service_that_stops_says_so_and_still_gives_results(starting, calling, site, portal):
    """A service that stops answers /healthz and polls, is not ready, and refuses new requests."""
    service = await starting()
    caller = await calling(service)
    assert (await caller.send("GET", "/readyz")).status == 200
    acknowledged = await caller.ask(url=[site.url("held/1.png"), site.url("picture/2.png")])
    stopping = asyncio.ensure_future(portal.call(service.close()))
    for _ in range(200):
        ready = await caller.send("GET", "/readyz")
        if ready.status == 503:
            break
        await asyncio.sleep(0.01)
    assert (ready.status, int(ready.headers["Retry-After"]) > 0) == (503, True)
    assert (await caller.send("GET", "/healthz")).status == 200
    refused = await caller.ask(url=site.url("picture/3.png"))
    assert (refused.status, refused.body["status"]) == (503, "failed")
    assert (await caller.poll(acknowledged.body["request_id"])).body["status"] == "processing"
    assert await caller.balance() < 1000
    site.gate.set()
    await stopping


async def wait_until_ready(caller, status):
    """Wait until /readyz has this status; return the answer."""
    for _ in range(300):
        ready = await caller.send("GET", "/readyz")
        if ready.status == status:
            return ready
        await asyncio.sleep(0.05)
    pytest.fail(f"/readyz is still {ready.status}")


@pytest.mark.postgres
async def test_a_service_without_its_database_is_not_ready(starting, calling, postgres):
    """While PostgreSQL refuses connections, the service is alive and not ready; afterwards it is ready again."""
    psycopg = pytest.importorskip("psycopg")
    service = await starting(database=postgres)
    caller = await calling(service)
    assert (await caller.send("GET", "/readyz")).status == 200
    server, name = postgres.rsplit("/", 1)
    with psycopg.connect(f"{server}/postgres", autocommit=True) as admin:
        admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
        ready = await wait_until_ready(caller, 503)
        assert ready.body == {"status": "the database does not answer"}
        assert int(ready.headers["Retry-After"]) > 0
        assert (await caller.send("GET", "/healthz")).status == 200
        admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
    await wait_until_ready(caller, 200)
