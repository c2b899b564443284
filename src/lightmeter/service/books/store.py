"""The service's memory: accounts, keys, requests, results. In one SQLite file, or in PostgreSQL where several share it.

Changes are plain functions of a transaction; they run on the database's own threads, so the event loop never waits for
a disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol, TypeVar

from lightmeter.errors import SettingsError
from lightmeter.service.books.database import Connection, is_postgres
from lightmeter.service.books.sqlite import SqliteDatabase

__all__ = ["Store"]

T = TypeVar("T")


class _Database(Protocol):
    def write(self, change: Callable[[Connection], T]) -> Future[T]: ...

    def read(self, look: Callable[[Connection], T]) -> Future[T]: ...

    def close(self) -> None: ...


class Store:
    """The database an address names.

    Args:
        database: `sqlite:///PATH` or `postgresql://…`.
        exclusive: Whether requests are done here: an SQLite file admits one such process.

    Raises:
        SettingsError: the database cannot be used.
    """

    def __init__(self, database: str, *, exclusive: bool = False) -> None:
        self._database = _postgres(database) if is_postgres(database) else SqliteDatabase(database, exclusive=exclusive)

    async def write(self, change: Callable[[Connection], T]) -> T:
        """Run `change` in a transaction of its own; returns when it is on disk."""
        return await _outcome(self._database.write(change))

    async def read(self, look: Callable[[Connection], T]) -> T:
        """Run `look`, which changes nothing."""
        return await _outcome(self._database.read(look))

    def close(self) -> None:
        """Finish what was handed in and close the database."""
        self._database.close()


def _postgres(database: str) -> _Database:
    try:
        from lightmeter.service.books.postgres import PostgresDatabase  # noqa: PLC0415 (an extra that SQLite does not need)
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"PostgreSQL needs packages that are not installed: {error.name}.",
            hint="Install them: pip install 'lightmeter[postgres]'",
        ) from error
    return PostgresDatabase(database)


async def _outcome(future: Future[T]) -> T:
    # Shielded: a client that hangs up does not take back what was decided.
    return await asyncio.shield(asyncio.wrap_future(future))
