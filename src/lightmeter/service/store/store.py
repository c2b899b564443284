"""The service's store of accounts, keys, requests and results, in an SQLite file or a PostgreSQL database.

The methods of `Store` take a function, and call it with a transaction (`Connection`). The function runs in a thread of
the database, so that the event loop does not wait for a disk. Only `read_inline` may call it on the event loop.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, TypeVar

from lightmeter.extras import import_extra
from lightmeter.service.store.sql_dialects import Connection, is_postgres
from lightmeter.service.store.sqlite import SqliteDatabase

T = TypeVar("T")


class _Database(Protocol):
    async def run(self, work: Callable[[Connection], T]) -> T: ...

    def close(self) -> None: ...


class Store:
    """The service's database of accounts, keys, requests and results; transactions run in separate threads.

    Args:
        database: `sqlite:///PATH` or `postgresql://…`.
        exclusive: Whether this process runs requests. If so, no other process can open the same SQLite database with
            `exclusive`; PostgreSQL ignores this argument.
        timer: Function that takes "read" or "write" and returns a context manager. Each transaction runs in the `with`
            block of this context manager, which measures its duration. None: nothing is measured.

    Raises:
        SettingsError: the database cannot be used.
    """

    def __init__(
        self,
        database: str,
        *,
        exclusive: bool = False,
        timer: Callable[[str], AbstractContextManager[None]] | None = None,
    ) -> None:
        self._timer = timer or (lambda _: nullcontext())
        if is_postgres(database):
            module = import_extra("lightmeter.service.store.postgres", "postgres", "A PostgreSQL database")
            self._database: _Database = module.PostgresDatabase(database)
        else:
            self._database = SqliteDatabase(database, exclusive=exclusive)

    async def write(self, change: Callable[[Connection], T]) -> T:
        """Run `change` in one transaction, and return its result when the changes are on disk.

        If the caller is cancelled, for example because a client disconnects, the transaction goes on.

        Raises:
            StoreError: the database failed.
            RuntimeError: the store is closed.
        """
        with self._timer("write"):
            return await self._database.run(change)

    async def read(self, query: Callable[[Connection], T]) -> T:
        """Run `query` in one transaction, and return its result. The query must not change data.

        The query sees the changes of each call of `write` that has already returned.

        Raises:
            StoreError: the database failed.
            RuntimeError: the store is closed.
        """
        with self._timer("read"):
            return await self._database.run(query)

    async def read_inline(self, query: Callable[[Connection], T]) -> T:
        """Run a fast `query` that reads only a few rows, and return its result.

        With SQLite, the query usually runs on the event loop. This blocks the event loop for less time than a switch to
        another thread and back. With PostgreSQL, the query runs as in `read`.
        """
        if isinstance(self._database, SqliteDatabase):
            with self._timer("read"):
                return await self._database.read_inline(query)
        return await self.read(query)

    def close(self) -> None:
        """Finish all queued transactions and close the database."""
        self._database.close()
