"""A request that crashes every process fails, and all other requests complete."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import signal
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from lightmeter.service.store.poison import ALONE_AFTER_CRASHES, FAIL_AFTER_CRASHES_ALONE
from lightmeter.service.store.store import Store

OTHER_REQUESTS = 6
BACKEND = """
import os, signal
from lightmeter.wire.response import Entries

class Deadly:
    name = "clarifai"
    features = frozenset({"tags"})

    def warm(self):
        pass

    def analyze(self, pictures, features, options):
        for picture in pictures:
            if tuple(picture[0, 0]) == (250, 0, 0):
                os.kill(os.getpid(), signal.SIGKILL)
        return [Entries() for _ in pictures]
"""
"""A back end that kills its process when it gets a red picture."""


@pytest.fixture
def poisoned_service(tmp_path, processes):
    """Return a function that starts a service with that back end, installed as another package."""
    folder = tmp_path / "packages"
    facts = folder / "deadly-1.dist-info"
    facts.mkdir(parents=True)
    (folder / "deadly.py").write_text(BACKEND)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: deadly\nVersion: 1\n")
    (facts / "entry_points.txt").write_text("[lightmeter.backends]\nclarifai = deadly:Deadly\n")

    def make(database):
        process = processes(database)
        process.backends, process.lease_s = "palette,clarifai", "1"
        process.environment["PYTHONPATH"] = os.pathsep.join([str(folder), process.environment.get("PYTHONPATH", "")])
        process.begin()
        return process

    return make


def picture(red: int) -> str:
    """Return a picture of one color as base64."""
    file = BytesIO()
    Image.fromarray(np.full((24, 32, 3), (red, 0, 0), np.uint8)).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


async def keep_alive(process, until):
    """Restart the process whenever it has crashed; return the number of crashes."""
    crashes = 0
    while not until.is_set():
        if process.has_died():
            crashes += 1
            await asyncio.to_thread(process.begin)
        await asyncio.sleep(0.01)
    return crashes


async def wait_for_result(process, caller, request_id):
    """Return the answer of a request, polled over any number of crashes."""
    for _ in range(3000):
        caller.base_url = process.base_url
        try:
            polled = await caller.poll(request_id)
        except (OSError, AssertionError):  # it has crashed, or is crashing
            await asyncio.sleep(0.02)
            continue
        if polled.body["status"] != "processing":
            return polled.body
        await asyncio.sleep(0.02)
    pytest.fail("it never ended")


async def test_a_poison_request_fails_and_others_complete(poisoned_service, database, calling, books):
    """The request fails after a fixed number of crashes; all others complete, and the ledger is consistent."""
    process = poisoned_service(database)
    caller = await calling(process, credits=100)
    over = asyncio.Event()
    process.running.signal(signal.SIGSTOP)  # so that all requests are there when it continues
    asking = [
        asyncio.create_task(caller.ask(file=[picture(250 if number == 2 else number), picture(99)]))
        for number in range(OTHER_REQUESTS + 1)
    ]
    await asyncio.sleep(0.2)
    process.running.signal(signal.SIGCONT)
    answers = await asyncio.gather(*asking, return_exceptions=True)
    acknowledged = [answer.body["request_id"] for answer in answers if not isinstance(answer, BaseException)]
    keeping = asyncio.create_task(keep_alive(process, over))
    bodies = [await wait_for_result(process, caller, name) for name in acknowledged]
    over.set()
    crashes = await keeping
    failed = [body for body in bodies if body["status"] == "failed"]
    assert len(failed) == 1, bodies
    assert re.match(rf"Request failed: the service ended {FAIL_AFTER_CRASHES_ALONE} times while", failed[0]["error"])
    assert crashes == ALONE_AFTER_CRASHES + FAIL_AFTER_CRASHES_ALONE
    completed = [body for body in bodies if body["status"] == "completed"]
    assert len(completed) == len(acknowledged) - 1
    (book,) = await books(database)
    paid = [body["credits_paid"] for body in completed]
    # A request whose acknowledgment was lost in a crash completes and is charged, but its id is unknown here.
    lost = len(answers) - len(acknowledged)
    assert (book.is_consistent, book.held) == (True, 0)
    assert book.ledger["revenue"] - sum(paid) in {number * paid[0] for number in range(lost + 1)}


@pytest.mark.sweep
async def test_suspects_that_cause_no_crash_complete(processes, database, calling, site, encoded):
    """Harmless requests that ran during several crashes complete and are charged once."""
    process = processes(database)
    process.lease_s = "1"
    process.begin()
    caller = await calling(process, credits=100)
    urls = [[site.url(f"held/{number}.png"), site.url("picture/9.png")] for number in range(3)]
    answers = [await caller.ask(url=each) for each in urls]
    for _ in range(ALONE_AFTER_CRASHES):
        for _ in answers:
            assert await asyncio.to_thread(site.arrived.acquire, timeout=20)
        process.end(signal.SIGKILL)
        process.begin()
    assert await asyncio.to_thread(site.arrived.acquire, timeout=20)
    assert not await asyncio.to_thread(site.arrived.acquire, timeout=0.3)  # one runs alone; the others wait
    caller.base_url = process.base_url
    other_request = asyncio.create_task(caller.ask(file=encoded(5)))  # another caller waits too
    await asyncio.sleep(0.1)
    assert not other_request.done()
    process.end(signal.SIGKILL)
    await asyncio.gather(other_request, return_exceptions=True)
    site.gate.set()
    process.begin()
    caller.base_url = process.base_url
    bodies = [await caller.finished(answer) for answer in answers]
    assert [(body["status"], body["credits_paid"]) for body in bodies] == [("completed", 2)] * 3
    store = Store(database)
    counts = "SELECT deaths, deaths_alone FROM requests ORDER BY deaths_alone"
    assert await store.read(lambda db: db.execute(counts)) == [(ALONE_AFTER_CRASHES, 0)] * 2 + [
        (ALONE_AFTER_CRASHES, 1)
    ]
    store.close()


async def test_other_requests_get_503_while_a_suspect_runs_alone(process, calling, site, encoded):
    """While a request runs alone, another one gets 503 with Retry-After, and no credits are reserved for it."""
    process.begin()
    caller = await calling(process, credits=10)
    answered = await caller.ask(url=[site.url("held/1.png"), site.url("picture/9.png")])  # one fetch per attempt
    for _ in range(ALONE_AFTER_CRASHES):
        assert await asyncio.to_thread(site.arrived.acquire, timeout=20)
        process.end(signal.SIGKILL)
        process.begin()
    caller.base_url = process.base_url
    assert await asyncio.to_thread(site.arrived.acquire, timeout=20)
    refused = await caller.ask(file=encoded(1))
    assert (refused.status, int(refused.headers["Retry-After"]) >= 1, await caller.balance()) == (503, True, 8)
    site.gate.set()
    assert (await caller.finished(answered))["credits_paid"] == 2
    assert (await caller.ask(file=encoded(1))).status == 200


async def test_a_regular_stop_is_no_crash(starting, calling, portal, site):
    """A request that a stopping service cannot finish is queued again, and no crash is counted."""
    service = await starting(drain_s=0.2)
    caller = await calling(service, credits=10)
    answered = await caller.ask(url=[site.url("held/1.png"), site.url("held/2.png")])
    assert await asyncio.to_thread(site.arrived.acquire, timeout=20)
    await portal.call(service.close())
    store = Store(service.database)
    query = "SELECT state, attempts, deaths, deaths_alone FROM requests"
    assert await store.read(lambda db: db.execute(query)) == [("queued", 1, 0, 0)]
    site.gate.set()
    second = await starting(database=service.database)
    caller.base_url = second.base_url
    assert (await caller.finished(answered))["credits_paid"] == 2
    assert await store.read(lambda db: db.execute(query)) == [("completed", 2, 0, 0)]
    store.close()
