"""Files that earlier versions of lightmeter wrote still open, and nothing that they paid for is paid again."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing

import pytest

import lightmeter as lm
from lightmeter.errors import UsageError
from lightmeter.export.export_tables import export_tables
from lightmeter.journal import schema as journal_schema
from lightmeter.journal.files import journal_path
from lightmeter.money.statement import read_statement
from lightmeter.planning.plan_file import PLAN_VERSION
from lightmeter.service.store import schema as service_schema
from lightmeter.tables import Dataset
from lightmeter.tables.arrow.schema import SCHEMA_VERSION
from tests.sweeps import sweep
from tests.upgrades.killed_service import finish_jobs_of_killed_service
from tests.upgrades.make_fixture import FIXTURES

NAMES = sorted(path.name.removesuffix(".tar.xz") for path in FIXTURES.glob("journal*.tar.xz"))
ALL_NAMES = sorted(path.name.partition(".")[0] for path in FIXTURES.glob("*.xz"))
NOW = {
    "journal": journal_schema.VERSION,
    "plan": PLAN_VERSION,
    "tables": SCHEMA_VERSION,
    "service": service_schema.VERSION,
    "postgres": service_schema.VERSION,
    "reviews": 1,
    "thumbnails": 1,
    "ledger": 2,
}
"""Schema versions of this version's files; the last three have none inside, see `test_unnumbered_upgrades.py`."""

NEVER_WRITTEN = {"postgres": {1}}
"""Schema versions that no version of lightmeter has written: only SQLite had version 1."""


QUICK = 2
"""Number of fixtures that are tested without the sweeps: the oldest ones, which need every migration."""


@pytest.fixture(params=[*NAMES[:QUICK], *map(sweep, NAMES[QUICK:])])
def old(request, unpack):
    """The files of an earlier version in a folder of their own."""
    return unpack(request.param)


def test_every_schema_version_has_a_fixture():
    """A new schema version needs a fixture: `python -m tests.upgrades.make_fixture`."""
    fixture_versions = {
        what: {int(found[1]) for name in ALL_NAMES if (found := re.search(rf"{what}(\d+)", name))} for what in NOW
    }
    expected = {what: set(range(1, version + 1)) - NEVER_WRITTEN.get(what, set()) for what, version in NOW.items()}
    assert fixture_versions == expected


def test_every_fixture_is_described():
    """The README of the fixtures says which commit made each one."""
    text = (FIXTURES / "README.md").read_text()
    assert [name for name in ALL_NAMES if f"`{name}`" not in text] == []


def test_tables_and_reports_of_an_older_run_are_read(old):
    """Status and statement read what the older version wrote; tables of other columns are refused until a rebuild."""
    run = lm.open(old / "out")
    assert {status: rows for status, rows in run.summary().counts.items() if rows} == {
        "ok": 2,
        "duplicate": 1,
        "over_budget": 2,
    }
    assert read_statement(old / "out").paid == 2
    if Dataset(old / "out").schema_version != SCHEMA_VERSION:
        with pytest.raises(UsageError, match="lightmeter reads version") as raised:
            run.sql("FROM assets")
        assert "lightmeter rebuild" in raised.value.hint
        export_tables(old / "out", rewrite_all=True)
    found = run.sql("SELECT item_id, status, price FROM assets ORDER BY item_id").to_dict("list")
    assert found["item_id"] == ["0", "1", "2", "3", "again"]
    assert run.table("colors").num_rows > 0


async def test_an_older_run_is_resumed_and_pays_nothing_twice(old):
    """Resuming analyzes the two rows that the budget had stopped, and nothing else; local models are free by now."""
    run = await lm.aio.resume(old / "out", budget=10)
    summary = run.summary()
    paid = 4 if run.header.options.prices else 2
    assert (summary.counts["ok"], summary.counts["duplicate"], summary.paid) == (4, 1, paid)
    again = await lm.aio.resume(old / "out")
    assert again.summary().paid == paid
    with closing(sqlite3.connect(journal_path(old / "out"))) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (journal_schema.VERSION,)
        assert db.execute("SELECT count(*) FROM submissions WHERE paid > 0").fetchone()[0] <= 4
    assert run.table("assets").num_rows == 5


async def test_the_tables_of_an_older_run_are_rebuilt(old):
    """The tables that are made again from an older journal have this version's schema and the same rows."""
    before = sum(part.rows for part in Dataset(old / "out").describe("colors"))
    export_tables(old / "out")
    run = lm.open(old / "out")
    assert run.table("colors").num_rows == before


async def test_an_older_plan_file_is_run(old):
    """A plan that an older version saved is run with its options; local models are free by now, without prices."""
    plan = lm.load_plan(old / "plan.json")
    assert (plan.rows, plan.counts["pending"], plan.counts["duplicate"]) == (5, 4, 1)
    run = await lm.aio.run(plan, old / "new")
    assert (run.summary().counts["ok"], run.summary().paid) == (4, 4 if plan.options.prices else 0)


async def test_an_older_database_of_the_service_keeps_balance_and_jobs(old):
    """The service starts on an older database, finishes the jobs of a killed one, and charges each of them once."""
    await finish_jobs_of_killed_service(f"sqlite:///{old / 'service.db'}")
