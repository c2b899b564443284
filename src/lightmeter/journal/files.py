"""Files of a run beside what its journal says: where they are, who may change them, and space for the worst day."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import apsw

from lightmeter.atomic import atomic_replace, fsync_folder
from lightmeter.errors import JournalError, JournalLocked

__all__ = [
    "FILE_NAME",
    "LOCK_NAME",
    "Reserve",
    "archive_journal",
    "connect",
    "copy_journal",
    "journal_path",
    "run_lock",
    "take_lock",
]

FILE_NAME: Final = "journal.sqlite"
LOCK_NAME: Final = ".run.lock"
RESERVE_NAME: Final = ".journal-reserve"
RESERVE_BYTES: Final = 1024 * 1024
"""Kept free for answers in flight when the disk fills up: 64 of them at 16 KB, which is three times what is usual."""
BUSY_MS: Final = 10_000


def journal_path(folder: Path) -> Path:
    """Where the journal of an output folder is."""
    return folder / FILE_NAME


def connect(path: Path, flags: int) -> apsw.Connection:
    """A connection to a journal that waits for a moment while another one writes."""
    connection = apsw.Connection(str(path), flags=flags)
    connection.set_busy_timeout(BUSY_MS)
    return connection


def copy_journal(source: Path, target: Path, meta: Mapping[str, str] | None = None) -> None:
    """Make `target` a compact copy of the journal file `source`, whole or not at all; `meta` replaces facts of the run.

    Raises:
        JournalError: it cannot be written.
    """
    connection = connect(source, apsw.SQLITE_OPEN_READWRITE)
    try:
        with atomic_replace(target) as temporary:
            connection.execute("VACUUM INTO ?", (str(temporary),))
            with closing(connect(temporary, apsw.SQLITE_OPEN_READWRITE)) as copy:
                copy.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", list((meta or {}).items()))
                copy.pragma("journal_mode", "wal")  # now, while nobody reads it: a reader would keep the switch waiting
    except apsw.Error as error:
        raise JournalError(f"{target} cannot be written: {error}.") from error
    finally:
        connection.close()


def archive_journal(source: Path, target: Path) -> None:
    """Move a journal file that nobody runs any more, whole: what its log still holds goes into it first.

    Raises:
        JournalLocked: somebody reads it at this moment.
        JournalError: it cannot be moved.
    """
    try:
        connection = connect(source, apsw.SQLITE_OPEN_READWRITE)
        try:
            connection.pragma("journal_mode", "delete")
        finally:
            connection.close()
        target.parent.mkdir(parents=True, exist_ok=True)
        source.rename(target)
        fsync_folder(target.parent)
        fsync_folder(source.parent)
    except apsw.BusyError:
        raise JournalLocked(f"{source} is being read.", hint="Try again in a moment.") from None
    except (apsw.Error, OSError) as error:
        raise JournalError(f"{source} cannot be moved to {target}: {error}.") from error


@contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Be the only process that may change the run in `folder`; the system lets go when the process dies, however.

    Raises:
        JournalLocked: another process is.
        JournalError: the folder cannot be written.
    """
    lock = take_lock(folder)
    try:
        yield
    finally:
        lock.close()


def take_lock(folder: Path) -> apsw.Connection:
    """As `run_lock`, until the connection is closed: an exclusive transaction on a file of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = None
    try:
        lock = apsw.Connection(str(folder / LOCK_NAME))
        lock.execute("BEGIN EXCLUSIVE")
    except apsw.Error as error:
        if lock is not None:
            lock.close()
        if isinstance(error, apsw.BusyError):
            raise JournalLocked(
                f"Another process is running {folder}.",
                hint="Wait for it, or look at it: lightmeter status DIR",
            ) from None
        raise JournalError(
            f"{folder} cannot be written: {error}.",
            hint="Is the disk full, or the folder read-only? Nothing was sent.",
        ) from error
    return lock


class Reserve:
    """Space on the disk that is given back when it is full, so that what is in flight can still be written down.

    Raises:
        JournalError: the disk has no such space.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / RESERVE_NAME
        try:
            with self._path.open("wb") as file:
                file.write(bytes(RESERVE_BYTES))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            self.release()
            raise JournalError(
                f"{folder} cannot be written: {error.strerror or error}.",
                hint="Is the disk full, or the folder read-only? Nothing was sent.",
            ) from error

    def release(self) -> bool:
        """Give the space back; False if that was done before."""
        try:
            self._path.unlink()
        except OSError:
            return False
        return True
