"""An orderly stop of the service answers every client, and releases every hold."""

from __future__ import annotations

import asyncio
import threading

import pytest

from lightmeter.service.store import requests
from lightmeter.service.store.store import Store
from lightmeter.testing import openai_stub


@pytest.fixture
async def stopped_while_fetching(starting, calling, database, site, portal):
    """Return a function that stops a service while a client waits; it returns the client and the request's task."""

    async def stop(change=None):
        service = await starting(database=database, drain_s=0.1)
        caller = await calling(service, credits=10)
        asking = asyncio.create_task(caller.ask(url=site.url("held/1.png")))
        await asyncio.to_thread(site.arrived.acquire, timeout=20)
        if change is not None:
            store = Store(database)
            await store.write(change)
            store.close()
        await portal.call(service.close())
        return caller, asking

    return stop


async def test_a_client_that_waits_at_a_stop_is_answered(stopped_while_fetching, database, books):
    """Its request did not end in time: it reads that nothing was charged, and its credits are free at once."""
    _, asking = await stopped_while_fetching()
    answer = await asking
    assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
    assert "nothing was charged" in answer.body["error"]
    ((free, held, consistent),) = [(book.free, book.held, book.is_consistent) for book in await books(database)]
    assert (free, held, consistent) == (10, 0, True)


async def test_a_request_that_is_polled_runs_again_after_a_stop(stopped_while_fetching, starting, database, site):
    """A stop keeps the request of a client that was told to poll, and does not count as a crash of it."""
    ids = []

    def acknowledge(db):
        ids.extend(request_id for (request_id,) in db.execute("SELECT request_id FROM requests"))
        requests.acknowledge(db, ids[0])

    caller, asking = await stopped_while_fetching(acknowledge)
    await asyncio.gather(asking, return_exceptions=True)
    store = Store(database)
    rows = await store.read(lambda db: db.execute("SELECT state, hold, deaths FROM requests"))
    store.close()
    assert rows == [("queued", 1, 0)]
    site.gate.set()
    caller.base_url = (await starting(database=database, lease_s=0.5)).base_url
    for _ in range(400):
        polled = (await caller.poll(ids[0])).body
        if polled["status"] == "completed":
            break
        await asyncio.sleep(0.05)
    assert (polled["status"], polled["credits_paid"]) == ("completed", 1)
    assert await caller.balance() == 9


@pytest.mark.postgres
async def test_a_charge_that_is_being_stored_at_a_stop_is_answered(starting, calling, postgres, site, portal, books):
    """A client whose request ends during the stop gets the result that it pays for."""
    service = await starting(database=postgres, drain_s=0.1)
    caller = await calling(service, credits=10)
    asking = asyncio.create_task(caller.ask(url=site.url("held/1.png")))
    await asyncio.to_thread(site.arrived.acquire, timeout=20)
    store, locked, may_end = Store(postgres), threading.Event(), threading.Event()

    def lock(db):
        db.execute("SELECT 1 FROM requests FOR UPDATE")
        locked.set()
        assert may_end.wait(60)

    async def wait_for_locks(number):
        sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        while (await store.read(lambda db: db.execute(sql)))[0][0] < number:  # noqa: ASYNC110 (PostgreSQL has no event)
            await asyncio.sleep(0.01)

    locking = asyncio.create_task(store.write(lock))
    await asyncio.to_thread(locked.wait, 60)
    site.gate.set()
    await asyncio.wait_for(wait_for_locks(1), 60)  # the end of the request
    closing = asyncio.create_task(portal.call(service.close()))
    await asyncio.wait_for(wait_for_locks(2), 60)  # the stop
    may_end.set()
    await locking
    answer = await asking
    await closing
    store.close()
    assert (answer.status, answer.body["status"], answer.body["credits_paid"]) == (200, "completed", 1)
    ((free, held),) = [(book.free, book.held) for book in await books(postgres)]
    assert (free, held) == (9, 0)


async def test_a_provider_that_hangs_does_not_delay_a_stop(starting, calling, encoded, portal, monkeypatch):
    """The service stops while its only call of the provider has no answer yet, and the client is not charged."""
    arrived, may_answer = threading.Event(), threading.Event()

    def answer(_):
        arrived.set()
        assert may_answer.wait(300)
        return "Too late."

    with openai_stub(answer) as stub:
        monkeypatch.setenv("OPENAI_API_KEY", "of-the-stub")
        monkeypatch.setenv("OPENAI_BASE_URL", stub.base_url)
        service = await starting(backends=("openai",), drain_s=0.1)
        caller = await calling(service)
        asking = asyncio.create_task(caller.ask(file=encoded(1)))
        await asyncio.to_thread(arrived.wait, 60)
        await portal.call(service.close())
        calls = len(stub.requests)
        may_answer.set()
        assert (await asking).status == 503
    assert calls == 1
