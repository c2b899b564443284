"""The journal file: one writer with group commits, locking, versions, damage and full disks."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap

import pytest

from lightmeter.errors import JournalError, JournalLocked, JournalVersion
from lightmeter.journal.balance_proofs import read_proofs
from lightmeter.journal.commands.submissions import get_meta, put_meta
from lightmeter.journal.files import copy_journal, journal_path
from lightmeter.journal.schema import VERSION
from lightmeter.journal.store import Journal, open_read_only


async def test_what_write_returned_is_on_disk(tmp_path):
    """After `write` returns, another connection sees the change."""
    with Journal(tmp_path) as journal:
        await journal.write(put_meta({"a": "1"}))
        with open_read_only(tmp_path) as db:
            assert get_meta(db) == {"a": "1"}


async def test_closing_writes_queued_changes(tmp_path):
    """A change that the writer has not taken yet is written by `close`."""
    with Journal(tmp_path) as journal:
        writing = asyncio.create_task(journal.write(put_meta({"a": "1"})))
        await asyncio.sleep(0)
    await writing
    with open_read_only(tmp_path) as db:
        assert get_meta(db) == {"a": "1"}


async def test_a_failing_change_does_not_undo_others(tmp_path):
    """Each change of a commit has its own savepoint."""

    def bad(db):
        db.execute("INSERT INTO meta VALUES ('half', 'written')")
        raise ValueError("no")

    with Journal(tmp_path) as journal:
        futures = [
            journal.submit(put_meta({"before": "1"})),
            journal.submit(bad),
            journal.submit(put_meta({"after": "1"})),
        ]
        with pytest.raises(ValueError, match="no"):
            futures[1].result()
        futures[0].result()
        futures[2].result()
        with open_read_only(tmp_path) as db:
            assert get_meta(db) == {"before": "1", "after": "1"}


def test_a_second_writer_is_refused(tmp_path):
    """One process writes to a folder at a time; the error's hint names a command."""
    with Journal(tmp_path), pytest.raises(JournalLocked, match="Another process, or this one") as caught:
        Journal(tmp_path)
    assert "status" in caught.value.hint
    Journal(tmp_path).close()  # and once it is closed the folder is free again


def test_a_killed_writer_leaves_no_lock_and_all_it_committed(tmp_path):
    """After kill -9 the folder is unlocked and every reported write is there."""
    script = textwrap.dedent("""
        import sys, time
        from pathlib import Path
        from lightmeter.journal.store import Journal
        from lightmeter.journal.commands.submissions import put_meta
        journal = Journal(Path(sys.argv[1]))
        for number in range(1000):
            journal.submit(put_meta({"number": str(number)})).result()
            print(number, flush=True)
    """)
    process = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    reported = -1
    for line in process.stdout:
        reported = int(line)
        if reported >= 20:
            break
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    with Journal(tmp_path), open_read_only(tmp_path) as db:
        assert int(get_meta(db)["number"]) >= reported


def test_a_folder_without_a_journal_is_an_error(tmp_path):
    """The error's hint names the command that starts a run, and nothing is created."""
    with pytest.raises(JournalError, match="holds no run") as caught, open_read_only(tmp_path):
        pass
    assert "lightmeter run" in caught.value.hint
    assert list(tmp_path.iterdir()) == []


def test_a_foreign_database_is_refused(tmp_path):
    """Another application's database is neither read nor written."""
    import apsw  # noqa: PLC0415 (only these tests open a database directly)

    foreign = apsw.Connection(str(journal_path(tmp_path)))
    foreign.execute("CREATE TABLE foreign_table (x)")
    foreign.close()
    with pytest.raises(JournalError, match="not a journal"):
        Journal(tmp_path)
    with pytest.raises(JournalError, match="not a journal"), open_read_only(tmp_path):
        pass


def test_a_newer_journal_is_refused(tmp_path):
    """A journal of a later version raises `JournalVersion`."""
    Journal(tmp_path).close()
    import apsw  # noqa: PLC0415 (as above)

    later = apsw.Connection(str(journal_path(tmp_path)))
    later.pragma("user_version", 99)
    later.close()
    with pytest.raises(JournalVersion, match="version 99"):
        Journal(tmp_path)


def test_an_older_journal_is_migrated(tmp_path):
    """A reader migrates a journal of version 1, which keeps its data."""
    import apsw  # noqa: PLC0415 (as above)

    with Journal(tmp_path) as journal:
        journal.submit(put_meta({"a": "1"})).result()
    older = apsw.Connection(str(journal_path(tmp_path)))
    older.execute("DROP TABLE proofs; DROP TABLE readings; DROP TABLE earlier; DROP TABLE reused")
    older.execute("ALTER TABLE submissions DROP COLUMN said")
    older.execute("DROP TRIGGER video_status; DROP INDEX items_by_status")
    older.execute("CREATE INDEX items_by_status ON items (status, seq)")
    for column in ("send_order", "size_bytes", "perceptual_hash", "duplicate_distance"):
        older.execute(f"ALTER TABLE items DROP COLUMN {column}")
    older.pragma("user_version", 1)
    older.close()
    with open_read_only(tmp_path) as db:
        assert get_meta(db) == {"a": "1"}
        assert read_proofs(db) == []
        assert db.pragma("user_version") == VERSION
        assert list(db.execute("SELECT said FROM submissions")) == []
    Journal(tmp_path).close()


@pytest.mark.parametrize("opened", [open_read_only, Journal])
def test_a_key_that_an_earlier_version_stored_is_removed(tmp_path, opened):
    """Opening a journal removes the key of the manifest's location from its pages, its log and the plan beside it."""
    uri, prompt = "s3://KEY:SeCrEt@bucket/m.csv", "Is https://e.org/?token=shown there?"
    options = {"base_url": "https://user:SeCrEt@e.org", "prompt": prompt, "features": ["x" * 3000]}
    with Journal(tmp_path) as journal:
        for number in range(50):  # earlier versions of the row stay in freed parts of pages
            meta = {"manifest": uri, "options": json.dumps({**options, "budget": number}), f"n{number}": "x" * 300}
            journal.submit(put_meta(meta | {"manifest_path": uri + "?region=eu"})).result()
    plan = {"manifest": {"name": "m.csv", "path": uri + "?region=eu"}, "listed": [{"url": prompt}]}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    with opened(tmp_path), open_read_only(tmp_path) as db:
        meta = get_meta(db)
    assert (meta["manifest"], meta["manifest_path"]) == ("s3://bucket/m.csv", "s3://bucket/m.csv?region=eu")
    assert json.loads(meta["options"]) == {**options, "base_url": "https://e.org", "budget": 49}
    assert len(meta) == 53
    assert json.loads((tmp_path / "plan.json").read_text())["manifest"]["path"] == "s3://bucket/m.csv?region=eu"
    assert json.loads((tmp_path / "plan.json").read_text())["listed"] == plan["listed"]
    for path in tmp_path.iterdir():
        assert b"SeCrEt" not in path.read_bytes(), path


def test_a_damaged_page_is_a_journal_error(tmp_path):
    """A read error of a damaged page raises `JournalError`, wherever it occurs."""
    with Journal(tmp_path) as journal:
        journal.submit(put_meta({f"key{number}": "x" * 500 for number in range(200)})).result()
    path = journal_path(tmp_path)
    content = bytearray(path.read_bytes())
    for page in range(3, len(content) // 4096):
        content[page * 4096 : page * 4096 + 64] = b"\xff" * 64
    path.write_bytes(content)
    with pytest.raises(JournalError, match="cannot be read"), open_read_only(tmp_path) as db:
        get_meta(db)


def test_a_copy_is_complete(tmp_path):
    """A copied journal has the same content and can be written."""
    with Journal(tmp_path / "a") as journal:
        journal.submit(put_meta({"a": "1"})).result()
    copy_journal(journal_path(tmp_path / "a"), journal_path(tmp_path / "b"))
    with Journal(tmp_path / "b"), open_read_only(tmp_path / "b") as db:
        assert get_meta(db) == {"a": "1"}


def test_a_copy_can_be_written_while_it_is_read(tmp_path):
    """A reader of a copied journal does not block its writer."""
    with Journal(tmp_path / "a"):
        copy_journal(journal_path(tmp_path / "a"), journal_path(tmp_path / "b"))
    with open_read_only(tmp_path / "b") as db:
        cursor = db.execute("SELECT * FROM sqlite_schema")
        assert next(cursor)  # and stays open
        with Journal(tmp_path / "b") as journal:
            journal.submit(put_meta({"a": "1"})).result()
        assert next(cursor)


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_read_only_folder_is_an_error(tmp_path):
    """A journal in a folder that cannot be written raises `JournalError`."""
    tmp_path.chmod(0o500)
    with pytest.raises(JournalError, match="cannot be written"):
        Journal(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_journal_can_be_read_in_a_read_only_folder(tmp_path):
    """A closed journal can be read on a read-only medium."""
    with Journal(tmp_path) as journal:
        journal.submit(put_meta({"a": "1"})).result()
    tmp_path.chmod(0o500)
    with open_read_only(tmp_path) as db:
        assert get_meta(db) == {"a": "1"}


def test_a_full_disk_fails_the_write(tmp_path):
    """A write without space raises `JournalError`, and earlier writes stay."""
    with Journal(tmp_path) as journal:
        journal.submit(put_meta({"kept": "1"})).result()
        journal.submit(
            lambda db: db.execute(f"PRAGMA max_page_count = {db.pragma('page_count') + 1}") and None
        ).result()
        with pytest.raises(JournalError, match="disk is full") as caught:
            journal.submit(put_meta({"big": "x" * 1_000_000})).result()
        assert "Nothing more is sent" in caught.value.hint
        with open_read_only(tmp_path) as db:
            assert get_meta(db) == {"kept": "1"}


async def test_cancelling_the_caller_does_not_undo_the_change(tmp_path):
    """A queued change is written even if its caller is cancelled."""
    with Journal(tmp_path) as journal:
        waiting = asyncio.create_task(journal.write(put_meta({"a": "1"})))
        await asyncio.sleep(0)  # the change is queued
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await journal.write(put_meta({"b": "2"}))
        with open_read_only(tmp_path) as db:
            assert get_meta(db) == {"a": "1", "b": "2"}


def test_a_closed_event_loop_does_not_stop_the_writer(tmp_path):
    """Changes of a closed loop are written, and later callers get their results."""
    with Journal(tmp_path) as journal:
        loop = asyncio.new_event_loop()
        writing = loop.create_task(journal.write(put_meta({"a": "1"})))
        loop.run_until_complete(asyncio.sleep(0))
        writing.cancel()
        loop.run_until_complete(asyncio.gather(writing, return_exceptions=True))
        loop.close()
        journal.submit(put_meta({"b": "2"})).result()
        with open_read_only(tmp_path) as db:
            assert get_meta(db) == {"a": "1", "b": "2"}
