"""The service's store of accounts, keys, requests and results: an SQLite file, or PostgreSQL for several processes.

Changes are plain functions of a transaction. They run on the database's own threads, so that the event loop never waits
for a disk.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, TypeVar

from lightmeter.extras import import_extra
from lightmeter.service.store.database import Connection, is_postgres
from lightmeter.service.store.sqlite import DatabaseBusy, SqliteDatabase

__all__ = ["Store"]

T = TypeVar("T")


class _Database(Protocol):
    async def run(self, work: Callable[[Connection], T]) -> T: ...

    def close(self) -> None: ...


class Store:
    """The store at a database address.

    Args:
        database: `sqlite:///PATH` or `postgresql://…`.
        exclusive: Whether this process runs requests: an SQLite file admits one such process.

    Raises:
        SettingsError: the database cannot be used.
    """

    def __init__(self, database: str, *, exclusive: bool = False) -> None:
        self._database = _postgres(database) if is_postgres(database) else SqliteDatabase(database, exclusive=exclusive)

    async def write(self, change: Callable[[Connection], T]) -> T:
        """Run `change`, all of it or nothing; return its result when it is on disk.

        Cancelling the caller does not undo the change: a client that hangs up does not alter what was decided.

        Raises:
            StoreError: the database failed.
            RuntimeError: the store is closed.
        """
        return await self._database.run(change)

    async def read(self, query: Callable[[Connection], T]) -> T:
        """Run `query`, which changes nothing. It sees all changes that were queued before it.

        Raises:
            StoreError: the database failed.
            RuntimeError: the store is closed.
        """
        return await self._database.run(query)

    async def read_inline(self, query: Callable[[Connection], T]) -> T:
        """Run `query`, which changes nothing and reads a few rows that are always in memory.

        On SQLite it runs on the event loop's own thread, and waits for no disk and no other thread.
        """
        if isinstance(self._database, SqliteDatabase):
            with suppress(DatabaseBusy):
                return self._database.read_inline(query)
        return await self.read(query)

    def close(self) -> None:
        """Write every queued change and close the database."""
        self._database.close()


def _postgres(database: str) -> _Database:
    module = import_extra("lightmeter.service.store.postgres", "postgres", "A PostgreSQL database")
    opened: _Database = module.PostgresDatabase(database)
    return opened
