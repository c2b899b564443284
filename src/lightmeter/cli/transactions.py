"""Runs a command's changes to the database of the service in transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from lightmeter.errors import SettingsError
from lightmeter.service.store.sql_dialects import Connection, is_postgres, sqlite_path
from lightmeter.service.store.store import Store

T = TypeVar("T")


def run_transaction(database: str, change: Callable[[Connection], T], *, create: bool = False) -> T:
    """Call `change` in one transaction on the `database` of a service; return the result of `change`.

    Args:
        database: URL of the database.
        change: Function that takes the transaction.
        create: Whether an SQLite database that does not exist is created.

    Raises:
        SettingsError: the database cannot be used, or does not exist.
    """
    (result,) = run_transactions(database, (change,), create=create)
    return result


def run_transactions(database: str, changes: Iterable[Callable[[Connection], T]], *, create: bool = False) -> list[T]:
    """Call each of `changes` in a transaction of its own on the `database` of a service; return their results in order.

    Args:
        database: URL of the database.
        changes: Functions that take a transaction.
        create: Whether an SQLite database that does not exist is created.

    Raises:
        SettingsError: the database cannot be used, or does not exist.
    """
    if not create and not is_postgres(database) and not (path := Path(sqlite_path(database))).exists():
        raise SettingsError(
            f"There is no database {path}.", hint="`lightmeter serve` and `lightmeter keys add` create it."
        )

    async def run() -> list[T]:
        store = Store(database)
        try:
            return await asyncio.gather(*(store.write(change) for change in changes))
        finally:
            store.close()

    return asyncio.run(run())
