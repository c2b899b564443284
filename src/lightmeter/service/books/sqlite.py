"""One SQLite file that survives kill -9, on a thread of its own with one connection: no two statements ever race.

A service has its file for itself: what is running in it belongs to this process, so the lease of all its work is the
lock on the file beside it, which the system drops when the process dies, however it dies. The admin verbs write beside
it, in transactions of their own; they do no work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import apsw

from lightmeter.errors import SettingsError
from lightmeter.service.books.database import Connection, StoreError, sqlite_path, to_sqlite
from lightmeter.service.books.schema import SCHEMA, VERSION, steps_from

__all__ = ["SqliteDatabase"]

T = TypeVar("T")


class _Transaction:
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
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="lightmeter-store")
        try:
            self._db = self._thread.submit(self._open).result()
        except BaseException:
            self._unlock()
            self._thread.shutdown()
            raise

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

    def write(self, change: Callable[[Connection], T]) -> Future[T]:
        """Run `change` in a transaction; done when it is on disk."""

        def in_transaction() -> T:
            try:
                with _writing(self._db):
                    return change(_Transaction(self._db))
            except apsw.Error as error:
                raise StoreError(f"SQLite failed: {type(error).__name__}.") from error

        return self._thread.submit(in_transaction)

    def read(self, look: Callable[[Connection], T]) -> Future[T]:
        """Run `look`, which changes nothing."""
        return self._thread.submit(lambda: look(_Transaction(self._db)))

    def close(self) -> None:
        """Finish what was handed in and close the file."""
        self._thread.submit(self._db.close).result()
        self._thread.shutdown()
        self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.close()


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
