"""One SQLite file that survives kill -9, on a thread of its own with one connection: no two statements ever race.

What is handed in while the disk is busy is done in one transaction afterwards: each change on a savepoint of its own,
so that one that fails takes nothing of the others with it, and nobody is told of anything before all of it is on disk.

A service has its file for itself: what is running in it belongs to this process, so the lease of all its work is the
lock on the file beside it, which the system drops when the process dies, however it dies. The admin verbs write beside
it, in transactions of their own; they do no work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Final, TypeVar

import apsw

from lightmeter.errors import SettingsError
from lightmeter.service.store.database import Connection, StoreError, sqlite_path, to_sqlite
from lightmeter.service.store.db_calls import DatabaseCall, DatabaseOutcome, deliver
from lightmeter.service.store.schema import SCHEMA, VERSION, steps_from

__all__ = ["DatabaseBusy", "SqliteDatabase"]

T = TypeVar("T")

MAX_AT_ONCE: Final = 64
"""Jobs in one transaction: the last of them waits for the first."""


class DatabaseBusy(Exception):
    """The file cannot be looked at without waiting."""


class _SqliteTransaction:
    """The shared words on an apsw connection."""

    def __init__(self, db: apsw.Connection) -> None:
        self._db = db

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return list(self._db.execute(to_sqlite(sql), parameters))

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        self._db.executemany(to_sqlite(sql), rows)


class SqliteDatabase:
    """The file.

    Args:
        database: `sqlite:///PATH`.
        exclusive: Whether no other service may work on it meanwhile.

    Raises:
        SettingsError: the file cannot be opened, was written by a newer version, or another service works on it.
    """

    def __init__(self, database: str, *, exclusive: bool) -> None:
        self._path = Path(sqlite_path(database))
        self._exclusive = exclusive
        self._lock: apsw.Connection | None = None
        self._jobs: SimpleQueue[DatabaseCall | None] = SimpleQueue()
        self._is_closed = False
        try:
            self._db = self._open()
            self._glancing = apsw.Connection(str(self._path), flags=apsw.SQLITE_OPEN_READONLY)
        except BaseException:
            self._unlock()
            raise
        self._thread = Thread(target=self._run, name="lightmeter-store", daemon=True)
        self._thread.start()

    def _open(self) -> apsw.Connection:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if self._exclusive:
                self._lock = self._take_lock()
            db = apsw.Connection(str(self._path))
            db.set_busy_timeout(10_000)
            db.pragma("journal_mode", "wal")
            db.pragma("synchronous", "full")
            db.pragma("foreign_keys", "on")
            try:
                with _writing(db):
                    _make_tables(db, str(self._path))
            except SettingsError:
                db.close()
                raise
        except (apsw.Error, OSError) as error:
            raise SettingsError(f"The database {self._path} cannot be used: {error}.") from error
        return db

    def _take_lock(self) -> apsw.Connection:
        """An exclusive transaction on a file of its own: readers and admin verbs are not kept out by it."""
        lock = apsw.Connection(f"{self._path}.lock")
        try:
            lock.execute("BEGIN EXCLUSIVE")
        except apsw.BusyError:
            lock.close()
            raise SettingsError(
                f"Another service works on the database {self._path}.",
                hint="An SQLite file serves one process; several share --database postgresql://…",
            ) from None
        return lock

    def submit(self, job: DatabaseCall) -> None:
        """Do a job as soon as it is its turn.

        Raises:
            RuntimeError: the file is closed.
        """
        if self._is_closed:
            raise RuntimeError("the store is closed")
        self._jobs.put(job)

    def read_inline(self, look: Callable[[Connection], T]) -> T:
        """Look at what is written, on the thread that asks; always the same one.

        Raises:
            Busy: the file is being recovered or tidied up.
        """
        try:
            return look(_SqliteTransaction(self._glancing))
        except apsw.BusyError:
            raise DatabaseBusy from None

    def close(self) -> None:
        """Finish what was handed in and close the file."""
        self._is_closed = True
        self._jobs.put(None)
        self._thread.join()
        self._glancing.close()
        self._unlock()

    def _run(self) -> None:
        goes_on = True
        while goes_on:
            waiting: list[DatabaseCall | None] = [self._jobs.get()]
            try:
                while len(waiting) < MAX_AT_ONCE:
                    waiting.append(self._jobs.get_nowait())
            except Empty:
                pass
            jobs = [job for job in waiting if job is not None]
            goes_on = len(jobs) == len(waiting)
            while jobs:
                jobs = jobs[self._do(jobs) :]
        self._db.close()

    def _do(self, jobs: list[DatabaseCall]) -> int:
        """Do jobs in one transaction, and tell who waits; returns how many, because one may break the transaction."""
        ended: list[tuple[DatabaseCall, DatabaseOutcome]] = []
        try:
            if not any(job.writes for job in jobs):
                ended = [(job, self._outcome(job)) for job in jobs]
            else:
                with _writing(self._db):
                    for job in jobs:
                        ended.append((job, self._step(job)))
                        if not self._db.in_transaction:  # a full disk, for one: all of it was rolled back
                            raise apsw.FullError("the transaction was rolled back")
        except apsw.Error as error:  # nothing of it is on disk
            lost = _failed(error)
            told = [(job, outcome if outcome.error is not None else lost) for job, outcome in ended]
            ended = told or [(jobs[0], lost)]
        deliver(ended)
        return len(ended)

    def _step(self, job: DatabaseCall) -> DatabaseOutcome:
        """One job of a transaction; what it has written before it failed is taken back."""
        if not job.writes:
            return self._outcome(job)
        self._db.execute("SAVEPOINT job")
        outcome = self._outcome(job)
        if outcome.error is not None and self._db.in_transaction:
            self._db.execute("ROLLBACK TO job")
        if self._db.in_transaction:
            self._db.execute("RELEASE job")
        return outcome

    def _outcome(self, job: DatabaseCall) -> DatabaseOutcome:
        try:
            return DatabaseOutcome(job.work(_SqliteTransaction(self._db)))
        except apsw.Error as error:
            return _failed(error)
        except Exception as error:  # noqa: BLE001 (whatever it is, it is for whoever waits)
            return DatabaseOutcome(error=error)

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.close()


def _failed(error: apsw.Error) -> DatabaseOutcome:
    failed = StoreError(f"SQLite failed: {type(error).__name__}.")
    failed.__cause__ = error
    return DatabaseOutcome(error=failed)


def _make_tables(db: apsw.Connection, path: str) -> None:
    """Those of this version: new, or made of those of an older one."""
    version = int(db.pragma("user_version"))  # type: ignore[call-overload, unused-ignore]
    for step in [SCHEMA] if version == 0 else steps_from(version, path):
        db.execute(step)
    db.pragma("user_version", VERSION)


class _writing:  # noqa: N801 (reads as a word in `with`)
    """A transaction that has the right to write from its start, so it never fails half way for want of it."""

    def __init__(self, db: apsw.Connection) -> None:
        self._db = db

    def __enter__(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            try:
                self._db.execute("COMMIT")
            except BaseException:
                self._roll_back()
                raise
        else:
            self._roll_back()

    def _roll_back(self) -> None:
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")
