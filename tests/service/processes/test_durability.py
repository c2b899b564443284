"""After a crash, requests whose clients poll are finished and charged once; others are not charged."""

from __future__ import annotations

import asyncio
import contextlib
import signal

import aiohttp
import apsw
import pytest

from lightmeter.clock import SystemClock


async def wait_for_fetch(site) -> None:
    """Wait until a `/held/` URL is being fetched."""
    assert await asyncio.to_thread(site.arrived.acquire, timeout=20)


async def expect_disconnect(request: asyncio.Task) -> None:
    """Wait until the client's connection breaks."""
    with contextlib.suppress(aiohttp.ClientError):
        await request
        raise AssertionError("it was answered")


async def test_an_acknowledged_request_survives_kill_9(process, calling, site, encoded):
    """After a restart the request completes, including its uploads, and is charged once."""
    process.begin()
    caller = await calling(process, credits=10)
    urls = [site.url("held/1.png"), site.url("picture/2.png")]
    answered = await caller.ask(url=urls, file=[encoded(3)], file_name=["c.png"])
    await wait_for_fetch(site)
    assert await caller.balance() == 7
    process.end(signal.SIGKILL)

    site.gate.set()
    process.begin()
    caller.base_url = process.base_url
    done = await caller.finished(answered)
    assert (done["status"], done["credits_paid"], done["credits"], done["files"]) == ("completed", 3, 7, 1)
    assert [asset["name"] for asset in done["all"]["assets"]] == [*urls, "c.png"]

    process.end(signal.SIGKILL)
    process.begin()
    caller.base_url = process.base_url
    assert (await caller.poll(done["request_id"])).body == done
    assert await caller.balance() == 7


async def test_a_video_found_by_its_content_survives_kill_9(process, calling, site):
    """A request for one URL that turned out to be a video completes after kill -9."""
    process.begin()
    caller = await calling(process, credits=10)
    answered = await caller.ask(url=site.url("video/untold"))
    process.end(signal.SIGKILL)
    process.begin()
    caller.base_url = process.base_url
    done = await caller.finished(answered)
    assert (len(done["all"]["assets"][0]["frames"]), done["credits_paid"], await caller.balance()) == (3, 3, 7)


async def test_an_interrupted_synchronous_request_is_not_charged(process, calling, site):
    """A synchronous request that was not answered is deleted after a restart, and its credits are released."""
    process.begin()
    caller = await calling(process, credits=10)
    request = asyncio.create_task(caller.ask(url=site.url("held/1.png")))
    await wait_for_fetch(site)
    process.end(signal.SIGKILL)
    await expect_disconnect(request)
    process.begin()
    caller.base_url = process.base_url
    assert await caller.balance() == 10


async def test_an_idempotency_key_survives_kill_9(process, calling, encoded):
    """The same Idempotency-Key before and after kill -9: one answer, one charge."""
    process.begin()
    caller = await calling(process, credits=10)
    name = {"Idempotency-Key": "order"}
    first = await caller.ask(name, file=encoded())
    process.end(signal.SIGKILL)
    process.begin()
    caller.base_url = process.base_url
    assert (await caller.ask(name, file=encoded())).body == first.body
    assert await caller.balance() == 9


@pytest.mark.sweep
async def test_the_key_of_an_interrupted_request_can_be_used_again(process, calling, site):
    """After a restart a new request under the key is processed and charged."""
    process.begin()
    caller = await calling(process, credits=10)
    name = {"Idempotency-Key": "order"}
    request = asyncio.create_task(caller.ask(name, url=site.url("held/1.png")))
    await wait_for_fetch(site)
    process.end(signal.SIGKILL)
    await expect_disconnect(request)
    site.gate.set()
    process.begin()
    caller.base_url = process.base_url
    answered = await caller.ask(name, url=site.url("held/1.png"))
    assert (answered.body["status"], answered.body["credits"]) == ("completed", 9)


async def test_sigterm_lets_running_requests_finish(process, calling, site):
    """On SIGTERM the service answers the waiting client, then the process ends with exit code 0."""
    process.begin()
    caller = await calling(process, credits=10)
    request = asyncio.create_task(caller.ask(url=site.url("held/1.png")))
    await wait_for_fetch(site)
    ended = asyncio.create_task(asyncio.to_thread(process.end, signal.SIGTERM))
    site.gate.set()
    answered = await request
    assert (answered.status, answered.body["status"], answered.body["credits"]) == (200, "completed", 9)
    assert await ended == 0


async def test_an_embedded_service_finishes_running_requests(starting, calling, portal, site):
    """Closing an embedded service answers the running request first."""
    service = await starting()
    caller = await calling(service, credits=10)
    request = asyncio.create_task(caller.ask(url=site.url("held/1.png")))
    await wait_for_fetch(site)
    closing = asyncio.create_task(portal.call(service.close()))
    site.gate.set()
    assert (await request).body["status"] == "completed"
    await closing


def query_rows(service, query: str) -> list[tuple]:
    """Return rows of a service's SQLite file."""
    db = apsw.Connection(service.database.removeprefix("sqlite:///"), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return list(db.execute(query))
    finally:
        db.close()


async def test_uploads_are_deleted(starting, calling, encoded):
    """When a request has finished, its uploads are deleted from the database."""
    service = await starting()
    caller = await calling(service, credits=10)
    await caller.finished(await caller.ask(file=[encoded(1), encoded(2)]))
    await caller.ask(file=encoded(3))
    assert query_rows(service, "SELECT count(*) FROM uploads") == [(0,)]


class LaterClock(SystemClock):
    """The system clock, two days ahead."""

    def now(self) -> float:
        return super().now() + 2 * 24 * 3600


async def test_expired_results_are_deleted_and_the_ledger_stays(starting, calling, portal, encoded):
    """Expired requests are deleted, and their ledger entries stay."""
    first = await starting()
    caller = await calling(first, credits=10)
    await caller.ask({"Idempotency-Key": "old"}, file=encoded())
    await portal.call(first.close())
    second = await starting(clock=LaterClock(), database=first.database)
    caller.base_url = second.base_url
    for _ in range(200):
        if not (left := query_rows(second, "SELECT request_id FROM requests")):
            break
        await asyncio.sleep(0.02)
    assert left == []
    assert query_rows(second, "SELECT debit, credit, amount FROM ledger") == [
        ("grants", "free", 10),
        ("free", "held", 1),
        ("held", "revenue", 1),
    ]
    assert await caller.balance() == 9
