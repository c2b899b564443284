"""A service on PostgreSQL answers as one on SQLite does, and shares its work with others."""

from __future__ import annotations

import asyncio

import pytest

pytestmark = pytest.mark.postgres


async def test_it_answers(starting, calling, postgres, site, encoded, books):
    """A picture at once, a batch by polling; each charged once, and the books agree."""
    service = await starting(database=postgres)
    caller = await calling(service, credits=10)
    assert (await caller.ask(file=encoded(1))).body["credits"] == 9
    done = await caller.finished(await caller.ask(url=[site.url("picture/1.png"), site.url("picture/2.png")]))
    assert (done["status"], done["credits_paid"], done["credits"]) == ("completed", 2, 7)
    assert all(book.is_consistent for book in await books(postgres))


async def test_several_services_share_the_work(starting, calling, postgres, encoded, books):
    """Admitted by one, polled at another; all of it is done, and charged once."""
    first, second = [await starting(database=postgres) for _ in range(2)]
    caller = await calling(first, credits=1000)
    answers = [await caller.ask(file=[encoded(n), encoded(n + 1)]) for n in range(20)]
    caller.base_url = second.base_url
    for answer in answers:
        assert (await caller.finished(answer))["credits_paid"] == 2
    assert await caller.balance() == 960
    assert all(book.is_consistent and book.held == 0 for book in await books(postgres))


async def test_one_key_at_two_services(starting, calling, postgres, site):
    """The same Idempotency-Key at two services at once: one does it, both give its answer."""
    services = [await starting(database=postgres) for _ in range(2)]
    callers = [await calling(services[0], credits=5)]
    callers.append(type(callers[0])(callers[0].session, services[1].base_url, callers[0].headers))
    name = {"Idempotency-Key": "shared"}
    asked = [asyncio.create_task(caller.ask(name, url=site.url("held/1.png"))) for caller in callers for _ in range(3)]
    await asyncio.to_thread(site.arrived.acquire)
    site.gate.set()
    answers = await asyncio.gather(*asked)
    assert {answer.body["status"] for answer in answers} == {"completed"}
    assert len({answer.body["request_id"] for answer in answers}) == 1
    assert site.seen == ["/held/1.png"]
    assert await callers[0].balance() == 4
