"""Kill -9 at random times under load: no request whose client polls is lost, and none is charged twice."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
from base64 import b64encode
from collections import Counter
from dataclasses import dataclass, field
from functools import partial

import aiohttp
import pytest

from lightmeter.service.app import create_api_key
from lightmeter.service.store.credits import LedgerAccount
from lightmeter.service.store.store import Store

log = logging.getLogger(__name__)

KILLS = int(os.environ.get("LIGHTMETER_KILLS", "20")) // 2
"""Kills on each database."""

CREDITS = 1_000_000
REPEATED = 0.3
"""Share of the requests that are sent twice."""
POLLS = 1200


@dataclass
class Load:
    """Clients that continue after errors, and the answers that they got."""

    acknowledged: set[str] = field(default_factory=set)
    answered: dict[str, int] = field(default_factory=dict)
    refused: Counter = field(default_factory=Counter)
    over: asyncio.Event = field(default_factory=asyncio.Event)


async def send(load, session, address, headers, body):
    """Send one request, and record its answer."""
    try:
        async with session.post(f"{address}/api/fetch", json=body, headers=headers) as answer:
            body = await answer.json()
    except (aiohttp.ClientError, ConnectionError):
        load.refused["cut off"] += 1
        await asyncio.sleep(0.05)
        return
    if body.get("status") == "queued":
        load.acknowledged.add(body["request_id"])
    elif body.get("status") == "completed":
        load.answered[body["request_id"]] = body["credits_paid"]
    else:
        load.refused[answer.status] += 1


def choose_body(rng, encoded, site):
    """Return the body of a request with pictures, videos or both, as uploads or URLs; some of them are broken."""
    number = rng.randrange(1000)
    pictures = [encoded(number + each) for each in range(rng.choice([1, 3, 12]))]
    urls = [site.url(f"{kind}/{number}") for kind in ("picture", "video", "broken")]
    bodies = [
        {"file": pictures[0]},
        {"file": pictures},
        {"file": b64encode(site.video).decode(), "max_frames": rng.choice([1, 5])},
        {"url": urls[0]},
        {"url": urls[1], "max_frames": rng.choice([0, 2])},  # the URL does not show that it is a video
        {"url": urls, "file": pictures, "max_frames": 3},
    ]
    return rng.choice(bodies)


async def keep_sending(load, rng, session, services, headers, choose):
    """Send requests in sequence until the test is over; send some of them twice, with an idempotency key."""
    while not load.over.is_set():
        body, key = choose(), {"Idempotency-Key": f"{rng.random()}"} if rng.random() < REPEATED else {}
        for _ in range(2 if key else 1):
            await send(load, session, rng.choice(services).base_url, {**headers, **key}, body)
            await asyncio.sleep(0.02)


async def kill_repeatedly(processes, rng, kills):
    """Kill a random process at random times, and restart it."""
    for _ in range(kills):
        await asyncio.sleep(rng.uniform(0.05, 0.8))
        victim = rng.choice(processes)
        await asyncio.to_thread(victim.end, signal.SIGKILL)
        await asyncio.to_thread(victim.begin)


async def wait_for_result(session, address, headers, request_id):
    """Poll until a request has finished; return its answer."""
    for _ in range(POLLS):
        async with session.get(f"{address}/api/response/{request_id}", headers=headers) as answer:
            body = await answer.json()
        assert answer.status == 200, body
        if body["status"] != "processing":
            return body
        await asyncio.sleep(0.05)
    pytest.fail(f"{request_id} never ended")


async def read_charges(database):
    """Return the charges in the ledger by request, and how many requests had how many crashes of each kind."""
    store = Store(database)
    try:
        requests = await store.read(
            lambda db: db.execute("SELECT request_id, paid, deaths, deaths_alone FROM requests")
        )
        rows = await store.read(lambda db: db.execute("SELECT request_id, amount FROM ledger WHERE credit = 'revenue'"))
    finally:
        store.close()
    assert max(Counter(name for name, _ in rows).values()) == 1
    deaths = [dict(sorted(Counter(row[column] for row in requests).items())) for column in (2, 3)]
    return {name: paid for name, paid, *_ in requests}, dict(rows), deaths


def create_processes(processes, database):
    """Create one process on a file; two services and a worker on PostgreSQL."""
    verbs = ["serve"] if database.startswith("sqlite") else ["serve", "serve", "worker"]
    return [processes(database, verb) for verb in verbs]


@pytest.mark.sweep
async def test_kill_9_loses_nothing_and_charges_nothing_twice(processes, database, session, encoded, books, site):
    """Every request whose client polls completes, and the ledger's revenue equals the charges in the answers."""
    running = create_processes(processes, database)
    await asyncio.gather(*(asyncio.to_thread(process.begin) for process in running))
    headers = {"X-API-Key": f"Token {await create_api_key(database, 'payer', CREDITS)}"}
    services = [process for process in running if process.verb == "serve"]
    load, rng = Load(), random.Random(20)  # noqa: S311 (times, not secrets)
    choose = partial(choose_body, rng, encoded, site)
    sending = [keep_sending(load, rng, session, services, headers, choose) for _ in range(4)]
    callers = [asyncio.create_task(each) for each in sending]
    await kill_repeatedly(running, rng, KILLS)
    load.over.set()
    await asyncio.gather(*callers)
    address = services[0].base_url
    ended = {name: await wait_for_result(session, address, headers, name) for name in load.acknowledged}
    assert load.acknowledged, load.refused
    assert [body for body in ended.values() if body["status"] != "completed"] == []
    # A synchronous answer is stored with the same charge; an interrupted synchronous request was deleted.
    for name, paid in load.answered.items():
        assert (await wait_for_result(session, address, headers, name))["credits_paid"] == paid
    for _ in range(POLLS):
        (book,) = await books(database)
        if book.held == 0:
            break
        await asyncio.sleep(0.05)
    assert (book.is_consistent, book.held, book.ledger[LedgerAccount.GRANTS]) == (True, 0, -CREDITS)
    settled, charges, (beside, alone) = await read_charges(database)
    log.info("completed %d, at once %d, others %s", len(ended), len(load.answered), dict(load.refused))
    log.info("requests by crashes beside others %s, alone %s", beside, alone)
    assert charges == {name: paid for name, paid in settled.items() if paid}
    assert book.ledger[LedgerAccount.REVENUE] == sum(settled.values())
    answered = {name: body.get("credits_paid", 0) for name, body in ended.items()} | load.answered
    assert {name: settled[name] for name in answered} == answered
