"""The service on PostgreSQL behind PgBouncer, with few rights, other encodings, and transactions that collide."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from functools import partial
from pathlib import Path

import psycopg
import pytest

from lightmeter.errors import SettingsError
from lightmeter.service.store import postgres as module
from lightmeter.service.store.credits import open_account
from lightmeter.service.store.sql_dialects import StoreError
from lightmeter.service.store.store import Store

pytestmark = pytest.mark.postgres

SCHEMAS = "SELECT DISTINCT schemaname FROM pg_tables WHERE schemaname IN ('public', 'lightmeter')"


@pytest.fixture
def bouncer(postgres):
    """Return a function that starts PgBouncer in front of the database, and returns the URL through it."""
    program = shutil.which("pgbouncer", path=f"/usr/sbin:{os.defpath}")
    if program is None:
        pytest.skip("PgBouncer is not installed")
    started = []
    server = psycopg.conninfo.conninfo_to_dict(postgres)

    def start(mode: str, **settings: str) -> str:
        user = {"user": "postgres", "group": "postgres"} if os.geteuid() == 0 else {}
        folder = Path(tempfile.mkdtemp(prefix="lightmeter-pgbouncer-"))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        fixed = {"listen_addr": "127.0.0.1", "listen_port": port, "unix_socket_dir": "", "auth_type": "any"}
        lines = [f"{name} = {value}" for name, value in {**fixed, "pool_mode": mode, **settings}.items()]
        target = f"* = host=127.0.0.1 port={server['port']} user={server['user']}"
        configuration = folder / "pgbouncer.ini"
        configuration.write_text("\n".join(["[databases]", target, "[pgbouncer]", *lines, ""]))
        if user:
            shutil.chown(folder, **user)
        quiet = {**user, "cwd": folder, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        started.append((subprocess.Popen([program, str(configuration)], **quiet), folder))
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                signal.sigtimedwait([], 0.05)
        return f"postgresql://{server['user']}@127.0.0.1:{port}/{server['dbname']}"

    yield start
    for process, folder in started:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=30)
        shutil.rmtree(folder)


def schemas(database) -> list[str]:
    """Return the schemas that hold tables."""
    with psycopg.connect(database) as db:
        return [name for (name,) in db.execute(SCHEMAS)]


@pytest.mark.parametrize("mode", ["session", "transaction"])
async def test_a_service_works_behind_a_pooler(mode, bouncer, postgres, starting, calling, site):
    """A service starts, answers, restarts and finishes its queue behind PgBouncer, with all tables in its schema."""
    database = bouncer(mode, server_round_robin="1", default_pool_size="20")
    for _ in range(2):  # the second start finds the tables
        service = await starting(database=database, lease_s=3)
        caller = await calling(service)
        single = await caller.ask(url=site.url("picture/1.png"))
        assert single.body["status"] == "completed"
        several = [await caller.ask(url=[site.url(f"picture/{n}.png"), site.url("picture/0.png")]) for n in range(8)]
        done = await asyncio.gather(*(caller.finished(answer) for answer in several))
        assert [len(body["all"]["assets"]) for body in done] == [2] * 8
    assert schemas(postgres) == ["lightmeter"]


async def test_two_services_behind_a_pooler_share_one_queue(bouncer, starting, calling, site):
    """Two services use the same sessions of PgBouncer in transaction mode, and each request is answered once."""
    database = bouncer("transaction", default_pool_size="6")
    services = [await starting(database=database, lease_s=3) for _ in range(2)]
    callers = [await calling(service) for service in services]
    answers = [
        (caller, await caller.ask(url=[site.url(f"picture/{n}.png"), site.url("picture/0.png")]))
        for n in range(6)
        for caller in callers
    ]
    for caller, answer in answers:
        assert (await caller.finished(answer))["status"] == "completed"


async def test_a_role_without_rights_on_the_database_uses_the_schema_that_is_there(postgres):
    """A role that may not create schemas starts if its schema is there, and is told what is missing otherwise."""
    with psycopg.connect(postgres, autocommit=True) as db:
        db.execute("CREATE ROLE poor LOGIN")
        database = postgres.replace("lightmeter@", "poor@")
        try:
            with pytest.raises(SettingsError, match="may not create the schema") as refused:
                Store(database)
            assert "CREATE SCHEMA lightmeter AUTHORIZATION poor" in refused.value.hint
            db.execute("CREATE SCHEMA lightmeter AUTHORIZATION poor")
            for name in ("first", "second"):
                store = Store(database)
                await store.write(partial(open_account, name=name, credits_=1, at=0.0))
                store.close()
        finally:
            db.execute("DROP OWNED BY poor CASCADE")
            db.execute("DROP ROLE poor")


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_database_of_another_encoding_is_refused(postgres, encoding):
    """A database that cannot hold every text is refused in a sentence that says what to do; nothing is created."""
    name = f"other_{encoding.lower()}"
    with psycopg.connect(postgres, autocommit=True) as db:
        db.execute(f"CREATE DATABASE {name} ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
    database = f"{postgres.rpartition('/')[0]}/{name}"
    with pytest.raises(SettingsError, match=f"has the encoding {encoding}") as refused:
        Store(database)
    assert "ENCODING 'UTF8'" in refused.value.hint
    assert schemas(database) == []


async def test_the_encoding_of_the_environment_has_no_effect(postgres, monkeypatch):
    """PGCLIENTENCODING of the operator's shell does not change the texts that are stored."""
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    store = Store(postgres)
    await store.write(lambda db: open_account(db, "名前", 1, 0.0))
    assert await store.read(lambda db: db.execute("SELECT name FROM accounts")) == [("名前",)]
    store.close()


@pytest.mark.parametrize("code", ["40001", "40P01"])
async def test_a_transaction_that_was_rolled_back_for_another_runs_again(postgres, code):
    """After a serialization failure or a deadlock, a transaction runs again, and its first try has no effect."""
    store, tries = Store(postgres), []

    def collide(db):
        open_account(db, "twice", 1, 0.0)
        tries.append(1)
        if len(tries) < 3:
            db.execute(f"DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '{code}'; END $$")
        return len(tries)

    assert await store.write(collide) == 3
    assert await store.read(lambda db: db.execute("SELECT count(*) FROM accounts")) == [(1,)]
    store.close()


async def test_collisions_that_do_not_end_are_an_error(postgres, monkeypatch):
    """A transaction that is rolled back again and again fails as other database errors do."""
    monkeypatch.setattr(module, "MAX_PAUSE_S", 0.001)
    store, tries = Store(postgres), []

    def collide(db):
        tries.append(1)
        db.execute("DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '40001'; END $$")

    with pytest.raises(StoreError, match="SerializationFailure"):
        await store.write(collide)
    assert len(tries) == module.MAX_ATTEMPTS
    store.close()


async def test_a_database_that_is_serializable_by_default_is_used(postgres, starting, calling, site):
    """A database with another default isolation level serves concurrent requests."""
    with psycopg.connect(postgres, autocommit=True) as db:
        name = postgres.rpartition("/")[2]
        db.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
    caller = await calling(await starting(database=postgres))
    urls = [site.url(f"picture/{seed}.png") for seed in range(12)]
    answers = await asyncio.gather(*(caller.ask(url=url) for url in urls))
    assert {answer.status for answer in answers} == {200}
