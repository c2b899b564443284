"""`lightmeter jobs` lists and cancels unfinished requests while the service runs, on both databases."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest
from click.testing import CliRunner

from lightmeter.cli.commands.jobs import jobs_command
from lightmeter.errors import SettingsError, UsageError
from lightmeter.service.store import requests
from lightmeter.service.store.credits import open_account
from lightmeter.service.store.requests import Attempt, AttemptResult, NewRequest
from lightmeter.service.store.store import Store
from lightmeter.service.store.unfinished_requests import find_cancelled
from lightmeter.wire.request import AnalyzeRequest

# With PostgreSQL too, a request is listed and cancelled daily by the test of one that runs.
repeated_with_postgres = pytest.mark.parametrize(
    "database", ["sqlite", pytest.param("postgresql", marks=[pytest.mark.postgres, pytest.mark.sweep])], indirect=True
)
CANCELLED = "Request failed: the operator of the service cancelled it, and nothing was charged."


def jobs(database, *words):
    """Run `lightmeter jobs`; return its result."""
    return CliRunner().invoke(
        jobs_command, [*words, "--database", database], catch_exceptions=False, standalone_mode=False
    )


async def run(database, *words):
    """Run `lightmeter jobs … --json` in a thread; return its JSON and exit code."""
    result = await asyncio.to_thread(jobs, database, *words, "--json")
    return json.loads(result.stdout), result.return_value


@repeated_with_postgres
async def test_unfinished_requests_are_listed(starting, calling, database, site):
    """Each unfinished request is in the JSON and in the table, until it has finished."""
    service = await starting(database=database)
    caller = await calling(service)
    answer = await caller.ask(url=[site.url("held/1.png"), site.url("held/2.png")])
    await asyncio.to_thread(site.arrived.acquire, timeout=20)
    ((job,),) = ((await run(database, "list"))[0]).values()
    assert (job["request_id"], job["state"], job["assets"]) == (answer.body["request_id"], "running", 2)
    assert (job["held"], job["attempts"], job["created_at"][-6:]) == (2, 1, "+00:00")
    head, line = (await asyncio.to_thread(jobs, database, "list")).stdout.splitlines()
    assert head.split() == list(job)
    assert line.split() == [str(value) for value in job.values()]
    site.gate.set()
    await caller.finished(answer)
    assert await run(database, "list") == ({"jobs": []}, 0)


async def test_a_cancelled_request_fails_and_is_free(starting, calling, database, site, books):
    """Its client reads a failure, its credits are free at once, and the process stops to work on it."""
    service = await starting(database=database)
    caller = await calling(service, credits=10)
    answer = await caller.ask(url=[site.url("held/1.png"), site.url("picture/2.png")])
    single = asyncio.create_task(caller.ask(url=site.url("held/3.png")))
    for _ in range(2):
        await asyncio.to_thread(site.arrived.acquire, timeout=20)
    (account,) = {job["account"] for job in (await run(database, "list"))[0]["jobs"]}
    request_id = answer.body["request_id"]
    assert await run(database, "cancel", request_id) == ({"cancelled": [request_id], "not_found": []}, 0)
    polled = await caller.poll(request_id)
    assert (polled.status, polled.body["status"], polled.body["error"]) == (200, "failed", CANCELLED)
    assert len((await run(database, "cancel", "--account", account))[0]["cancelled"]) == 1
    waited = await asyncio.wait_for(single, 30)  # the site is still silent
    assert (waited.status, waited.body["error"]) == (500, CANCELLED)
    assert await caller.balance() == 10
    (book,) = await books(database)
    assert (book.is_consistent, book.held, book.ledger["revenue"]) == (True, 0, 0)


@repeated_with_postgres
async def test_a_queued_request_is_cancelled_before_it_starts(starting, calling, database, site):
    """A cancelled request that waits in the queue is never run."""
    service = await starting(database=database)
    caller = await calling(service)
    answers = [await caller.ask(url=[site.url(f"held/{n}.png")] * 2) for n in range(20)]
    last = answers[-1].body["request_id"]
    assert (await run(database, "cancel", last))[0]["cancelled"] == [last]
    site.gate.set()
    for each in answers[:-1]:
        assert (await caller.finished(each))["status"] == "completed"
    assert (await caller.poll(last)).body["error"] == CANCELLED
    assert "/held/19.png" not in site.paths


async def test_a_request_is_cancelled_by_its_state_not_by_its_text(starting, calling, database, site):
    """A request that failed with the words of a cancelled one, such as a quoted text, is not cancelled."""
    service = await starting(database=database)
    caller = await calling(service)
    cancelled, failed = [await caller.ask(url=[site.url(f"held/{n}.png"), site.url("held/9.png")]) for n in (1, 2)]
    for _ in range(2):
        await asyncio.to_thread(site.arrived.acquire, timeout=20)
    first, second = (answer.body["request_id"] for answer in (cancelled, failed))
    await run(database, "cancel", first)
    store = Store(database)
    await store.write(
        lambda db: db.execute(
            "UPDATE requests SET state = 'failed', error = ? WHERE request_id = ?", (CANCELLED, second)
        )
    )
    assert await store.read(lambda db: find_cancelled(db, [first, second])) == [first]
    store.close()


async def test_what_cannot_be_cancelled_is_named(database):
    """A request that is not unfinished is named with exit code 1; without any name the command is refused."""
    Store(database).close()
    assert await run(database, "cancel", "abc") == ({"cancelled": [], "not_found": ["abc"]}, 1)
    for words in ((), ("abc", "--account", "alice")):
        with pytest.raises(UsageError, match="either requests or an account"):
            await asyncio.to_thread(jobs, database, "cancel", *words)


@pytest.fixture
def store(postgres):
    """A store on a new PostgreSQL database."""
    store = Store(postgres)
    yield store
    store.close()


async def _wait_for_lock(store):
    sql = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    while not await store.read(lambda db: db.execute(sql)):  # noqa: ASYNC110 (PostgreSQL has no event for it)
        await asyncio.sleep(0.01)


@pytest.mark.postgres
async def test_a_request_that_ends_while_its_account_is_cancelled_is_charged(postgres, store, books):
    """`cancel --account` cancels the others, and does not report that one: it was not named."""
    account_id = await store.write(lambda db: open_account(db, "alice", 10, 0.0))
    echo = AnalyzeRequest(url=["http://site/1.png"]).model_dump_json(exclude={"file"})
    first, second = (f"{number:032x}" for number in (1, 2))
    for request_id in (first, second):
        new = NewRequest(request_id, account_id, echo, b"", (), 1, 0.0, client_polls=False, idempotency_key=None)
        await store.write(lambda db, new=new: requests.admit(db, new, lambda *_: None))
    locked, may_end = threading.Event(), threading.Event()

    def finish(db):
        db.execute("SELECT 1 FROM requests WHERE request_id = ? FOR UPDATE", (second,))
        locked.set()
        assert may_end.wait(60)
        return requests.finish(db, Attempt(second, 1), AttemptResult(1, b"{}", None, 0.0))

    finishing = asyncio.create_task(store.write(finish))
    await asyncio.to_thread(locked.wait, 60)
    cancelling = asyncio.create_task(run(postgres, "cancel", "--account", "alice"))
    await asyncio.wait_for(_wait_for_lock(store), 60)
    may_end.set()
    assert (await finishing).paid == 1
    assert await cancelling == ({"cancelled": [first], "not_found": []}, 0)
    ((free, held),) = [(book.free, book.held) for book in await books(postgres)]
    assert (free, held) == (9, 0)


@pytest.mark.parametrize("words", [("list",), ("cancel", "0" * 32), ("cancel", "--account", "alice")], ids=" ".join)
def test_a_mistyped_database_is_an_error(tmp_path, words):
    """`jobs` does not create an SQLite database."""
    with pytest.raises(SettingsError, match=r"There is no database .*/mistyped\.db"):
        jobs(f"sqlite:///{tmp_path / 'mistyped.db'}", *words)
    assert list(tmp_path.iterdir()) == []
