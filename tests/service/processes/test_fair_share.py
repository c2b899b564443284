"""Requests of one account do not wait for all earlier requests of another, in one process or several."""

from __future__ import annotations

import asyncio
import time

import pytest

from lightmeter.service.store.store import Store

MANY, FEW, PICTURES = 60, 6, 5
DEADLINE_S = 300
"""Ends a test that hangs; nothing is measured."""

pytestmark = pytest.mark.sweep


async def finish_times(database):
    """Wait until all requests have finished; return these times by account, in order."""
    store = Store(database)
    sql = "SELECT account_id, finished_at FROM requests WHERE state = 'completed' ORDER BY finished_at"
    try:
        async with asyncio.timeout(DEADLINE_S):
            while len(rows := await store.read(lambda db: db.execute(sql))) < MANY + FEW:  # noqa: ASYNC110 (other processes)
                await asyncio.sleep(0.5)
    finally:
        store.close()
    return [[at for account, at in rows if account == wanted] for wanted in (1, 2)]


async def test_six_requests_do_not_wait_for_sixty(processes, database, calling, site):
    """Of sixty requests, most are unfinished when six of another account have finished, sent one second later."""
    verbs = ["serve"] if database.startswith("sqlite") else ["serve", "serve", "worker", "worker"]
    started = [processes(database, verb) for verb in verbs]
    for process in started:
        process.options = ["--cache", "0"]
        process.begin()
    services = [process for process in started if process.verb == "serve"]
    many, few = await calling(services[0], credits=10_000), await calling(services[-1], credits=10_000)
    batch = [site.url("media/castle.jpg")] * PICTURES
    many_at = time.time()
    await asyncio.gather(*(many.ask(url=batch) for _ in range(MANY)))
    await asyncio.sleep(1)
    few_at = time.time()
    await asyncio.gather(*(few.ask(url=batch) for _ in range(FEW)))
    of_many, of_few = await finish_times(database)
    unfinished = sum(at > of_few[-1] for at in of_many)
    times = f"{FEW} in {of_few[-1] - few_at:.1f} s, {MANY} in {of_many[-1] - many_at:.1f} s"
    assert unfinished >= MANY // 2, times
    print(times, f"{unfinished} of {MANY} were unfinished")  # noqa: T201
