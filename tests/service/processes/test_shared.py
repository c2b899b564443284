"""Processes that share a PostgreSQL database continue each other's work, and charge it once."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from importlib import import_module

import aiohttp
import pytest

from lightmeter.service.store.store import Store

pytestmark = pytest.mark.postgres


async def wait_for_fetch(site) -> None:
    """Wait until a `/held/` URL is being fetched."""
    assert await asyncio.to_thread(site.arrived.acquire, timeout=20)


async def test_a_worker_presumed_dead_cannot_settle(processes, postgres, calling, site, books):
    """Another process takes over the request of a process that was paused beyond its lease: one result, one charge."""
    first, second = processes(postgres), processes(postgres)
    first.begin()
    caller = await calling(first, credits=10)
    answered = await caller.ask(url=[site.url("held/1.png"), site.url("picture/2.png")])
    await wait_for_fetch(site)
    first.running.signal(signal.SIGSTOP)
    second.begin()
    await wait_for_fetch(site)
    first.running.signal(signal.SIGCONT)
    site.gate.set()
    assert (await caller.finished(answered))["credits_paid"] == 2
    caller.base_url = second.base_url
    assert first.end(signal.SIGTERM) == 0
    assert await caller.balance() == 8
    (book,) = await books(postgres)
    assert (book.is_consistent, book.held, book.ledger["revenue"]) == (True, 0, 2)
    store = Store(postgres)
    ((state, attempts),) = await store.read(lambda db: db.execute("SELECT state, attempts FROM requests"))
    store.close()
    assert (state, attempts >= 2) == ("completed", True)


async def test_a_request_of_a_killed_process_is_not_charged(processes, postgres, calling, site):
    """Credits reserved for a synchronous request are released when the lease of its killed process has ended."""
    first, second = processes(postgres), processes(postgres)
    first.begin()
    second.begin()
    caller = await calling(first, credits=10)
    request = asyncio.create_task(caller.ask({"Idempotency-Key": "mine"}, url=site.url("held/1.png")))
    await wait_for_fetch(site)
    first.end(signal.SIGKILL)
    with contextlib.suppress(aiohttp.ClientError):
        await request
    caller.base_url = second.base_url
    assert await caller.balance() == 9
    for _ in range(400):
        if await caller.balance() == 10:
            break
        await asyncio.sleep(0.05)
    site.gate.set()
    again = await caller.ask({"Idempotency-Key": "mine"}, url=site.url("held/1.png"))
    assert (again.body["status"], again.body["credits"]) == ("completed", 9)


async def test_a_worker_finishes_the_request_of_a_killed_service(processes, postgres, calling, site, encoded):
    """A worker completes the batch, the next service returns the answer, and SIGTERM lets the worker finish."""
    service, worker = processes(postgres), processes(postgres, "worker")
    service.begin()
    caller = await calling(service, credits=10)
    answered = await caller.ask(url=site.url("held/1.png"), file=encoded(2))
    await wait_for_fetch(site)
    service.end(signal.SIGKILL)
    worker.begin()
    await wait_for_fetch(site)
    ended = asyncio.create_task(asyncio.to_thread(worker.end, signal.SIGTERM))
    site.gate.set()
    assert await ended == 0
    service.begin()
    caller.base_url = service.base_url
    done = await caller.poll(answered.body["request_id"])
    assert (done.body["status"], done.body["credits_paid"], done.body["credits"]) == ("completed", 2, 8)


@pytest.mark.sweep
async def test_a_worker_takes_over_in_a_database_of_the_oldest_job_queue(processes, postgres, calling, site):
    """Failover works in a database that was made with the oldest allowed procrastinate."""
    import_module("tests.service.old_queue").create_old_database(postgres)
    service, worker = processes(postgres), processes(postgres, "worker")
    service.begin()
    caller = await calling(service, credits=10)
    answered = await caller.ask(url=[site.url("held/1.png"), site.url("picture/2.png")])
    await wait_for_fetch(site)
    service.end(signal.SIGKILL)
    worker.begin()
    await wait_for_fetch(site)
    site.gate.set()
    service.begin()
    caller.base_url = service.base_url
    assert (await caller.finished(answered))["credits_paid"] == 2


@pytest.mark.sweep
async def test_a_stopping_service_requeues_an_unfinished_request(processes, postgres, calling, site):
    """After SIGTERM a service waits a limited time for a slow host; then another process takes over the request."""
    service, worker = processes(postgres), processes(postgres, "worker")
    service.begin()
    caller = await calling(service, credits=10)
    answered = await caller.ask(url=[site.url("held/1.png"), site.url("picture/2.png")])
    await wait_for_fetch(site)
    worker.begin()
    assert await asyncio.to_thread(service.end, signal.SIGTERM) == 0
    await wait_for_fetch(site)
    site.gate.set()
    service.begin()
    caller.base_url = service.base_url
    assert (await caller.finished(answered))["credits_paid"] == 2
