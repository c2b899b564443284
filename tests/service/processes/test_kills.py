"""kill -9 at random instants under load: nothing acknowledged is lost, nothing is charged twice, the books agree."""

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

from lightmeter.service.app import open_account
from lightmeter.service.store.credits import LedgerAccount
from lightmeter.service.store.store import Store

log = logging.getLogger(__name__)

KILLS = int(os.environ.get("LIGHTMETER_KILLS", "20")) // 2
"""On each database."""

CREDITS = 1_000_000
POLLS = 1200


@dataclass
class Load:
    """Callers who go on whatever happens, and what they were told."""

    acknowledged: list[str] = field(default_factory=list)
    answered: dict[str, int] = field(default_factory=dict)
    refused: Counter = field(default_factory=Counter)
    over: asyncio.Event = field(default_factory=asyncio.Event)


async def send(load, session, address, headers, pictures):
    """One request: of one picture or of several."""
    body = {"file": pictures if len(pictures) > 1 else pictures[0]}
    try:
        async with session.post(f"{address}/api/fetch", json=body, headers=headers) as answer:
            told = await answer.json()
    except (aiohttp.ClientError, ConnectionError):
        load.refused["cut off"] += 1
        await asyncio.sleep(0.05)
        return
    if told.get("status") == "queued":
        load.acknowledged.append(told["request_id"])
    elif told.get("status") == "completed":
        load.answered[told["request_id"]] = told["credits_paid"]
    else:
        load.refused[answer.status] += 1


async def keep_sending(load, rng, session, services, headers, encoded):
    """Requests one after another until it is over."""
    while not load.over.is_set():
        pictures = [encoded(rng.randrange(1000)) for _ in range(rng.choice([1, 1, 3, 12]))]
        await send(load, session, rng.choice(services).base_url, headers, pictures)
        await asyncio.sleep(0.02)


async def kill_again_and_again(processes, rng, kills):
    """At a random instant a random process is killed, and soon begun again."""
    for _ in range(kills):
        await asyncio.sleep(rng.uniform(0.05, 0.8))
        victim = rng.choice(processes)
        await asyncio.to_thread(victim.end, signal.SIGKILL)
        await asyncio.to_thread(victim.begin)


async def outcome(session, address, headers, request_id):
    """How an acknowledged request ended."""
    for _ in range(POLLS):
        async with session.get(f"{address}/api/response/{request_id}", headers=headers) as answer:
            told = await answer.json()
        assert answer.status == 200, told
        if told["status"] != "processing":
            return told
        await asyncio.sleep(0.05)
    pytest.fail(f"{request_id} never ended")


async def charged(database):
    """What each request has paid, by its own row and by the ledger; and the deaths it met, in company and alone."""
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


def fleet(processes, database):
    """One process on a file; two services and a worker on PostgreSQL."""
    verbs = ["serve"] if database.startswith("sqlite") else ["serve", "serve", "worker"]
    return [processes(database, verb) for verb in verbs]


async def test_kill_9_loses_nothing_and_charges_nothing_twice(processes, database, session, encoded, books):
    """Every acknowledged id completes; the revenue is the sum of what the results say; the ledger sums to the grant."""
    running = fleet(processes, database)
    await asyncio.gather(*(asyncio.to_thread(process.begin) for process in running))
    headers = {"X-API-Key": f"Token {await open_account(database, 'payer', CREDITS)}"}
    services = [process for process in running if process.verb == "serve"]
    load, rng = Load(), random.Random(20)  # noqa: S311 (instants, not secrets)
    sending = [keep_sending(load, rng, session, services, headers, encoded) for _ in range(4)]
    callers = [asyncio.create_task(each) for each in sending]
    await kill_again_and_again(running, rng, KILLS)
    load.over.set()
    await asyncio.gather(*callers)
    address = services[0].base_url
    ended = {name: await outcome(session, address, headers, name) for name in load.acknowledged}
    assert load.acknowledged, load.refused
    assert [body for body in ended.values() if body["status"] != "completed"] == []  # nobody is taken for a culprit
    # What was answered at once is in the store with the same charge; what broke on the way there was undone.
    for name, paid in load.answered.items():
        assert (await outcome(session, address, headers, name))["credits_paid"] == paid
    for _ in range(POLLS):
        (book,) = await books(database)
        if book.held == 0:
            break
        await asyncio.sleep(0.05)
    assert (book.is_consistent, book.held, book.ledger[LedgerAccount.GRANTS]) == (True, 0, -CREDITS)
    settled, charges, (beside, alone) = await charged(database)
    log.info("completed %d, at once %d, others %s", len(ended), len(load.answered), dict(load.refused))
    log.info("requests by deaths beside others %s, alone %s", beside, alone)
    assert charges == {name: paid for name, paid in settled.items() if paid}
    assert book.ledger[LedgerAccount.REVENUE] == sum(settled.values())
    told = {name: body.get("credits_paid", 0) for name, body in ended.items()} | load.answered
    assert {name: settled[name] for name in told} == told
