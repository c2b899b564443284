"""Services on PostgreSQL answer like one on SQLite, and share their work."""

from __future__ import annotations

import asyncio

import pytest

pytestmark = pytest.mark.postgres


async def test_a_service_on_postgresql_answers(starting, calling, postgres, site, encoded, books):
    """A picture at once and a batch by polling are each charged once, and the ledger is consistent."""
    service = await starting(database=postgres)
    caller = await calling(service, credits=10)
    assert (await caller.ask(file=encoded(1))).body["credits"] == 9
    done = await caller.finished(await caller.ask(url=[site.url("picture/1.png"), site.url("picture/2.png")]))
    assert (done["status"], done["credits_paid"], done["credits"]) == ("completed", 2, 7)
    assert all(book.is_consistent for book in await books(postgres))


async def test_several_services_share_the_work(starting, calling, postgres, encoded, books):
    """Results of requests to one service are polled at another; each is processed and charged once."""
    first, second = [await starting(database=postgres) for _ in range(2)]
    caller = await calling(first, credits=1000)
    answers = [await caller.ask(file=[encoded(n), encoded(n + 1)]) for n in range(20)]
    caller.base_url = second.base_url
    for answer in answers:
        assert (await caller.finished(answer))["credits_paid"] == 2
    assert await caller.balance() == 960
    assert all(book.is_consistent and book.held == 0 for book in await books(postgres))


async def test_one_idempotency_key_at_two_services(starting, calling, postgres, site):
    """Concurrent requests with one key at two services: one is processed, and all get its answer."""
    services = [await starting(database=postgres) for _ in range(2)]
    callers = [await calling(services[0], credits=5)]
    callers.append(type(callers[0])(callers[0].session, services[1].base_url, callers[0].headers))
    name = {"Idempotency-Key": "shared"}
    requests = [
        asyncio.create_task(caller.ask(name, url=site.url("held/1.png"))) for caller in callers for _ in range(3)
    ]
    await asyncio.to_thread(site.arrived.acquire)
    site.gate.set()
    answers = await asyncio.gather(*requests)
    assert {answer.body["status"] for answer in answers} == {"completed"}
    assert len({answer.body["request_id"] for answer in answers}) == 1
    assert site.paths == ["/held/1.png"]
    assert await callers[0].balance() == 4
