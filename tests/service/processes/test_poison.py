"""A request that ends each process that does it is found out; its neighbours are done, whatever it does to them."""

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

from lightmeter.service.store.poison import GIVEN_UP_AFTER, SUSPECT_AFTER
from lightmeter.service.store.store import Store

NEIGHBOURS = 6
BACKEND = """
import os, signal
from lightmeter.models.response import Entries

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
"""Ends its process when it sees something red."""


@pytest.fixture
def deadly(tmp_path, processes):
    """Makes processes with a back end of that kind, which another package brings, and begins them."""
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
    """One colour, as base64."""
    file = BytesIO()
    Image.fromarray(np.full((24, 32, 3), (red, 0, 0), np.uint8)).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


async def keep_alive(process, until):
    """Begin it again whenever it has died; returns how often that was."""
    deaths = 0
    while not until.is_set():
        if process.has_died():
            deaths += 1
            await asyncio.to_thread(process.begin)
        await asyncio.sleep(0.01)
    return deaths


async def ended(process, caller, request_id):
    """How a request ended, over any number of deaths."""
    for _ in range(3000):
        caller.base_url = process.base_url
        try:
            polled = await caller.poll(request_id)
        except (OSError, AssertionError):  # it is dead, or dies
            await asyncio.sleep(0.02)
            continue
        if polled.body["status"] != "processing":
            return polled.body
        await asyncio.sleep(0.02)
    pytest.fail("it never ended")


async def test_a_poison_fails_and_its_neighbours_complete(deadly, database, calling, books):
    """It is given up with its cause after a known number of deaths; all others are done, and the books agree."""
    process = deadly(database)
    caller = await calling(process, credits=100)
    over = asyncio.Event()
    process.running.send_signal(signal.SIGSTOP)  # so that all are there when it begins
    asking = [
        asyncio.create_task(caller.ask(file=[picture(250 if number == 2 else number), picture(99)]))
        for number in range(NEIGHBOURS + 1)
    ]
    await asyncio.sleep(0.2)
    process.running.send_signal(signal.SIGCONT)
    answers = await asyncio.gather(*asking, return_exceptions=True)
    acknowledged = [answer.body["request_id"] for answer in answers if not isinstance(answer, BaseException)]
    keeping = asyncio.create_task(keep_alive(process, over))
    bodies = [await ended(process, caller, name) for name in acknowledged]
    over.set()
    deaths = await keeping
    failed = [body for body in bodies if body["status"] == "failed"]
    assert len(failed) == 1, bodies
    assert re.match(rf"Request failed: the service ended {GIVEN_UP_AFTER} times while", failed[0]["error"])
    assert deaths == SUSPECT_AFTER + GIVEN_UP_AFTER
    completed = [body for body in bodies if body["status"] == "completed"]
    assert len(completed) == len(acknowledged) - 1
    (book,) = await books(database)
    paid = [body["credits_paid"] for body in completed]
    # Whose answer was lost with the process, after it was written down: done and charged, and nobody knows its name.
    lost = len(answers) - len(acknowledged)
    assert (book.is_consistent, book.held) == (True, 0)
    assert book.ledger["revenue"] - sum(paid) in {number * paid[0] for number in range(lost + 1)}


async def test_bystanders_of_many_deaths_are_done(processes, database, calling, site, encoded):
    """In work at several deaths beside others, and killed from outside once while alone: done, and charged once."""
    process = processes(database)
    process.lease_s = "1"
    process.begin()
    caller = await calling(process, credits=100)
    urls = [[site.url(f"held/{number}.png"), site.url("picture/9.png")] for number in range(3)]
    answers = [await caller.ask(url=each) for each in urls]
    for _ in range(SUSPECT_AFTER):
        for _ in answers:
            assert await asyncio.to_thread(site.arrived.acquire, timeout=20)
        process.end(signal.SIGKILL)
        process.begin()
    assert await asyncio.to_thread(site.arrived.acquire, timeout=20)
    assert not await asyncio.to_thread(site.arrived.acquire, timeout=0.3)  # one alone; the others wait for it to end
    caller.base_url = process.base_url
    asked = asyncio.create_task(caller.ask(file=encoded(5)))  # and so does a caller, for a while
    await asyncio.sleep(0.1)
    assert not asked.done()
    process.end(signal.SIGKILL)
    await asyncio.gather(asked, return_exceptions=True)
    site.gate.set()
    process.begin()
    caller.base_url = process.base_url
    bodies = [await caller.finished(answer) for answer in answers]
    assert [(body["status"], body["credits_paid"]) for body in bodies] == [("completed", 2)] * 3
    store = Store(database)
    counts = "SELECT deaths, deaths_alone FROM requests ORDER BY deaths_alone"
    assert await store.read(lambda db: db.execute(counts)) == [(SUSPECT_AFTER, 0)] * 2 + [(SUSPECT_AFTER, 1)]
    store.close()


async def test_a_caller_is_told_to_come_again_while_a_suspect_is_alone(process, calling, site, encoded):
    """It waits a little, and then it is 503 with Retry-After; nothing is held for it."""
    process.begin()
    caller = await calling(process, credits=10)
    answered = await caller.ask(url=[site.url("held/1.png"), site.url("picture/9.png")])  # one arrival an attempt
    for _ in range(SUSPECT_AFTER):
        assert await asyncio.to_thread(site.arrived.acquire, timeout=20)
        process.end(signal.SIGKILL)
        process.begin()
    caller.base_url = process.base_url
    assert await asyncio.to_thread(site.arrived.acquire, timeout=20)
    told = await caller.ask(file=encoded(1))
    assert (told.status, int(told.headers["Retry-After"]) >= 1, await caller.balance()) == (503, True, 8)
    site.gate.set()
    assert (await caller.finished(answered))["credits_paid"] == 2
    assert (await caller.ask(file=encoded(1))).status == 200


async def test_a_drain_is_no_death(starting, calling, portal, site):
    """When a service is stopped in good order, what it could not finish is put back, and not suspected."""
    service = await starting(drain_s=0.2)
    caller = await calling(service, credits=10)
    answered = await caller.ask(url=[site.url("held/1.png"), site.url("held/2.png")])
    assert await asyncio.to_thread(site.arrived.acquire, timeout=20)
    await portal.call(service.close())
    store = Store(service.database)
    look = "SELECT state, attempts, deaths, deaths_alone FROM requests"
    assert await store.read(lambda db: db.execute(look)) == [("queued", 1, 0, 0)]
    site.gate.set()
    second = await starting(database=service.database)
    caller.base_url = second.base_url
    assert (await caller.finished(answered))["credits_paid"] == 2
    assert await store.read(lambda db: db.execute(look)) == [("completed", 2, 0, 0)]
    store.close()
