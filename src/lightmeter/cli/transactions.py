"""Runs a command's changes to the database of the service in transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeVar

from lightmeter.service.store.sql_dialects import Connection
from lightmeter.service.store.store import Store

T = TypeVar("T")


def run_transaction(database: str, change: Callable[[Connection], T]) -> T:
    """Call `change` in one transaction on the `database` of a service (a file or URL); return the result of `change`.

    Raises:
        SettingsError: the database cannot be used.
    """
    (result,) = run_transactions(database, (change,))
    return result


def run_transactions(database: str, changes: Iterable[Callable[[Connection], T]]) -> list[T]:
    """Call each of `changes` in a transaction of its own on the `database` of a service; return their results in order.

    Raises:
        SettingsError: the database cannot be used.
    """

    async def run() -> list[T]:
        store = Store(database)
        try:
            return await asyncio.gather(*(store.write(change) for change in changes))
        finally:
            store.close()

    return asyncio.run(run())
