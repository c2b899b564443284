"""The files beside a journal: the lock of a run, copies of the journal, and a file that reserves disk space."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

from lightmeter import sqlite
from lightmeter.atomic import atomic_replace, fsync_folder
from lightmeter.errors import JournalError, JournalLocked

FILE_NAME: Final = "journal.sqlite"
"""Name of the journal in the output folder of a run."""

LOCK_NAME: Final = ".run.lock"
"""Name of the file whose lock lets only one process change a run."""

RESERVE_NAME: Final = ".journal-reserve"
"""Name of the file that `DiskReserve` writes to reserve disk space."""

RESERVE_BYTES: Final = 1024 * 1024
"""Size of the file that reserves disk space for the answers to requests in flight, in bytes.

It is enough for 64 answers of 16 KB, which is three times the usual size of an answer.
"""

READERS_WAIT_S: Final = 2.0
"""Seconds that `replace_journal` waits for processes that read the journal; then it raises `JournalLocked`.

One such reader is the live page, which reads once a second.
"""


def journal_path(folder: Path) -> Path:
    """Return the path of the journal in an output folder."""
    return folder / FILE_NAME


def cannot_write(path: Path, why: object) -> JournalError:
    """Return the `JournalError` to raise if `path`, a journal or its folder, cannot be written; `why` is the reason."""
    hint = "Is the disk full, or the folder read-only? Nothing was sent."
    return JournalError(f"{path} cannot be written: {why}.", hint=hint)


def copy_journal(
    source: Path,
    target: Path,
    meta: Mapping[str, str] | None = None,
    change: Callable[[sqlite.Connection], None] | None = None,
) -> None:
    """Write a compact copy of a journal. After an error there is no incomplete copy.

    Args:
        source: The journal file.
        target: The copy; replaced if it exists.
        meta: Values (name → text) to write to the table `meta` of the copy, where they replace values of the same name;
            None writes none.
        change: A function that changes the copy before it appears at `target`; None changes nothing.

    Raises:
        JournalError: the copy cannot be written.
    """
    with closing(sqlite.connect(source, create=False)) as connection:
        try:
            with atomic_replace(target) as temporary:
                connection.execute("VACUUM INTO ?", (str(temporary),))
                with closing(sqlite.connect(temporary, create=False)) as copy:
                    copy.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", list((meta or {}).items()))
                    if change is not None:
                        change(copy)
                    copy.pragma("journal_mode", "wal")  # before any process reads it: a reader would block the switch
        except sqlite.Error as error:
            raise JournalError(f"{target} cannot be written: {error}.") from error


def snapshot_journal(source: Path, target: Path) -> None:
    """Copy the journal file `source` to the new file `target`, which readers on other machines may open.

    `target` may be on a file system that several machines share. The copy has no write-ahead log, because only the
    processes of one machine can read such a log. An incomplete copy may remain after an error.

    Raises:
        JournalError: the copy cannot be written.
    """
    try:
        with closing(sqlite.connect(source, create=False)) as connection:
            connection.execute("VACUUM INTO ?", (str(target),))
    except sqlite.Error as error:
        raise JournalError(f"{target} cannot be written: {error}.") from error


def replace_journal(source: Path, target: Path) -> None:
    """Move the journal file `source` to `target`. If there is a journal at `target`, it is replaced.

    Raises:
        JournalLocked: a process is reading the journal at `target`.
        JournalError: the journal cannot be moved.
    """
    try:
        if target.exists():
            with closing(sqlite.connect(target, create=False)) as connection:
                sqlite.set_journal_mode(connection, "delete", READERS_WAIT_S)
        source.replace(target)
        fsync_folder(target.parent)
    except sqlite.BusyError:
        raise JournalLocked(f"{source} is being read.", hint="Try again in a moment.") from None
    except (sqlite.Error, OSError) as error:
        raise JournalError(f"{source} cannot be moved to {target}: {error}.") from error


def run_lock(folder: Path) -> closing[sqlite.Connection]:
    """Acquire the lock that lets only one process change the run in `folder`, until `close` or the end of `with`.

    The lock is released also when the process is killed.

    Raises:
        JournalLocked: another process, or another run in this process, has the lock.
        JournalError: the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return closing(sqlite.hold_exclusive_lock(folder / LOCK_NAME))
    except sqlite.BusyError:
        hint = "Wait for it, or look at it: lightmeter status DIR"
        raise JournalLocked(f"Another process, or this one, is running {folder}.", hint=hint) from None
    except sqlite.Error as error:
        raise cannot_write(folder, error) from error


def is_run_locked(folder: Path) -> bool:
    """Return whether a process is changing the run in `folder` now: if so, it holds the lock of `run_lock`."""
    return sqlite.is_exclusively_locked(folder / LOCK_NAME)


class DiskReserve:
    """A file that occupies disk space.

    If the disk is full, deleting it makes room for the answers to requests in flight.

    The constructor writes the file `RESERVE_NAME`, of `RESERVE_BYTES` bytes, to `folder`.

    Raises:
        JournalError: the file cannot be written, for example because the disk is full.
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
            raise cannot_write(folder, error.strerror or error) from error

    def release(self) -> bool:
        """Delete the file that reserves disk space. Return False if it is gone already, or cannot be deleted."""
        try:
            self._path.unlink()
        except OSError:
            return False
        return True
