"""The service's database in one SQLite file. One thread writes, and commits several transactions at once.

Committed transactions survive kill -9. Only one process at a time may run requests of a database: it holds an exclusive
lock on a second file beside the database, which the operating system releases when the process dies. Admin commands
run no requests, so they need no lock to write to the database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from lightmeter import sqlite
from lightmeter.errors import SettingsError
from lightmeter.service.store.schema import SCHEMA, VERSION, migrations_from
from lightmeter.service.store.sql_dialects import Connection, StoreError, sqlite_path, to_sqlite

T = TypeVar("T")


class DatabaseBusy(Exception):
    """SQLite cannot read the file at once."""


class _SqliteTransaction:
    """Adapter of an SQLite connection to the `Connection` protocol."""

    def __init__(self, db: sqlite.Connection) -> None:
        self._db = db

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return list(self._db.execute(to_sqlite(sql), parameters))

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        self._db.executemany(to_sqlite(sql), rows)


class SqliteDatabase:
    """The service's SQLite file, open for writing.

    Args:
        database: `sqlite:///PATH`.
        exclusive: Whether this process runs requests; only one such process can open the file at a time.

    Raises:
        SettingsError: the file cannot be opened, a newer version of lightmeter created it, or another service uses it.
    """

    def __init__(self, database: str, *, exclusive: bool) -> None:
        self._path = Path(sqlite_path(database))
        self._lock: sqlite.Connection | None = None
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if exclusive:
                self._lock = self._acquire_lock()
            connection = self._open()
            self._inline_reads = sqlite.open_read_only(self._path)
        except (sqlite.Error, OSError) as error:
            self._release_lock()
            raise SettingsError(f"The database {self._path} cannot be used: {error}.") from error
        except BaseException:
            self._release_lock()
            raise
        self._writer = sqlite.GroupCommitWriter(connection, "lightmeter-store", _store_error)

    def _open(self) -> sqlite.Connection:
        db = sqlite.open_wal(self._path)
        try:
            with sqlite.write_transaction(db):
                _create_or_migrate_tables(db, str(self._path))
        except BaseException:
            db.close()
            raise
        return db

    def _acquire_lock(self) -> sqlite.Connection:
        """Lock a second file beside the database, and return the connection that holds the lock.

        The lock blocks neither readers nor admin commands.

        Raises:
            SettingsError: another service holds the lock.
        """
        try:
            return sqlite.hold_exclusive_lock(Path(f"{self._path}.lock"))
        except sqlite.BusyError:
            raise SettingsError(
                f"Another service works on the database {self._path}.",
                hint="An SQLite file serves one process; several share --database postgresql://…",
            ) from None

    def _release_lock(self) -> None:
        if self._lock is not None:
            self._lock.close()

    async def run(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in a transaction on the writer thread; return its result when its changes are on disk.

        Raises:
            StoreError: SQLite failed.
            RuntimeError: the database is closed.
        """
        try:
            return await self._writer.write(lambda db: work(_SqliteTransaction(db)))
        except sqlite.Error as error:
            raise _store_error(error) from error

    def read_inline(self, query: Callable[[Connection], T]) -> T:
        """Run a query on the calling thread without waiting, and return its result. It sees committed changes.

        Raises:
            DatabaseBusy: SQLite is recovering or checkpointing the file.
        """
        try:
            return query(_SqliteTransaction(self._inline_reads))
        except sqlite.BusyError:
            raise DatabaseBusy from None

    def close(self) -> None:
        """Finish all queued transactions and close the file."""
        self._writer.close()
        self._inline_reads.close()
        self._release_lock()


def _store_error(error: sqlite.Error) -> StoreError:
    return StoreError(f"SQLite failed: {type(error).__name__}.")


def _create_or_migrate_tables(db: sqlite.Connection, path: str) -> None:
    version = int(db.pragma("user_version"))  # type: ignore[call-overload, unused-ignore]
    for step in [SCHEMA] if version == 0 else migrations_from(version, path):
        db.execute(step)
    db.pragma("user_version", VERSION)
