"""A database may report an error for a transaction that it committed: nothing is reserved or counted twice."""

from __future__ import annotations

import pytest

from lightmeter.service.jobs import runner
from lightmeter.service.store.sql_dialects import StoreError
from lightmeter.service.store.store import Store


@pytest.fixture(params=["committed", "rolled back"])
def failing_once(request, monkeypatch):
    """Let the first try of each change of a running request report an error, although it was perhaps committed."""
    write, tried = Store.write, set()

    async def fail_once(store, change):
        if not change.__qualname__.startswith("Runner.") or change in tried:
            return await write(store, change)
        tried.add(change)

        def fail(db):
            change(db)
            raise StoreError("The connection was lost.")

        await write(store, change if request.param == "committed" else fail)
        raise StoreError("The connection was lost.")

    monkeypatch.setattr(runner, "STORE_RETRY_S", 0)
    monkeypatch.setattr(Store, "write", fail_once)
    return tried


@pytest.mark.usefixtures("failing_once")
async def test_a_repeated_change_reserves_once_and_is_no_crash(starting, calling, database, site, books):
    """A request whose video costs more than expected runs with the credits that it costs, and no crash is counted."""
    service = await starting(database=database)
    caller = await calling(service, credits=4)
    answered = await caller.ask(url=[site.url("video/1.jpg"), site.url("picture/1.png")], capture_interval=1)
    done = await caller.finished(answered)
    assert (done["status"], done["credits_paid"], done["all"]["errors"]) == ("completed", 4, [])
    (book,) = await books(database)
    assert (book.is_consistent, book.free, book.held) == (True, 0, 0)
    store = Store(database)
    assert await store.read(lambda db: db.execute("SELECT deaths, deaths_alone FROM requests")) == [(0, 0)]
    store.close()
