"""A key's budget with a real service: one budget for all spellings of the address, all processes, any clock."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import sys
import textwrap
from contextlib import closing
from pathlib import Path

import apsw
import pytest
from pydantic import SecretStr

import lightmeter as lm
from lightmeter.clock import SystemClock
from lightmeter.embedded_service import Endpoint
from lightmeter.journal.commands.submissions import put_meta
from lightmeter.journal.key_ledger import KeyLedger, RunCredits, ledger_account
from lightmeter.journal.store import Journal
from lightmeter.money.key_budget import FILE_NAME, open_key_budget
from lightmeter.settings import read_settings
from tests.engine.hostile import Hostile, listening

IMAGES = [{"url": f"http://pictures.example/{number}.jpg"} for number in range(12)]
OPTIONS = {"features": ["tags"], "backends": ["clarifai"], "precheck": False}
MARCH, APRIL = 1_772_700_000.0, 1_775_400_000.0  # 2026-03-05 and 2026-04-05, UTC

RUN = textwrap.dedent("""
    import sys
    import lightmeter as lm
    base_url, name, out = sys.argv[1:]
    urls = [f"http://{name}.example/{number}.jpg" for number in range(30)]
    plan = lm.sync(lm.plan(urls, features=["tags"], backends=["clarifai"], precheck=False, base_url=base_url))
    lm.sync(lm.run(plan, out))
""")


def spellings(base_url: str) -> list[str]:
    """Return base URLs that all reach a service on 127.0.0.1."""
    port = base_url.rpartition(":")[2]
    return [base_url, f"{base_url}/", f"http://localhost:{port}", f"HTTP://LocalHost:{port}/"]


class Fixed(SystemClock):
    """A clock whose time of day can be set."""

    at = MARCH

    def now(self) -> float:
        return self.at


def journal_in(folder: Path, **meta: str) -> Path:
    """Create an empty journal with these meta entries."""
    with Journal(folder) as journal:
        journal.submit(put_meta(meta)).result()
    return folder


def record_paid(path: Path, account: str, run_id: str, folder: Path, **paid: int) -> None:
    """Record that a run paid these credits in each period."""
    with closing(KeyLedger(path, account, run_id, folder)) as ledger:
        before = 0
        for period, credits_ in paid.items():
            name = period.removeprefix("in_").replace("_", "-")
            ledger.record(name, RunCredits(before, 0))
            before += credits_
            ledger.record(name, RunCredits(before, 0))


def key_spent(path: Path) -> int:
    """Return the credits that the file of a ledger counts in March 2026."""
    with closing(KeyLedger(path, ledger_account("key"), "reader", path)) as ledger:
        return ledger.spent("2026-03")


def former_account(base_url: str, key: str) -> str:
    """Return the account name of older versions, which depended on the base URL."""
    return hashlib.sha256(f"{base_url}\0{key}".encode()).hexdigest()


async def test_the_budget_of_a_key_holds_for_every_spelling_of_the_address(tmp_path, charges_at_once, monkeypatch):
    """A key has one budget, whatever host name, trailing slash or capitals the base URL uses."""
    monkeypatch.setenv("LIGHTMETER_KEY_BUDGET", "8")
    service = Hostile(lambda *_: "well")
    async with listening(service) as base_url:
        for number, spelling in enumerate(spellings(base_url)):
            urls = [f"http://pictures.example/{number}-{picture}.jpg" for picture in range(5)]
            await lm.run(await lm.plan(urls, base_url=spelling, **OPTIONS), tmp_path / f"out{number}")
    assert len(service.charged) == 8


@pytest.mark.parametrize(
    ("rows", "options", "charged"),
    [
        ([{"url": "http://pictures.example/v.mp4"}, *IMAGES[:6]], {"max_frames": 20}, 6),
        (IMAGES, {"batch_size": 5}, 7),
        ([{"url": "http://pictures.example/v.mp4"}, *IMAGES[:6]], {"max_frames": 20, "sample": "random"}, 1),
    ],
)
async def test_the_rest_of_a_keys_budget_is_spent_as_a_budget_of_the_run(
    tmp_path, charges_at_once, monkeypatch, rows, options, charged
):
    """After a row or batch that the key's budget has no room for, cheaper rows and smaller batches are sent."""
    counts = []
    for name in ("key", "run"):
        monkeypatch.setenv("LIGHTMETER_STATE_DIR", str(tmp_path / f"{name}-state"))
        if name == "key":
            monkeypatch.setenv("LIGHTMETER_KEY_BUDGET", "7")
        else:
            monkeypatch.delenv("LIGHTMETER_KEY_BUDGET")
        service = Hostile(lambda *_: "well")
        async with listening(service) as base_url:
            budget = 7 if name == "run" else 1000 if "sample" in options else None
            plan = await lm.plan(rows, base_url=base_url, max_concurrency=1, budget=budget, **options, **OPTIONS)
            run = await lm.run(plan, tmp_path / name)
        counts.append((len(service.charged), run.summary().counts))
    assert counts[0] == counts[1]
    assert counts[0][0] == charged


async def test_a_row_without_a_highest_price_is_not_sent_within_a_keys_budget(tmp_path, charges_at_once, monkeypatch):
    """A video of unknown length could exceed the budget of the key, so it is not sent; images are."""
    monkeypatch.setenv("LIGHTMETER_KEY_BUDGET", "7")
    service = Hostile(lambda *_: "well")
    async with listening(service) as base_url:
        rows = [{"url": "http://pictures.example/v.mp4"}, *IMAGES[:3]]
        run = await lm.run(
            await lm.plan(rows, base_url=base_url, max_frames=0, **OPTIONS), tmp_path / "out", consent=True
        )
    assert sorted(service.charged) == [row["url"] for row in IMAGES[:3]]
    assert [(one.status, one.reason, one.rows) for one in run.reasons()] == [("over_budget", "no_bound", 1)]


async def test_few_credits_are_reserved_while_prices_are_uncertain(try_out, monkeypatch):
    """A rise of the price while requests are polled for exceeds the key's budget by few requests, as one of the run."""
    monkeypatch.setenv("LIGHTMETER_KEY_BUDGET", "100")
    service = Hostile(lambda *_: "ack", balance=10_000, polls_until_done=3)

    def script(number, _):
        service.price = 1 if number < 5 else 10
        return "ack"

    service.script = script
    await try_out(service, rows=200, batch_size=1)
    assert 10_000 - service.balance < 300


@pytest.mark.sweep  # daily: test_shared.py in tests/e2e/kills, and the spellings above
async def test_two_processes_with_two_spellings_share_one_budget(tmp_path, charges_at_once):
    """Two runs at the same time together spend no more than the budget of their key."""
    service = Hostile(lambda *_: "well")
    environment = {**os.environ, "LIGHTMETER_KEY_BUDGET": "20"}
    async with listening(service) as base_url:
        processes = [
            await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", RUN, spelling, name, str(tmp_path / name)), env=environment
            )
            for name, spelling in zip("ab", spellings(base_url)[1:3], strict=True)
        ]
        assert [await process.wait() for process in processes] == [0, 0]
    assert len(service.charged) == 20


@pytest.mark.parametrize("known_from", ["its journal", "this address", "its run id"])
def test_credits_recorded_by_an_older_version_still_count(tmp_path, charges_at_once, monkeypatch, known_from):
    """A ledger row with a legacy account name is migrated if its base URL or its run is known."""
    monkeypatch.setenv("LIGHTMETER_KEY_BUDGET", "40")
    settings = read_settings()
    address = "http://elsewhere.example" if known_from != "this address" else "http://localhost:8080"
    run_id = "mine" if known_from == "its run id" else "older"
    older = tmp_path / "older"
    if known_from == "its journal":
        journal_in(older, run_id="older", options=f'{{"base_url": "{address}/"}}')
    record_paid(settings.state_dir / FILE_NAME, former_account(address, "key"), run_id, older, in_2026_03=30)
    mine = journal_in(tmp_path / "mine", run_id="mine", options="{}")
    if known_from == "its run id":
        with Journal(mine) as journal:
            journal.submit(lambda db: db.execute("UPDATE money SET paid = 30")).result()
    where = Endpoint("http://127.0.0.1:8080/", SecretStr("key"), embedded=False)
    with open_key_budget(settings, where, "mine", mine, Fixed()) as budget:
        assert not asyncio.run(budget.hold(11))
        assert asyncio.run(budget.hold(10))


def test_credits_recorded_by_an_older_version_count_for_their_key_only(tmp_path, charges_at_once, monkeypatch):
    """A legacy ledger row is migrated only to its own key."""
    monkeypatch.setenv("LIGHTMETER_KEY_BUDGET", "40")
    settings = read_settings()
    former = former_account("http://a.example", "other")
    record_paid(settings.state_dir / FILE_NAME, former, "older", tmp_path, in_2026_03=30)
    where = Endpoint("http://a.example", SecretStr("key"), embedded=False)
    with open_key_budget(settings, where, "mine", journal_in(tmp_path / "mine"), Fixed()) as budget:
        assert asyncio.run(budget.hold(40))


def test_a_clock_that_is_set_back_opens_no_new_budget(tmp_path, charges_at_once, monkeypatch, caplog):
    """If the clock goes back, the latest period still counts, and the log names the file to remove."""
    monkeypatch.setenv("LIGHTMETER_KEY_BUDGET", "40")
    settings, clock = read_settings(), Fixed()
    where = Endpoint("http://a.example", SecretStr("key"), embedded=False)
    mine = journal_in(tmp_path / "mine")
    clock.at = APRIL
    with open_key_budget(settings, where, "mine", mine, clock) as budget:
        assert asyncio.run(budget.hold(30))
        clock.at = MARCH
        assert not asyncio.run(budget.hold(11))
        clock.at = APRIL
        asyncio.run(budget.settle(30, 30))
    with Journal(mine) as journal:
        journal.submit(lambda db: db.execute("UPDATE money SET paid = 30")).result()
    clock.at = MARCH
    with open_key_budget(settings, where, "mine", mine, clock) as budget:
        assert not asyncio.run(budget.hold(11))
        assert asyncio.run(budget.hold(10))
    assert "2026-04" in caplog.text
    assert FILE_NAME in caplog.text
    ((periods,),) = apsw.Connection(str(settings.state_dir / FILE_NAME)).execute("SELECT count(*) FROM runs")
    assert periods == 1


def test_a_new_period_length_is_a_new_budget(tmp_path, charges_at_once, monkeypatch):
    """Credits counted in periods of another length do not count."""
    monkeypatch.setenv("LIGHTMETER_KEY_BUDGET", "40")
    settings, clock = read_settings(), Fixed()
    used = {"in_2026_03": 35, "in_2026_W40": 30}
    record_paid(settings.state_dir / FILE_NAME, ledger_account("key"), "older", tmp_path, **used)
    where = Endpoint("http://a.example", SecretStr("key"), embedded=False)
    with open_key_budget(settings, where, "mine", journal_in(tmp_path / "mine"), clock) as budget:
        assert not asyncio.run(budget.hold(6))
        clock.at = APRIL
        assert asyncio.run(budget.hold(40))


def commits_of(path: Path) -> int:
    """Return the counter in an SQLite file's header that each commit raises: https://sqlite.org/fileformat.html."""
    return int.from_bytes(path.read_bytes()[24:28], "big")


async def test_one_transaction_reserves_for_many_requests(tmp_path, charges_at_once, monkeypatch):
    """Requests that wait for the ledger share its next commit; near the budget, those that fit are reserved."""
    monkeypatch.setenv("LIGHTMETER_KEY_BUDGET", "70")
    settings, where = read_settings(), Endpoint("http://a.example", SecretStr("key"), embedded=False)
    ledger = settings.state_dir / FILE_NAME
    with open_key_budget(settings, where, "mine", journal_in(tmp_path / "mine"), Fixed()) as budget:
        before = commits_of(ledger)
        assert all(await asyncio.gather(*(budget.hold(1) for _ in range(60))))
        await asyncio.gather(*(budget.settle(1, 1) for _ in range(40)), *(budget.hold(1) for _ in range(4)))
        assert commits_of(ledger) - before <= 4
        assert await budget.room(1) == 6
        fits = await asyncio.gather(*(budget.hold(2) for _ in range(5)))
        assert (sum(fits), await budget.room(1)) == (3, 0)
        assert key_spent(ledger) == 70


async def test_credits_are_on_the_disk_once_they_are_reserved(tmp_path, charges_at_once, monkeypatch):
    """When `hold` returns, the ledger file counts the credits, also those of a caller that was cancelled meanwhile."""
    monkeypatch.setenv("LIGHTMETER_KEY_BUDGET", "40")
    settings, where = read_settings(), Endpoint("http://a.example", SecretStr("key"), embedded=False)
    with open_key_budget(settings, where, "mine", journal_in(tmp_path / "mine"), Fixed()) as budget:
        holds = [asyncio.create_task(budget.hold(credits_)) for credits_ in (1, 2, 4)]
        await asyncio.sleep(0)
        holds[1].cancel()
        assert await holds[0] is await holds[2] is True
        assert key_spent(settings.state_dir / FILE_NAME) >= 5
        await budget.settle(5, 3)
        assert (key_spent(settings.state_dir / FILE_NAME), await budget.room(40)) == (3, 37)


def test_a_killed_run_that_was_charged_more_than_it_reserved_counts_in_full(tmp_path, charges_at_once, monkeypatch):
    """The next run of the key reads what a killed run has paid from that run's journal, whatever its folder."""
    monkeypatch.setenv("LIGHTMETER_KEY_BUDGET", "40")
    settings, where = read_settings(), Endpoint("http://a.example", SecretStr("key"), embedded=False)
    ledger, killed = settings.state_dir / FILE_NAME, journal_in(tmp_path / "killed", run_id="killed")
    with closing(KeyLedger(ledger, ledger_account("key"), "killed", killed)) as former:
        former.record("2026-03", RunCredits(0, 5))
    apsw.Connection(str(ledger)).execute("UPDATE runs SET process = '4194305:1'")  # a pid that Linux never gives
    with Journal(killed) as journal:
        journal.submit(lambda db: db.execute("UPDATE money SET paid = 30")).result()
    with open_key_budget(settings, where, "mine", journal_in(tmp_path / "mine"), Fixed()) as budget:
        assert asyncio.run(budget.room(1)) == 10
        assert not asyncio.run(budget.hold(11))


async def test_a_run_that_continues_an_older_journal_counts_once(tmp_path, charges_at_once, monkeypatch):
    """A run with a new id takes over the credits of its former id; they are neither lost nor counted twice."""
    monkeypatch.setenv("LIGHTMETER_KEY_BUDGET", "40")
    service = Hostile(lambda *_: "well")
    out = tmp_path / "out"
    options = {**OPTIONS, "batch_size": 1}
    async with listening(service) as base_url:
        urls = [f"http://pictures.example/{number}.jpg" for number in range(60)]
        await lm.run(await lm.plan(urls, base_url=base_url, budget=10, **options), out)
        shutil.copytree(out, tmp_path / "backup")
        await lm.resume(out, budget=30)
        shutil.rmtree(out)
        (tmp_path / "backup").rename(out)
        run = await lm.resume(out, budget=100, accept_journal=True)
    assert len(service.charged) == 40
    assert (run.summary().paid, run.summary().held) == (20, 20)
    assert [reason.reason for reason in run.reasons()] == ["key_budget"]
