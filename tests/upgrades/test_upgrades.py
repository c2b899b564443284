"""Files that earlier versions of lightmeter wrote still open, and nothing that they paid for is paid again."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
import tarfile
from contextlib import closing
from hashlib import sha256

import orjson
import pytest

import lightmeter as lm
from lightmeter.export.export_tables import export_tables
from lightmeter.journal import schema as journal_schema
from lightmeter.journal.files import journal_path
from lightmeter.money.statement import read_statement
from lightmeter.planning.plan_file import PLAN_VERSION
from lightmeter.service.app import ServiceConfig, start_service
from lightmeter.service.store import schema as service_schema
from lightmeter.service.store.credits import balances
from lightmeter.service.store.store import Store
from lightmeter.service.store.unfinished_requests import list_unfinished
from lightmeter.tables.arrow.schema import SCHEMA_VERSION
from tests.upgrades.make_fixture import CREDITS, FIXTURES, FOLDER, JOBS

NAMES = sorted(path.name.removesuffix(".tar.xz") for path in FIXTURES.glob("*.tar.xz"))
NOW = {
    "journal": journal_schema.VERSION,
    "plan": PLAN_VERSION,
    "tables": SCHEMA_VERSION,
    "service": service_schema.VERSION,
}


@pytest.fixture(autouse=True)
def _no_service(monkeypatch, tmp_path, cache):
    monkeypatch.setenv("LIGHTMETER_SETTINGS", str(tmp_path / "none.toml"))
    monkeypatch.setenv("LIGHTMETER_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("LIGHTMETER_CACHE_DIR", str(cache))
    monkeypatch.delenv("LIGHTMETER_BASE_URL", raising=False)


NOT_MADE = {"journal": {5, 6, 7}}
"""Schema versions without a fixture; remove each when its fixture is made."""

QUICK = 2
"""Number of fixtures that are tested without the sweeps: the oldest ones, which need every migration."""


@pytest.fixture(params=[*NAMES[:QUICK], *(pytest.param(name, marks=pytest.mark.sweep) for name in NAMES[QUICK:])])
def old(request, tmp_path, monkeypatch):
    """The files of an earlier version in a folder of their own; paths of pictures in them lead there."""
    with tarfile.open(FIXTURES / f"{request.param}.tar.xz") as tar:
        tar.extractall(tmp_path, filter="data")
    with closing(sqlite3.connect(tmp_path / "out/journal.sqlite")) as db, db:
        for column in ("path", "identity"):
            query = f"UPDATE items SET {column} = replace({column}, ?, ?)"  # noqa: S608 (names of columns)
            db.execute(query, (str(FOLDER), str(tmp_path)))
        db.execute("UPDATE meta SET value = replace(value, ?, ?)", (str(FOLDER), str(tmp_path)))
    plan = tmp_path / "plan.json"
    head = json.loads(plan.read_text().replace(str(FOLDER), str(tmp_path)))
    rows = (orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in head.get("listed", ()))
    plan.write_text(json.dumps({**head, "listed_sha256": sha256(b"".join(rows)).hexdigest()}))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_schema_version_has_a_fixture():
    """A new schema version needs a fixture: `python -m tests.upgrades.make_fixture`."""
    kept = {what: {int(re.search(rf"{what}(\d+)", name)[1]) for name in NAMES} for what in NOW}
    missing = {what: set(range(1, version + 1)) - kept[what] for what, version in NOW.items()}
    assert {what: found for what, found in missing.items() if found} == NOT_MADE


def test_every_fixture_is_described():
    """The README of the fixtures says which commit made each one."""
    text = (FIXTURES / "README.md").read_text()
    assert [name for name in NAMES if f"`{name}`" not in text] == []


def test_tables_and_reports_of_an_older_run_are_read(old):
    """Status, statement, SQL and tables read what the older version wrote, before anything is written again."""
    run = lm.open(old / "out")
    assert {status: rows for status, rows in run.summary().counts.items() if rows} == {
        "ok": 2,
        "duplicate": 1,
        "over_budget": 2,
    }
    assert read_statement(old / "out").paid == 2
    found = run.sql("SELECT item_id, status, price FROM assets ORDER BY item_id").to_dict("list")
    assert found["item_id"] == ["0", "1", "2", "3", "again"]
    assert run.table("colors").num_rows > 0


async def test_an_older_run_is_resumed_and_pays_nothing_twice(old):
    """Resuming pays for the two rows that the budget had stopped, and for nothing else."""
    run = await lm.resume(old / "out", budget=10)
    summary = run.summary()
    assert (summary.counts["ok"], summary.counts["duplicate"], summary.paid) == (4, 1, 4)
    again = await lm.resume(old / "out")
    assert again.summary().paid == 4
    with closing(sqlite3.connect(journal_path(old / "out"))) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (journal_schema.VERSION,)
        assert db.execute("SELECT count(*) FROM submissions WHERE paid > 0").fetchone()[0] <= 4
    assert run.table("assets").num_rows == 5


async def test_the_tables_of_an_older_run_are_rebuilt(old):
    """The tables that are made again from an older journal have this version's schema and the same rows."""
    before = lm.open(old / "out").table("colors").num_rows
    export_tables(old / "out")
    run = lm.open(old / "out")
    assert run.table("colors").num_rows == before


async def test_an_older_plan_file_is_run(old):
    """A plan that an older version saved is run with its options."""
    plan = lm.load_plan(old / "plan.json")
    assert (plan.rows, plan.counts["pending"], plan.counts["duplicate"]) == (5, 4, 1)
    run = await lm.run(plan, old / "new")
    assert (run.summary().counts["ok"], run.summary().paid) == (4, 4)


async def test_an_older_database_of_the_service_keeps_balance_and_jobs(old):
    """The service starts on an older database, finishes the jobs of a killed one, and charges each of them once."""
    database = f"sqlite:///{old / 'service.db'}"
    with closing(Store(database, exclusive=True)) as store:
        (account,) = await store.read(balances)
        waiting = await store.read(list_unfinished)
        assert (account.is_consistent, len(waiting) > 0, len(waiting) <= JOBS) == (True, True, True)
        assert account.held == sum(job.held for job in waiting)
    config = ServiceConfig(database=database, backends=("palette",), allow_private=True)
    service = await start_service(config)
    try:
        with closing(Store(database)) as store:
            for _ in range(3000):
                if not await store.read(list_unfinished):
                    break
                await asyncio.sleep(0.02)
            (account,) = await store.read(balances)
    finally:
        await service.close()
    assert (account.is_consistent, account.held) == (True, 0)
    assert account.free <= CREDITS
