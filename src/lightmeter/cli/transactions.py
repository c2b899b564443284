"""Runs a command's changes to the database of the service in one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from lightmeter.service.store.sql_dialects import Connection
from lightmeter.service.store.store import Store

T = TypeVar("T")


def run_transaction(database: str, change: Callable[[Connection], T]) -> T:
    """Call `change` in one transaction on the `database` of a service (a file or URL); return the result of `change`.

    Raises:
        SettingsError: the database cannot be used.
    """

    async def run() -> T:
        store = Store(database)
        try:
            return await store.write(change)
        finally:
            store.close()

    return asyncio.run(run())
