"""Kill -9 at random times under load: no request whose client polls is lost, and none is charged twice."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
from collections import Counter
from dataclasses import dataclass, field

import aiohttp
import pytest

from lightmeter.service.app import create_api_key
from lightmeter.service.store.credits import LedgerAccount
from lightmeter.service.store.store import Store

log = logging.getLogger(__name__)

KILLS = int(os.environ.get("LIGHTMETER_KILLS", "20")) // 2
"""Kills on each database."""

CREDITS = 1_000_000
POLLS = 1200


@dataclass
class Load:
    """Clients that continue after errors, and the answers that they got."""

    acknowledged: list[str] = field(default_factory=list)
    answered: dict[str, int] = field(default_factory=dict)
    refused: Counter = field(default_factory=Counter)
    over: asyncio.Event = field(default_factory=asyncio.Event)


async def send(load, session, address, headers, pictures):
    """Send one request with one or several pictures, and record its answer."""
    body = {"file": pictures if len(pictures) > 1 else pictures[0]}
    try:
        async with session.post(f"{address}/api/fetch", json=body, headers=headers) as answer:
            body = await answer.json()
    except (aiohttp.ClientError, ConnectionError):
        load.refused["cut off"] += 1
        await asyncio.sleep(0.05)
        return
    if body.get("status") == "queued":
        load.acknowledged.append(body["request_id"])
    elif body.get("status") == "completed":
        load.answered[body["request_id"]] = body["credits_paid"]
    else:
        load.refused[answer.status] += 1


async def keep_sending(load, rng, session, services, headers, encoded):
    """Send requests in sequence until the test is over."""
    while not load.over.is_set():
        pictures = [encoded(rng.randrange(1000)) for _ in range(rng.choice([1, 1, 3, 12]))]
        await send(load, session, rng.choice(services).base_url, headers, pictures)
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
async def test_kill_9_loses_nothing_and_charges_nothing_twice(processes, database, session, encoded, books):
    """Every request whose client polls completes, and the ledger's revenue equals the charges in the answers."""
    running = create_processes(processes, database)
    await asyncio.gather(*(asyncio.to_thread(process.begin) for process in running))
    headers = {"X-API-Key": f"Token {await create_api_key(database, 'payer', CREDITS)}"}
    services = [process for process in running if process.verb == "serve"]
    load, rng = Load(), random.Random(20)  # noqa: S311 (times, not secrets)
    sending = [keep_sending(load, rng, session, services, headers, encoded) for _ in range(4)]
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
