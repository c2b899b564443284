"""A reader that looks at a run again and again, such as the live page, keeps no run from starting."""

from __future__ import annotations

import threading
import time

import pytest

from lightmeter import sqlite
from lightmeter.errors import JournalLocked
from lightmeter.journal import files
from lightmeter.journal.files import copy_journal, journal_path, replace_journal
from lightmeter.journal.store import Journal, open_read_only


@pytest.fixture
def folder(tmp_path):
    """A folder with an empty journal, and a copy of it in `next`."""
    with Journal(tmp_path):
        pass
    copy_journal(journal_path(tmp_path), tmp_path / "next")
    return tmp_path


def test_journal_is_replaced_when_a_reader_has_ended(folder):
    """A journal is replaced although a process is reading it for a moment."""
    is_reading = threading.Event()

    def read():
        with open_read_only(folder):
            is_reading.set()
            time.sleep(0.2)

    reader = threading.Thread(target=read)
    reader.start()
    is_reading.wait(20)
    replace_journal(folder / "next", journal_path(folder))
    reader.join()
    assert not (folder / "next").exists()


def test_journal_with_a_reader_that_stays_is_not_replaced(folder, monkeypatch):
    """A reader that does not end is reported after some time."""
    monkeypatch.setattr(files, "READERS_WAIT_S", 0.05)
    with open_read_only(folder), pytest.raises(JournalLocked, match="is being read"):
        replace_journal(folder / "next", journal_path(folder))


def test_lock_is_acquired_while_a_process_asks_for_it(tmp_path):
    """A process that reads the lock for a moment does not keep another one from acquiring it."""
    path = tmp_path / "lock"
    sqlite.hold_exclusive_lock(path).close()
    reader = sqlite.open_read_only(path)
    asking = reader.execute("SELECT 1 UNION SELECT count(*) FROM sqlite_master")
    next(asking)  # an open statement holds a shared lock
    timer = threading.Timer(0.05, asking.close)
    timer.start()
    sqlite.hold_exclusive_lock(path).close()
    timer.join()
    reader.close()
