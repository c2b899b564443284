"""While the database does not answer, clients are told to ask again; nothing looks like the end of a request."""

from __future__ import annotations

import json

import pytest

from lightmeter.client.classify import ResponseVerdict, classify_poll
from lightmeter.client.client import Client
from lightmeter.client.http_answer import RawAnswer
from lightmeter.service.store.sql_dialects import StoreError
from lightmeter.service.store.store import Store


@pytest.fixture
def fail_read(monkeypatch):
    """A function that makes one read of the database fail, after the given number of reads."""
    left = [-1]

    def failing(method):
        async def read(self, query):
            left[0] -= 1
            if left[0] == -1:
                raise StoreError("SQLite failed: BusyError.")
            return await method(self, query)

        return read

    monkeypatch.setattr(Store, "read", failing(Store.read))
    monkeypatch.setattr(Store, "read_inline", failing(Store.read_inline))
    return lambda after: left.__setitem__(0, after)


KEY_CHECK = 0
QUERY = 1


async def test_a_failed_read_is_not_the_end_of_a_request(starting, calling, site, fail_read):
    """A poll gets 503 without the field `status`, which the toolkit repeats; the request ends and is charged once."""
    service = await starting()
    caller = await calling(service, credits=10)
    queued = await caller.ask(url=[site.url("held/1.png"), site.url("picture/2.png")])
    for read in (KEY_CHECK, QUERY):
        fail_read(read)
        refused = await caller.poll(queued.body["request_id"])
        assert (refused.status, list(refused.body), int(refused.headers["Retry-After"]) > 0) == (503, ["error"], True)
        headers = {name.lower(): value for name, value in refused.headers.items()}
        raw = RawAnswer(refused.status, headers, json.dumps(refused.body).encode())
        assert classify_poll(raw).verdict is ResponseVerdict.THROTTLED
    site.gate.set()
    done = await caller.finished(queued)
    assert (done["status"], done["credits_paid"], done["credits"]) == ("completed", 2, 8)


@pytest.mark.parametrize(
    ("method", "path", "read"),
    [
        ("GET", "/api/credits", KEY_CHECK),
        ("GET", "/api/credits", QUERY),
        ("GET", "/api/backends", KEY_CHECK),
        ("GET", "/api/fetch", KEY_CHECK),
        ("POST", "/api/fetch", KEY_CHECK),
    ],
)
async def test_a_failed_read_asks_to_retry(starting, calling, fail_read, method, path, read):
    """An endpoint whose database fails before anything was charged says when to ask again."""
    caller = await calling(await starting())
    fail_read(read)
    refused = await caller.send(method, path)
    assert (refused.status, list(refused.body), int(refused.headers["Retry-After"]) > 0) == (503, ["error"], True)


async def test_the_client_asks_for_the_balance_again(starting, calling, fail_read):
    """`Client.credits` repeats the query after a 503."""
    service = await starting()
    caller = await calling(service, credits=10)
    async with Client(service.base_url, caller.headers["X-API-Key"].removeprefix("Token ")) as client:
        fail_read(QUERY)
        assert await client.credits() == 10
