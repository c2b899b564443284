"""Migrations: an older database keeps its data, and a newer one is refused."""

from __future__ import annotations

import asyncio
import re
import time
from hashlib import sha256
from pathlib import Path

import apsw
import pytest

from lightmeter.errors import SettingsError
from lightmeter.service.store.credits import balances
from lightmeter.service.store.schema import MIGRATIONS, SCHEMA, VERSION
from lightmeter.service.store.store import Store
from lightmeter.service.store.unfinished_requests import CANCELLED

OLD = Path(__file__).with_name("schemas")
ECHO = '{"url":["http://127.0.0.1:9/a.png"],"file_name":[],"backend":[],"feature":["colors"]}'
DONE = b'{"assets":[],"errors":["old"]}'
KEY_HASH = sha256(b"old-key").digest()
FINISHED, WAITING = "d" * 32, "e" * 32
NOW = time.time()

FILLED = {
    1: f"""
        INSERT INTO accounts VALUES (1, 'old', 88, 3), (2, 'empty', 0, 0);
        INSERT INTO keys VALUES (x'{KEY_HASH.hex()}', 1);
        INSERT INTO ledger VALUES (1, NULL, 100, 1.5), (1, '{FINISHED}', -9, 2.5), (2, NULL, 0, 1.5);
        INSERT INTO requests VALUES
            ('{FINISHED}', 1, 'completed', 1, '{ECHO}', 10, 9, 91, x'{DONE.hex()}', NULL, 1, 2.0, {NOW}, 'mine'),
            ('{WAITING}', 1, 'running', 1, '{ECHO}', 3, NULL, NULL, NULL, NULL, 2, 3.0, NULL, NULL);
        INSERT INTO uploads VALUES ('{WAITING}', 0, x'0102');
    """,  # noqa: S608 (constants)
    2: f"""
        INSERT INTO accounts VALUES (1, 'old', 88, 3), (2, 'empty', 0, 0);
        INSERT INTO keys VALUES (x'{KEY_HASH.hex()}', 1);
        INSERT INTO ledger VALUES (1, NULL, 'grants', 'free', 100, 1.5), (1, '{FINISHED}', 'free', 'held', 9, 2.0),
            (1, '{FINISHED}', 'held', 'revenue', 9, 2.5), (1, '{WAITING}', 'free', 'held', 3, 3.0);
        INSERT INTO requests VALUES
            ('{FINISHED}', 1, 'completed', 1, '{ECHO}', x'00', 10, 9, 91, x'{DONE.hex()}', NULL, 1, NULL, NULL, 2.0,
             {NOW}, 'mine'),
            ('{WAITING}', 1, 'running', 1, '{ECHO}', x'01', 3, NULL, NULL, NULL, NULL, 2, NULL, NULL, 3.0, NULL, NULL);
        INSERT INTO uploads VALUES ('{WAITING}', 0, x'0102');
    """,  # noqa: S608 (constants)
}
FILLED[3] = f"""
    {FILLED[2].partition("INSERT INTO requests")[0]}
    INSERT INTO requests VALUES
        ('{FINISHED}', 1, 'completed', 1, '{ECHO}', x'00', 10, 9, 91, x'{DONE.hex()}', NULL, 1, 0, 0, 0, NULL, NULL,
         2.0, {NOW}, 'mine'),
        ('{WAITING}', 1, 'running', 1, '{ECHO}', x'01', 3, NULL, NULL, NULL, NULL, 2, 1, 0, 0, NULL, NULL, 3.0, NULL,
         NULL);
    INSERT INTO uploads VALUES ('{WAITING}', 0, x'0102');
"""  # noqa: S608 (constants)
"""Data of each version: a finished request, and one whose second attempt was interrupted by a crash."""


def create_database(path, version):
    """Create a filled database of an older version; return its URL."""
    db = apsw.Connection(str(path))
    db.execute((OLD / f"v{version}.sql").read_text(encoding="utf-8"))
    db.execute(FILLED[version])
    db.pragma("user_version", version)
    db.close()
    return f"sqlite:///{path}"


def describe(db):
    """Return the columns of each table, in any order, and the names of the indices."""
    tables = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")]
    indices = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'index' ORDER BY name")]
    columns = {
        table: sorted(
            (name, kind, needed, key) for _, name, kind, needed, _, key in db.execute(f"PRAGMA table_info({table})")
        )
        for table in tables
    }
    return columns, indices


@pytest.mark.parametrize("version", sorted(MIGRATIONS))
async def test_an_older_database_keeps_its_data(tmp_path, version):
    """Accounts, keys, requests and uploads stay; the ledger is consistent; the schema is current."""
    store = Store(create_database(tmp_path / "old.db", version), exclusive=True)
    (empty, old) = await store.read(balances)
    finished, waiting = await store.read(lambda db: db.execute("SELECT * FROM requests ORDER BY request_id"))
    assert (old.name, old.free, old.held, old.is_consistent) == ("old", 88, 3, True)
    assert (empty.name, empty.free, empty.is_consistent) == ("empty", 0, True)
    assert finished[:5] == (FINISHED, 1, "completed", 1, ECHO)
    assert DONE in finished
    assert waiting[:4] == (WAITING, 1, "running", 1)
    query = "SELECT hold, attempts, deaths, deaths_alone, alone FROM requests WHERE request_id = ?"
    assert await store.read(lambda db: db.execute(query, (WAITING,))) == [(3, 2, 1, 0, 0)]
    assert await store.read(lambda db: db.execute("SELECT key_hash, account_id FROM keys")) == [(KEY_HASH, 1)]
    assert await store.read(lambda db: db.execute("SELECT * FROM uploads")) == [(WAITING, 0, b"\1\2")]
    store.close()
    current = apsw.Connection(":memory:")
    current.execute(SCHEMA)
    opened = apsw.Connection(str(tmp_path / "old.db"))
    assert describe(opened) == describe(current)
    assert opened.pragma("user_version") == VERSION
    opened.close()


@pytest.mark.parametrize("version", sorted(MIGRATIONS))
async def test_a_service_continues_on_an_older_database(tmp_path, starting, calling, books, version):
    """An old key and an old result work, an unfinished request is completed, and the ledger is consistent."""
    service = await starting(database=create_database(tmp_path / "old.db", version))
    caller = await calling(service)
    caller.headers = {"X-API-Key": "Token old-key"}
    assert (await caller.poll(FINISHED)).body["all"]["errors"] == ["old"]
    for _ in range(400):
        if (await caller.balance()) == 91:  # its URL is unreachable, so its hold is released
            break
        await asyncio.sleep(0.02)
    assert (await caller.poll(WAITING)).body["status"] == "completed"
    again = await caller.ask({"Idempotency-Key": "mine"}, url="http://127.0.0.1:9/b.png")
    assert again.status == 422
    assert all(book.is_consistent and book.held == 0 for book in await books(service.database))


@pytest.mark.parametrize("version", [1])
async def test_an_idempotency_key_of_version_1_still_works(tmp_path, starting, calling, version):
    """Version 1 stored no digest of contents, so an equal request without contents is the same."""
    service = await starting(database=create_database(tmp_path / "old.db", version))
    caller = await calling(service)
    caller.headers = {"X-API-Key": "Token old-key"}
    again = await caller.ask({"Idempotency-Key": "mine"}, url="http://127.0.0.1:9/a.png", feature="colors")
    assert (again.status, again.body["request_id"]) == (200, FINISHED)


async def test_a_request_that_was_cancelled_before_version_4_is_one_by_its_state(tmp_path):
    """Version 3 knew a cancelled request by its error text; other failed requests stay failed."""
    url = create_database(tmp_path / "old.db", 3)
    db = apsw.Connection(str(tmp_path / "old.db"))
    error = "UPDATE requests SET state = 'failed', error = ? WHERE request_id = ?"
    db.execute(error, (CANCELLED, WAITING))
    db.execute(error, ("Request failed: it is dark.", FINISHED))
    db.close()
    store = Store(url, exclusive=True)
    states = dict(await store.read(lambda db: db.execute("SELECT request_id, state FROM requests")))
    store.close()
    assert states == {WAITING: "cancelled", FINISHED: "failed"}


def test_a_newer_database_is_refused(tmp_path):
    """The error names both versions, and the file does not change."""
    path = tmp_path / "new.db"
    db = apsw.Connection(str(path))
    db.execute("CREATE TABLE foreign_table (x)")
    db.pragma("user_version", VERSION + 1)
    with pytest.raises(SettingsError, match=rf"newer lightmeter: it has version {VERSION + 1}, known is {VERSION}"):
        Store(f"sqlite:///{path}")
    assert [name for (name,) in db.execute("SELECT name FROM sqlite_schema")] == ["foreign_table"]
    db.close()


@pytest.mark.postgres
async def test_an_older_postgresql_database_is_migrated(postgres):
    """A database whose newer columns were removed gets them again, and keeps its rows."""
    psycopg = pytest.importorskip("psycopg")
    Store(postgres).close()
    added = re.findall(r"requests ADD COLUMN (\w+)", MIGRATIONS[2])
    with psycopg.connect(postgres, autocommit=True) as db:
        db.execute("SET search_path = lightmeter")
        db.execute("INSERT INTO accounts (name, credits) VALUES ('old', 0)")
        for column in added:
            db.execute(f"ALTER TABLE requests DROP COLUMN {column}")
        db.execute("UPDATE version SET version = 2")
        store = Store(postgres)
        assert await store.read(lambda db: db.execute("SELECT name FROM accounts")) == [("old",)]
        assert await store.read(lambda db: db.execute(f"SELECT {', '.join(added)} FROM requests")) == []  # noqa: S608 (constants)
        store.close()
        assert db.execute("SELECT version FROM version").fetchone() == (VERSION,)
        db.execute("UPDATE version SET version = 99")
        with pytest.raises(SettingsError, match="newer lightmeter"):
            Store(postgres)
