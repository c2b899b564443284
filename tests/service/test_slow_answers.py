"""A client waits for the answer of a slow request only for some seconds; then it gets the request id and polls."""

from __future__ import annotations

import asyncio
import threading

import pytest

from lightmeter.service.backends.base import BackendTraits
from lightmeter.service.backends.catalog import BackendCatalog, CatalogEntry
from lightmeter.service.http import handlers
from lightmeter.wire.response import Entries, Tag


class Gate:
    """A back end whose calls wait until a test opens it."""

    name = "gate"
    features = frozenset({"tags"})
    traits = BackendTraits(calls_network=True)

    def __init__(self):
        self.opened = threading.Event()

    def warm(self):
        """Do nothing: there is no model."""

    def analyze(self, pictures, features, options):
        """Return one tag for each picture."""
        self.opened.wait(60)
        return [Entries(tags={"thing": [Tag(name="thing", score=1.0, source="gate")]}) for _ in pictures]


def catalog(gate):
    return BackendCatalog([CatalogEntry("gate", gate.features, {"tags": 1000}, lambda _: gate)])


@pytest.fixture(autouse=True)
def _little_patience(monkeypatch):
    monkeypatch.setattr(handlers, "MAX_WAIT_S", 0.2)


@pytest.fixture
def gate():
    """A closed gate, which is opened at the end of the test."""
    gate = Gate()
    yield gate
    gate.opened.set()


@pytest.mark.parametrize("headers", [{}, {"Idempotency-Key": "one"}], ids=["plain", "with a key"])
async def test_a_slow_upload_is_acknowledged_and_polled(starting, calling, encoded, gate, headers):
    """The answer has all fields of an acknowledgment; the request goes on, and is charged once."""
    caller = await calling(await starting(catalog=catalog(gate), backends=("gate",)))
    answered = await caller.ask(file=encoded(), headers=headers)
    assert (answered.status, answered.body["status"], answered.body["success"]) == (200, "queued", True)
    assert answered.body["response_uri"].endswith(f"/api/response/{answered.body['request_id']}")
    assert (answered.body["files"], answered.body["urls"]) == (1, [])
    assert (await caller.poll(answered.body["request_id"])).body["status"] == "processing"
    gate.opened.set()
    done = await caller.finished(answered)
    assert (done["status"], done["credits_paid"], await caller.balance()) == ("completed", 1, 999)
    assert done["all"]["assets"][0]["tags"]["thing"]


async def test_a_slow_url_is_acknowledged(caller, site):
    """A URL whose host is slow gets an acknowledgment, and the result later."""
    answered = await caller.ask(url=site.url("held/1.png"))
    assert answered.body["status"] == "queued"
    site.gate.set()
    assert (await caller.finished(answered))["credits_paid"] == 1


async def test_a_repeated_slow_request_is_acknowledged_too(starting, calling, encoded, gate):
    """A client that repeats a slow request with its idempotency key waits no longer, and gets the same request id."""
    caller = await calling(await starting(catalog=catalog(gate), backends=("gate",)))
    headers = {"Idempotency-Key": "again"}
    first, second = await asyncio.gather(*(caller.ask(file=encoded(), headers=headers) for _ in range(2)))
    assert first.body["status"] == second.body["status"] == "queued"
    assert first.body["request_id"] == second.body["request_id"]
    gate.opened.set()
    assert (await caller.finished(second))["credits_paid"] == 1
    assert await caller.balance() == 999


async def test_an_acknowledged_upload_survives_a_restart(starting, calling, encoded, gate, database, portal):
    """The upload is stored with the acknowledgment: after a restart the request runs again."""
    service = await starting(database=database, catalog=catalog(gate), backends=("gate",), drain_s=0.1, lease_s=1)
    caller = await calling(service)
    answered = await caller.ask(file=encoded())
    assert answered.body["status"] == "queued"
    await portal.call(service.close())
    gate.opened.set()
    caller.base_url = (await starting(database=database, catalog=catalog(gate), backends=("gate",))).base_url
    done = await caller.finished(answered)
    assert (done["status"], done["credits_paid"], await caller.balance()) == ("completed", 1, 999)
    assert done["all"]["assets"][0]["tags"]["thing"]
