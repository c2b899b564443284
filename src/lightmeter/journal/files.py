"""Files of a run beside what its journal says: where they are, who may change them, and space for the worst day."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from lightmeter import sqlite
from lightmeter.atomic import atomic_replace, fsync_folder
from lightmeter.errors import JournalError, JournalLocked

__all__ = [
    "DiskReserve",
    "acquire_run_lock",
    "archive_journal",
    "copy_journal",
    "is_run_locked",
    "journal_path",
    "run_lock",
]

FILE_NAME: Final = "journal.sqlite"
LOCK_NAME: Final = ".run.lock"
RESERVE_NAME: Final = ".journal-reserve"
RESERVE_BYTES: Final = 1024 * 1024
"""Kept free for answers in flight when the disk fills up: 64 of them at 16 KB, which is three times what is usual."""


def journal_path(folder: Path) -> Path:
    """Where the journal of an output folder is."""
    return folder / FILE_NAME


def copy_journal(source: Path, target: Path, meta: Mapping[str, str] | None = None) -> None:
    """Make `target` a compact copy of the journal file `source`, whole or not at all; `meta` replaces facts of the run.

    Raises:
        JournalError: it cannot be written.
    """
    connection = sqlite.connect(source, create=False)
    try:
        with atomic_replace(target) as temporary:
            connection.execute("VACUUM INTO ?", (str(temporary),))
            with closing(sqlite.connect(temporary, create=False)) as copy:
                copy.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", list((meta or {}).items()))
                copy.pragma("journal_mode", "wal")  # now, while nobody reads it: a reader would keep the switch waiting
    except sqlite.Error as error:
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
        connection = sqlite.connect(source, create=False)
        try:
            connection.pragma("journal_mode", "delete")
        finally:
            connection.close()
        target.parent.mkdir(parents=True, exist_ok=True)
        source.rename(target)
        fsync_folder(target.parent)
        fsync_folder(source.parent)
    except sqlite.BusyError:
        raise JournalLocked(f"{source} is being read.", hint="Try again in a moment.") from None
    except (sqlite.Error, OSError) as error:
        raise JournalError(f"{source} cannot be moved to {target}: {error}.") from error


@contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Be the only process that may change the run in `folder`; the system lets go when the process dies, however.

    Raises:
        JournalLocked: another process is.
        JournalError: the folder cannot be written.
    """
    lock = acquire_run_lock(folder)
    try:
        yield
    finally:
        lock.close()


def acquire_run_lock(folder: Path) -> sqlite.Connection:
    """As `run_lock`, until the returned connection is closed."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return sqlite.hold_exclusive_lock(folder / LOCK_NAME)
    except sqlite.BusyError:
        raise JournalLocked(
            f"Another process is running {folder}.",
            hint="Wait for it, or look at it: lightmeter status DIR",
        ) from None
    except sqlite.Error as error:
        raise JournalError(
            f"{folder} cannot be written: {error}.",
            hint="Is the disk full, or the folder read-only? Nothing was sent.",
        ) from error


def is_run_locked(folder: Path) -> bool:
    """Return whether a process is running the folder, without taking the lock."""
    return sqlite.is_exclusively_locked(folder / LOCK_NAME)


class DiskReserve:
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
