"""One file, one writer, group commits; a bad change hurts nobody else; what is written survives."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap

import pytest

from lightmeter.errors import JournalError, JournalLocked, JournalVersion
from lightmeter.journal.balance_proofs import read_proofs
from lightmeter.journal.commands import get_meta, put_meta
from lightmeter.journal.files import copy_journal, journal_path
from lightmeter.journal.schema import VERSION
from lightmeter.journal.store import Journal, open_read_only


async def test_what_write_returned_is_on_disk(tmp_path):
    """A change is durable when its write returns, and another connection sees it."""
    with Journal(tmp_path) as journal:
        await journal.write(put_meta({"a": "1"}))
        with open_read_only(tmp_path) as db:
            assert get_meta(db) == {"a": "1"}


async def test_what_was_written_is_kept_when_the_journal_is_closed_at_once(tmp_path):
    """A change that was not yet handed to the writer is handed to it by closing."""
    with Journal(tmp_path) as journal:
        writing = asyncio.create_task(journal.write(put_meta({"a": "1"})))
        await asyncio.sleep(0)
    await writing
    with open_read_only(tmp_path) as db:
        assert get_meta(db) == {"a": "1"}


async def test_a_change_that_fails_takes_no_other_with_it(tmp_path):
    """Changes of one commit are apart: each has a savepoint of its own."""

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
    """One process runs a folder at a time, and the message says what to do."""
    with Journal(tmp_path), pytest.raises(JournalLocked, match="Another process") as caught:
        Journal(tmp_path)
    assert "status" in caught.value.hint
    Journal(tmp_path).close()  # and once it is closed the folder is free again


def test_a_killed_writer_leaves_no_lock_and_all_it_committed(tmp_path):
    """Kill -9 frees the folder and loses nothing that was written."""
    script = textwrap.dedent("""
        import sys, time
        from pathlib import Path
        from lightmeter.journal.store import Journal
        from lightmeter.journal.commands import put_meta
        journal = Journal(Path(sys.argv[1]))
        for number in range(1000):
            journal.submit(put_meta({"number": str(number)})).result()
            print(number, flush=True)
    """)
    process = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    said = -1
    for line in process.stdout:
        said = int(line)
        if said >= 20:
            break
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    with Journal(tmp_path), open_read_only(tmp_path) as db:
        assert int(get_meta(db)["number"]) >= said


def test_a_folder_without_a_run_says_so(tmp_path):
    """Reading where nothing is names the command that starts a run, and creates nothing."""
    with pytest.raises(JournalError, match="holds no run") as caught, open_read_only(tmp_path):
        pass
    assert "lightmeter run" in caught.value.hint
    assert list(tmp_path.iterdir()) == []


def test_a_foreign_file_is_no_journal(tmp_path):
    """Somebody else's database is neither read nor written."""
    import apsw  # noqa: PLC0415 (a stranger's tool here)

    stranger = apsw.Connection(str(journal_path(tmp_path)))
    stranger.execute("CREATE TABLE theirs (x)")
    stranger.close()
    with pytest.raises(JournalError, match="not a journal"):
        Journal(tmp_path)
    with pytest.raises(JournalError, match="not a journal"), open_read_only(tmp_path):
        pass


def test_a_newer_journal_is_refused(tmp_path):
    """A journal of a later version is left alone."""
    Journal(tmp_path).close()
    import apsw  # noqa: PLC0415 (as above)

    later = apsw.Connection(str(journal_path(tmp_path)))
    later.pragma("user_version", 99)
    later.close()
    with pytest.raises(JournalVersion, match="version 99"):
        Journal(tmp_path)


def test_an_older_journal_is_brought_up_to_date(tmp_path):
    """What an older version wrote is kept and gets the tables of today, by a reader too."""
    import apsw  # noqa: PLC0415 (as above)

    with Journal(tmp_path) as journal:
        journal.submit(put_meta({"a": "1"})).result()
    older = apsw.Connection(str(journal_path(tmp_path)))
    older.execute("DROP TABLE proofs; DROP TABLE readings; DROP TABLE earlier; DROP TABLE reused")
    older.execute("ALTER TABLE submissions DROP COLUMN said")
    older.pragma("user_version", 1)
    older.close()
    with open_read_only(tmp_path) as db:
        assert get_meta(db) == {"a": "1"}
        assert read_proofs(db) == []
        assert db.pragma("user_version") == VERSION
        assert list(db.execute("SELECT said FROM submissions")) == []
    Journal(tmp_path).close()


def test_a_page_that_is_broken_in_the_middle_is_an_error_of_ours(tmp_path):
    """Reading a damaged journal says which file it is, wherever in it the damage shows."""
    with Journal(tmp_path) as journal:
        journal.submit(put_meta({f"key{number}": "x" * 500 for number in range(200)})).result()
    path = journal_path(tmp_path)
    content = bytearray(path.read_bytes())
    for page in range(3, len(content) // 4096):
        content[page * 4096 : page * 4096 + 64] = b"\xff" * 64
    path.write_bytes(content)
    with pytest.raises(JournalError, match="cannot be read"), open_read_only(tmp_path) as db:
        get_meta(db)


def test_a_copy_is_whole(tmp_path):
    """A copied journal holds what the first one held, and opens for writing."""
    with Journal(tmp_path / "a") as journal:
        journal.submit(put_meta({"a": "1"})).result()
    copy_journal(journal_path(tmp_path / "a"), journal_path(tmp_path / "b"))
    with Journal(tmp_path / "b"), open_read_only(tmp_path / "b") as db:
        assert get_meta(db) == {"a": "1"}


def test_a_copy_can_be_written_while_it_is_read(tmp_path):
    """Whoever looks at a run that just begins, however long, does not keep it from beginning."""
    with Journal(tmp_path / "a"):
        copy_journal(journal_path(tmp_path / "a"), journal_path(tmp_path / "b"))
    with open_read_only(tmp_path / "b") as db:
        looking = db.execute("SELECT * FROM sqlite_schema")
        assert next(looking)  # and goes on
        with Journal(tmp_path / "b") as journal:
            journal.submit(put_meta({"a": "1"})).result()
        assert next(looking)


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_read_only_folder_is_a_clear_error(tmp_path):
    """Where nothing can be written down, nothing may be sent."""
    tmp_path.chmod(0o500)
    with pytest.raises(JournalError, match="cannot be written"):
        Journal(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_journal_can_be_read_where_nothing_can_be_written(tmp_path):
    """On a read-only medium a finished run can still be looked at."""
    with Journal(tmp_path) as journal:
        journal.submit(put_meta({"a": "1"})).result()
    tmp_path.chmod(0o500)
    with open_read_only(tmp_path) as db:
        assert get_meta(db) == {"a": "1"}


def test_a_full_disk_fails_the_write_and_says_so(tmp_path):
    """A write that finds no room fails for its caller, and the journal keeps what it had."""
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


async def test_who_is_cancelled_while_waiting_does_not_take_the_change_back(tmp_path):
    """A change that was handed in reaches the disk, whatever becomes of the one who waits for it."""
    with Journal(tmp_path) as journal:
        waiting = asyncio.create_task(journal.write(put_meta({"a": "1"})))
        await asyncio.sleep(0)  # it has handed the change in
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await journal.write(put_meta({"b": "2"}))
        with open_read_only(tmp_path) as db:
            assert get_meta(db) == {"a": "1", "b": "2"}


def test_a_loop_that_has_ended_does_not_stop_the_writer(tmp_path):
    """Nobody waits in a closed loop; the others are told all the same."""
    with Journal(tmp_path) as journal:
        loop = asyncio.new_event_loop()
        handed_in = loop.create_task(journal.write(put_meta({"a": "1"})))
        loop.run_until_complete(asyncio.sleep(0))
        handed_in.cancel()
        loop.run_until_complete(asyncio.gather(handed_in, return_exceptions=True))
        loop.close()
        journal.submit(put_meta({"b": "2"})).result()
        with open_read_only(tmp_path) as db:
            assert get_meta(db) == {"a": "1", "b": "2"}
