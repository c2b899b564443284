"""A full disk is never blamed on an asset, charges nothing, and needs no restart once it has space again."""

from __future__ import annotations

import asyncio
import tempfile

import pytest

from tests.disks import fill, mounted_disk

DISK = "4m"


async def wait_for_balance(caller, credits_) -> None:
    """Wait until an account has these credits."""
    for _ in range(600):
        if await caller.balance() == credits_:
            return
        await asyncio.sleep(0.05)
    assert await caller.balance() == credits_


async def test_a_full_temporary_folder_is_not_blamed_on_the_asset(starting, calling, site, tmp_path, monkeypatch):
    """A client that waits is told to send its request again; in a batch the error names the folder. Both are free."""
    service = await starting()
    caller = await calling(service, credits=10)
    large = site.url("endless/large")
    with mounted_disk(tmp_path / "disk", DISK):
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "disk"))
        refused = await caller.ask(url=large)
        assert (refused.status, int(refused.headers["Retry-After"]) > 0) == (503, True), refused.body
        assert "temporary folder (No space left on device)" in refused.body["error"]
        await wait_for_balance(caller, 10)
        done = await caller.finished(await caller.ask(url=[large, site.url("picture/1.png")]))
        assert (done["status"], done["credits_paid"], len(done["all"]["assets"])) == ("completed", 1, 1)
        assert done["all"]["errors"] == [
            f"{large}: the service cannot write to its temporary folder (No space left on device)"
        ]


async def test_a_polled_request_outlives_a_full_database_disk(starting, calling, site, tmp_path, books):
    """A batch that ends while the disk is full is `processing`, and is stored and charged once there is space."""
    with mounted_disk(tmp_path / "disk", DISK):
        service = await starting(database=f"sqlite:///{tmp_path / 'disk' / 'own.db'}")
        caller = await calling(service, credits=10)
        answered = await caller.ask(url=[site.url("held/1.png"), site.url("picture/2.png")])
        assert await asyncio.to_thread(site.arrived.acquire, timeout=20)
        ballast = fill(tmp_path / "disk")
        site.gate.set()
        refused = await caller.ask(url=[site.url("picture/3.png"), site.url("picture/4.png")])
        assert (refused.status, int(refused.headers["Retry-After"]) > 0) == (503, True), refused.body
        assert "disk of the SQLite database is full. Nothing was charged" in refused.body["error"]
        assert (await caller.poll(answered.body["request_id"])).body["status"] == "processing"
        ballast.unlink()
        done = await caller.finished(answered)
        assert (done["status"], done["credits_paid"], done["credits"]) == ("completed", 2, 8)
        assert all(book.is_consistent and book.held == 0 for book in await books(service.database))


async def test_a_waiting_client_pays_nothing_on_a_full_database_disk(starting, calling, site, tmp_path, books):
    """A client whose result cannot be stored gets 503, and its credits are released once there is space."""
    with mounted_disk(tmp_path / "disk", DISK):
        service = await starting(database=f"sqlite:///{tmp_path / 'disk' / 'own.db'}")
        caller = await calling(service, credits=10)
        request = asyncio.create_task(caller.ask({"Idempotency-Key": "mine"}, url=site.url("held/1.png")))
        assert await asyncio.to_thread(site.arrived.acquire, timeout=20)
        ballast = fill(tmp_path / "disk")
        site.gate.set()
        refused = await request
        assert (refused.status, "Nothing was charged" in refused.body["error"]) == (503, True), refused.body
        ballast.unlink()
        await wait_for_balance(caller, 10)
        again = await caller.ask({"Idempotency-Key": "mine"}, url=site.url("held/1.png"))
        assert (again.status, again.body["credits"]) == (200, 9)
        assert all(book.is_consistent and book.held == 0 for book in await books(service.database))


FULL = """
CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END $$;
CREATE TRIGGER full_disk BEFORE INSERT ON {} FOR EACH ROW EXECUTE FUNCTION full_disk();
"""


@pytest.mark.postgres
@pytest.mark.parametrize("table", ["requests", "ledger", "procrastinate_jobs"])
async def test_a_batch_is_refused_on_a_full_postgresql_disk(starting, calling, site, postgres, table, books):
    """A batch gets 503 and is free, whichever of its rows the disk of the PostgreSQL server has no space for."""
    import psycopg  # noqa: PLC0415 (not all tests need it)

    service = await starting(database=postgres)
    caller = await calling(service, credits=10)
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("SET search_path = lightmeter")
        connection.execute(FULL.format(table))
        refused = await caller.ask(url=[site.url("picture/1.png"), site.url("picture/2.png")])
        connection.execute(f"DROP TRIGGER full_disk ON {table}")
    assert (refused.status, int(refused.headers["Retry-After"]) > 0) == (503, True), refused.body
    assert "disk of the PostgreSQL server is full. Nothing was charged" in refused.body["error"]
    done = await caller.finished(await caller.ask(url=[site.url("picture/1.png"), site.url("picture/2.png")]))
    assert (done["status"], done["credits_paid"], done["credits"]) == ("completed", 2, 8)
    assert all(book.is_consistent and book.held == 0 for book in await books(postgres))
