"""A run's journal: one SQLite file with any number of readers and one thread that writes to it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Self, TypeVar

from lightmeter import sqlite
from lightmeter.atomic import fsync_folder
from lightmeter.errors import JournalError
from lightmeter.journal.files import DiskReserve, cannot_write, journal_path, run_lock
from lightmeter.journal.schema import APPLICATION_ID, SCHEMA, VERSION, migrate, remove_credentials
from lightmeter.sqlite import Change, GroupCommitWriter

T = TypeVar("T")


def _open_for_writing(path: Path) -> sqlite.Connection:
    try:
        connection = sqlite.open_wal(path)
        try:
            if not connection.execute("SELECT count(*) FROM sqlite_schema").get:
                with connection:
                    connection.execute(SCHEMA)
                    connection.pragma("application_id", APPLICATION_ID)
                    connection.pragma("user_version", VERSION)
                fsync_folder(path.parent)
            _check_version(connection, path)
        except BaseException:
            connection.close()
            raise
    except sqlite.Error as error:
        raise cannot_write(path, error) from error
    return connection


def _check_version(connection: sqlite.Connection, path: Path) -> None:
    if connection.pragma("application_id") != APPLICATION_ID:
        raise JournalError(f"{path} is not a journal of lightmeter.", hint="Choose another output folder.")
    migrate(connection, path)
    remove_credentials(connection, path)


@contextmanager
def open_read_only(folder: Path) -> Iterator[sqlite.Connection]:
    """Open the journal of an output folder for reading, also while a run writes to it.

    Raises:
        JournalError: the folder has no journal, or the journal cannot be read. An error while the `with` block reads is
            also raised as this error.
        JournalVersion: a newer lightmeter wrote the journal.
    """
    path = journal_path(folder)
    if not path.exists():
        raise JournalError(
            f"{folder} holds no run: {path} is missing.", hint="Start one: lightmeter run MANIFEST --out DIR"
        )
    try:
        with closing(_open_for_reading(path)) as connection:
            connection.pragma("query_only", "on")
            yield connection
    except sqlite.Error as error:  # also one raised inside the block: any page may be broken
        raise JournalError(f"{path} cannot be read: {error}.") from error


def _open_for_reading(path: Path) -> sqlite.Connection:
    """Open a journal for reading, even on a read-only medium.

    If possible, the file is opened with write access, because SQLite must rebuild an index file after a crash.
    """
    connection = sqlite.connect(path, create=False)
    try:
        _check_version(connection, path)
    except (sqlite.CantOpenError, sqlite.ReadOnlyError):
        connection.close()
        log = path.with_name(f"{path.name}-wal")
        if os.access(path.parent, os.W_OK) or (log.exists() and log.stat().st_size):
            raise
        connection = sqlite.open_immutable(path)
        _check_version(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


class Journal:
    """A run's journal, open for writing. Use it as a context manager.

    Attributes:
        folder: The run's output folder.
        disk_is_full: Whether the disk was full at some time since the journal was opened. Then the disk space that is
            reserved for this case was freed.

    Raises:
        JournalLocked: another process writes to this folder.
        JournalVersion: a newer version wrote the journal.
        JournalError: the journal cannot be opened or written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.disk_is_full = False
        self._is_closed = False
        with ExitStack() as stack:
            stack.enter_context(run_lock(folder))
            self._reserve = DiskReserve(folder)
            stack.callback(self._reserve.release)
            connection = _open_for_writing(journal_path(folder))
            self._writer = GroupCommitWriter(connection, "lightmeter-journal", self._to_error, self._release_reserve)
            stack.callback(self._writer.close)
            self._resources = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Write every queued change, then close the journal. Further calls do nothing."""
        self._is_closed = True
        self._resources.close()

    def call_after_commits(self, callback: Callable[[sqlite.Connection], None] | None) -> None:
        """Set a function that is called after each commit, before `write` returns. With None, no function is called.

        The thread that writes the journal calls the function with its connection to the journal.
        """
        self._writer.after_commit = callback

    async def write(self, change: Change[T]) -> T:
        """Call a function that changes the journal; return the function's result once the change is on disk.

        The change is made even if the task that awaits it is cancelled. If the function raises an exception, what it
        changed is undone, and `write` raises the exception.

        Raises:
            JournalError: the journal is closed, or cannot be written.
        """
        self._require_open()
        return await self._writer.write(change)

    def submit(self, change: Change[T]) -> Future[T]:
        """Queue a function that changes the journal, from any thread; return the future of the function's result.

        Raises:
            JournalError: the journal is closed.
        """
        self._require_open()
        return self._writer.submit(change)

    def _require_open(self) -> None:
        if self._is_closed:
            raise JournalError("The journal is closed.")

    def _release_reserve(self) -> bool:
        self.disk_is_full = True
        return self._reserve.release()

    def _to_error(self, error: sqlite.Error) -> JournalError:
        return JournalError(
            f"{journal_path(self.folder)} cannot be written: {error}.", hint="Is the disk full? Nothing more is sent."
        )
