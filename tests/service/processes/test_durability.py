"""What was acknowledged is finished by the next start, what was not is not charged; both happen once."""

from __future__ import annotations

import asyncio
import contextlib
import signal

import aiohttp
import apsw

from lightmeter.clock import SystemClock


async def arrives(site) -> None:
    """Wait until a `/held/` URL is being fetched."""
    assert await asyncio.to_thread(site.arrived.acquire, timeout=20)


async def cut_off(asked: asyncio.Task) -> None:
    """The caller sees its connection break."""
    with contextlib.suppress(aiohttp.ClientError):
        await asked
        raise AssertionError("it was answered")


async def test_an_acknowledged_request_survives_kill_9(process, calling, site, encoded):
    """After a restart its id answers, uploads included, and it is charged once."""
    process.begin()
    caller = await calling(process, credits=10)
    urls = [site.url("held/1.png"), site.url("picture/2.png")]
    answered = await caller.ask(url=urls, file=[encoded(3)], file_name=["c.png"])
    await arrives(site)
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
    """A synchronous request that became an acknowledged one."""
    process.begin()
    caller = await calling(process, credits=10)
    answered = await caller.ask(url=site.url("video/untold"))
    process.end(signal.SIGKILL)
    process.begin()
    caller.base_url = process.base_url
    done = await caller.finished(answered)
    assert (len(done["all"]["assets"][0]["frames"]), done["credits_paid"], await caller.balance()) == (3, 3, 7)


async def test_a_synchronous_request_cut_off_is_not_charged(process, calling, site):
    """Nobody got its answer, so nobody pays: the hold is given back, and its id is unknown."""
    process.begin()
    caller = await calling(process, credits=10)
    asked = asyncio.create_task(caller.ask(url=site.url("held/1.png")))
    await arrives(site)
    process.end(signal.SIGKILL)
    await cut_off(asked)
    process.begin()
    caller.base_url = process.base_url
    assert await caller.balance() == 10


async def test_a_key_outlives_a_restart(process, calling, encoded):
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


async def test_a_key_of_a_request_cut_off_is_free_again(process, calling, site):
    """What was undone can be asked again under its key, and is charged then."""
    process.begin()
    caller = await calling(process, credits=10)
    name = {"Idempotency-Key": "order"}
    asked = asyncio.create_task(caller.ask(name, url=site.url("held/1.png")))
    await arrives(site)
    process.end(signal.SIGKILL)
    await cut_off(asked)
    site.gate.set()
    process.begin()
    caller.base_url = process.base_url
    answered = await caller.ask(name, url=site.url("held/1.png"))
    assert (answered.body["status"], answered.body["credits"]) == ("completed", 9)


async def test_sigterm_lets_running_requests_finish(process, calling, site):
    """The caller that waits is answered, then the process ends with 0."""
    process.begin()
    caller = await calling(process, credits=10)
    asked = asyncio.create_task(caller.ask(url=site.url("held/1.png")))
    await arrives(site)
    ended = asyncio.create_task(asyncio.to_thread(process.end, signal.SIGTERM))
    site.gate.set()
    answered = await asked
    assert (answered.status, answered.body["status"], answered.body["credits"]) == (200, "completed", 9)
    assert await ended == 0


async def test_an_embedded_service_drains_too(starting, calling, portal, site):
    """Closing it in the middle of a request answers that request."""
    service = await starting()
    caller = await calling(service, credits=10)
    asked = asyncio.create_task(caller.ask(url=site.url("held/1.png")))
    await arrives(site)
    closing = asyncio.create_task(portal.call(service.close()))
    site.gate.set()
    assert (await asked).body["status"] == "completed"
    await closing


def rows(service, query: str) -> list[tuple]:
    """What the file of a service holds."""
    db = apsw.Connection(service.database.removeprefix("sqlite:///"), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return list(db.execute(query))
    finally:
        db.close()


async def test_uploads_do_not_stay(starting, calling, encoded):
    """When a request is done its files are gone from the database."""
    service = await starting()
    caller = await calling(service, credits=10)
    await caller.finished(await caller.ask(file=[encoded(1), encoded(2)]))
    await caller.ask(file=encoded(3))
    assert rows(service, "SELECT count(*) FROM uploads") == [(0,)]


class LaterClock(SystemClock):
    """The machine's clock, two days on."""

    def now(self) -> float:
        return super().now() + 2 * 24 * 3600


async def test_expired_results_are_forgotten_and_their_charges_kept(starting, calling, portal, encoded):
    """The database does not grow for ever; the ledger is for ever."""
    first = await starting()
    caller = await calling(first, credits=10)
    await caller.ask({"Idempotency-Key": "old"}, file=encoded())
    await portal.call(first.close())
    second = await starting(clock=LaterClock(), database=first.database)
    caller.base_url = second.base_url
    for _ in range(200):
        if not (left := rows(second, "SELECT request_id FROM requests")):
            break
        await asyncio.sleep(0.02)
    assert left == []
    assert rows(second, "SELECT debit, credit, amount FROM ledger") == [
        ("grants", "free", 10),
        ("free", "held", 1),
        ("held", "revenue", 1),
    ]
    assert await caller.balance() == 9
