"""Check of a service's database that a killed service of an earlier version left with unfinished jobs."""

from __future__ import annotations

import asyncio
from contextlib import closing

from lightmeter.service.app import ServiceConfig, start_service
from lightmeter.service.store.credits import balances
from lightmeter.service.store.store import Store
from lightmeter.service.store.unfinished_requests import list_unfinished
from tests.upgrades.make_fixture import CREDITS, JOBS

PAID = "SELECT request_id, paid FROM requests WHERE paid IS NOT NULL"


async def finish_jobs_of_killed_service(database: str) -> None:
    """Assert that this version's service finishes the jobs in `database` and charges each of them once."""
    with closing(Store(database, exclusive=True)) as store:
        (account,) = await store.read(balances)
        waiting = await store.read(list_unfinished)
        paid = dict(await store.read(lambda db: db.execute(PAID)))
        assert (account.is_consistent, 0 < len(waiting) <= JOBS) == (True, True)
        assert account.held == sum(job.held for job in waiting)
    service = await start_service(ServiceConfig(database=database, backends=("palette",), allow_private=True))
    try:
        with closing(Store(database)) as store:
            for _ in range(3000):
                if not await store.read(list_unfinished):
                    break
                await asyncio.sleep(0.02)
            (account,) = await store.read(balances)
            outcomes = await store.read(lambda db: db.execute("SELECT request_id, state, paid FROM requests"))
    finally:
        await service.close()
    assert {state for _, state, _ in outcomes} == {"completed"}
    paid |= {request_id: credits_ for request_id, _, credits_ in outcomes}  # old requests may be deleted meanwhile
    assert (account.is_consistent, account.held) == (True, 0)
    assert account.free == CREDITS - sum(paid.values())
