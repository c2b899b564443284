"""A caller that stops reading the progress of a run loses no answer that is paid for."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
from contextlib import contextmanager

import pytest
from aiohttp import web

import lightmeter as lm
from lightmeter.api.background_generator import cancel_all_work, in_background
from lightmeter.api.runs import stream_run
from tests.engine.hostile import Hostile, listening
from tests.sweeps import sweep

ROWS = 12
pytestmark = pytest.mark.usefixtures("charges_at_once")


class Slow(Hostile):
    """A service that charges requests at once, and answers after four of them and half a second."""

    def __init__(self) -> None:
        super().__init__(lambda *_: "")
        self.all_here = threading.Event()

    async def fetch(self, request: web.Request) -> web.StreamResponse:
        urls = [json.loads(await request.read())["url"]]
        self.posts += 1
        answer = self.answer(urls)
        if self.posts >= 4:
            self.all_here.set()
        await asyncio.sleep(0.5)
        return web.json_response(answer)


@contextmanager
def slow_service():
    """Start a slow service in a background thread; yields it and its base URL."""
    slow, ready, done, address = Slow(), threading.Event(), threading.Event(), []

    async def serve():
        async with listening(slow) as base_url:
            address.append(base_url)
            ready.set()
            await asyncio.to_thread(done.wait)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    ready.wait()
    try:
        yield slow, address[0]
    finally:
        done.set()
        thread.join()


async def begun(slow, base_url, out):
    """Start a run, and return its generator with four requests in flight."""
    urls = [f"http://pictures.example/{number}.jpg" for number in range(ROWS)]
    options = {"features": ["tags"], "backends": ["clarifai"], "precheck": False, "base_url": base_url}
    steps = stream_run(await lm.aio.plan(urls, max_concurrency=4, **options), out)
    async for _ in steps:
        if slow.all_here.is_set():
            return steps
    raise AssertionError("the run ended before anybody left it")


async def broken_off(slow, base_url, out):
    await begun(slow, base_url, out)  # the generator is dropped at once


async def broken_off_and_collected(slow, base_url, out):
    await begun(slow, base_url, out)
    gc.collect()
    await asyncio.sleep(0)


GENERATORS = []


async def generator_with_a_name(slow, base_url, out):
    GENERATORS.append(await begun(slow, base_url, out))


async def closed(slow, base_url, out):
    await (await begun(slow, base_url, out)).aclose()


async def cancelled(slow, base_url, out):
    async def watched():
        async for _ in await begun(slow, base_url, out):
            pass

    task = asyncio.create_task(watched())
    await asyncio.to_thread(slow.all_here.wait)
    task.cancel()
    await asyncio.wait({task})


@pytest.mark.parametrize(
    "left",
    [
        broken_off_and_collected,
        cancelled,
        *map(sweep, (broken_off, generator_with_a_name, closed)),
    ],
)
def test_leaving_a_run_keeps_every_paid_answer(left, tmp_path):
    """However a caller leaves the progress loop, requests in flight are awaited, and no more are sent."""
    with slow_service() as (slow, base_url):
        asyncio.run(left(slow, base_url, tmp_path / "out"))
        summary = lm.open(tmp_path / "out").summary()
        GENERATORS.clear()
        assert summary.counts["in_doubt"] == 0
        assert summary.paid == len(slow.charged) == summary.counts["ok"]
        assert 4 <= len(slow.charged) < ROWS


def test_a_loop_that_is_closed_without_a_word_loses_nothing(tmp_path):
    """If the caller's loop is closed without waiting, the background work still ends in order."""
    with slow_service() as (slow, base_url):
        loop = asyncio.new_event_loop()
        steps = loop.run_until_complete(begun(slow, base_url, tmp_path / "out"))
        loop.close()
        del steps
        for thread in threading.enumerate():
            if thread.name == "lightmeter-run":
                thread.join(20)
        summary = lm.open(tmp_path / "out").summary()
        assert summary.counts["in_doubt"] == 0
        assert summary.paid == len(slow.charged) == summary.counts["ok"] < ROWS


async def test_values_and_errors_come_through():
    """The caller gets what the generator yields and raises; its threads end with it."""

    async def steps(_):
        yield 1
        yield 2
        raise ValueError("as it was raised")

    watched = in_background(steps)
    assert [await anext(watched), await anext(watched)] == [1, 2]
    with pytest.raises(ValueError, match="as it was raised"):
        await anext(watched)
    assert "lightmeter-run" not in {thread.name for thread in threading.enumerate()}


async def test_a_stop_reaches_the_work():
    """The stop event of the caller's loop stops the generator in the background loop."""
    stop = asyncio.Event()

    async def steps(event):
        yield "begun"
        await event.wait()
        yield "stopped"

    values = []
    async for value in in_background(steps, stop):
        values.append(value)
        stop.set()
    assert values == ["begun", "stopped"]


async def test_work_can_be_cancelled_at_once():
    """cancel_all_work also cancels requests in flight."""
    ended = []

    async def steps(_):
        try:
            yield "begun"
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    watched = in_background(steps)
    assert await anext(watched) == "begun"
    cancel_all_work()
    with pytest.raises(asyncio.CancelledError):
        await anext(watched)
    assert ended == [True]
