"""The service's memory: accounts, keys, requests, results. In one SQLite file, or in PostgreSQL where several share it.

Changes are plain functions of a transaction; they run on the database's own threads, so the event loop never waits for
a disk.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, TypeVar

from lightmeter.errors import SettingsError
from lightmeter.service.store.database import Connection, is_postgres
from lightmeter.service.store.db_calls import DatabaseCall
from lightmeter.service.store.sqlite import DatabaseBusy, SqliteDatabase

__all__ = ["Store"]

T = TypeVar("T")


class _Database(Protocol):
    def submit(self, job: DatabaseCall) -> None: ...

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
        """Run `change`, all of it or nothing; returns when it is on disk.

        A client that hangs up does not take back what was decided: it is done, whether somebody waits or not.
        """
        return await self._do(change, writes=True)

    async def read(self, look: Callable[[Connection], T]) -> T:
        """Run `look`, which changes nothing."""
        return await self._do(look, writes=False)

    async def read_inline(self, look: Callable[[Connection], T]) -> T:
        """Run `look`, which changes nothing and reads a few rows that are always in memory.

        On a file it is done here and now: it sees what is written, and waits for no disk and no other thread.
        """
        if isinstance(self._database, SqliteDatabase):
            with suppress(DatabaseBusy):
                return self._database.read_inline(look)
        return await self.read(look)

    async def _do(self, work: Callable[[Connection], T], *, writes: bool) -> T:
        job = DatabaseCall(work, writes)
        self._database.submit(job)
        done: T = await job.outcome()
        return done

    def close(self) -> None:
        """Finish what was handed in and close the database."""
        self._database.close()


def _postgres(database: str) -> _Database:
    try:
        from lightmeter.service.store.postgres import PostgresDatabase  # noqa: PLC0415 (an extra that SQLite does not need)
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"PostgreSQL needs packages that are not installed: {error.name}.",
            hint="Install them: pip install 'lightmeter[postgres]'",
        ) from error
    return PostgresDatabase(database)
