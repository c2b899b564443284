"""The service's database in one SQLite file. One thread writes, and commits several transactions at once.

Only one process at a time may run the requests of a database. This process holds an exclusive lock on a second file
beside the database. The operating system releases the lock when the process dies. Admin commands need no lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

from lightmeter import sqlite
from lightmeter.errors import SettingsError
from lightmeter.service.store.schema import SCHEMA, VERSION, migrations_from
from lightmeter.service.store.sql_dialects import Connection, DatabaseFull, StoreError, sqlite_path, to_sqlite

T = TypeVar("T")


class _SqliteTransaction:
    """Runs SQL in an SQLite transaction; implements the protocol `Connection`."""

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
        exclusive: Whether this process runs requests. If so, it locks `PATH.lock`: no other process can then open the
            database with `exclusive`.

    Raises:
        SettingsError: the file is a folder, cannot be opened, has several names (hard links), was created by a newer
            version of lightmeter, or is used by another service.
    """

    def __init__(self, database: str, *, exclusive: bool) -> None:
        path = Path(sqlite_path(database)).resolve()  # its locks must not depend on symbolic links
        with ExitStack() as stack:  # closes what is open if a later step fails
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                _check_names(path)
                if exclusive:
                    stack.callback(_hold_lock(path).close)
                connection = sqlite.open_wal(path)
                stack.callback(connection.close)
                with sqlite.write_transaction(connection):
                    _create_or_migrate_tables(connection, str(path))
                self._inline_reads = sqlite.open_read_only(path)
                stack.callback(self._inline_reads.close)
            except (sqlite.Error, OSError) as error:
                raise SettingsError(f"The database {path} cannot be used: {error}.") from error
            self._writer = sqlite.GroupCommitWriter(connection, "lightmeter-store", _store_error)
            stack.callback(self._writer.close)
            self._stack = stack.pop_all()

    async def run(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in a transaction on the writer thread, and return its result when its changes are on disk.

        Raises:
            StoreError: SQLite failed.
            RuntimeError: the database is closed.
        """
        try:
            return await self._writer.write(lambda db: work(_SqliteTransaction(db)))
        except sqlite.Error as error:
            raise _store_error(error) from error

    async def read_inline(self, query: Callable[[Connection], T]) -> T:
        """Run a query in the calling thread, and return its result. If the file is busy, use the writer thread."""
        try:
            return query(_SqliteTransaction(self._inline_reads))
        except sqlite.BusyError:
            return await self.run(query)

    def close(self) -> None:
        """Finish all queued transactions and close the file."""
        self._stack.close()


def _check_names(path: Path) -> None:
    """Check that the file has only one name. SQLite can lose data if processes open a file under two names.

    Raises:
        SettingsError: the file has several names (hard links), or is a folder.
    """
    if path.is_dir():
        raise SettingsError(f"The database {path} is a folder.", hint="Name a file: sqlite:///PATH.")
    if path.exists() and path.stat().st_nlink > 1:
        raise SettingsError(
            f"The database {path} has further names (hard links), under which another service may use it.",
            hint="Remove them, or copy the file while no service runs, and use the copy.",
        )


def _hold_lock(path: Path) -> sqlite.Connection:
    """Lock the file `PATH.lock` beside the database. To release the lock, close the returned connection.

    Raises:
        SettingsError: another service holds the lock.
    """
    try:
        return sqlite.hold_exclusive_lock(Path(f"{path}.lock"))
    except sqlite.BusyError:
        raise SettingsError(
            f"Another service works on the database {path}.",
            hint="An SQLite file serves one process; several share --database postgresql://…",
        ) from None


def _store_error(error: sqlite.Error) -> StoreError:
    if isinstance(error, sqlite.FullError):
        return DatabaseFull("The disk of the SQLite database is full.")
    return StoreError(f"SQLite failed: {type(error).__name__}.")


def _create_or_migrate_tables(db: sqlite.Connection, path: str) -> None:
    version = int(db.pragma("user_version"))  # type: ignore[call-overload, unused-ignore]
    for step in [SCHEMA] if version == 0 else migrations_from(version, path):
        db.execute(step)
    db.pragma("user_version", VERSION)
