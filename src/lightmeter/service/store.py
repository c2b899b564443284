"""The service's memory: accounts, keys, requests, results, in one SQLite file that survives kill -9.

All of it runs on one thread of its own with one connection: the event loop never waits for the disk, and no two
statements ever race.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

import apsw

from lightmeter.errors import SettingsError

__all__ = ["Store", "sqlite_path"]

T = TypeVar("T")

VERSION: Final = 1

SCHEMA: Final = """
CREATE TABLE accounts (
    account_id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    credits INTEGER NOT NULL CHECK (credits >= 0),  -- free to spend: what is held is not in here
    held INTEGER NOT NULL DEFAULT 0 CHECK (held >= 0)
) STRICT;

CREATE TABLE keys (
    key_hash BLOB PRIMARY KEY,                      -- SHA-256: the key itself is nowhere
    account_id INTEGER NOT NULL REFERENCES accounts
) STRICT;

CREATE TABLE requests (
    request_id TEXT PRIMARY KEY,
    account_id INTEGER NOT NULL REFERENCES accounts,
    state TEXT NOT NULL,
    acknowledged INTEGER NOT NULL,                  -- somebody polls for it
    echo TEXT NOT NULL,                             -- what was asked, JSON
    hold INTEGER NOT NULL,
    paid INTEGER,
    remaining INTEGER,
    result BLOB,                                    -- the object `all`, JSON
    error TEXT,
    attempts INTEGER NOT NULL DEFAULT 0,
    created_at REAL NOT NULL,
    finished_at REAL,
    idempotency_key TEXT,
    UNIQUE (account_id, idempotency_key)
) STRICT;
CREATE INDEX requests_by_state ON requests (state);
CREATE INDEX requests_by_end ON requests (finished_at);

CREATE TABLE uploads (
    request_id TEXT NOT NULL REFERENCES requests ON DELETE CASCADE,
    position INTEGER NOT NULL,
    content BLOB NOT NULL,
    PRIMARY KEY (request_id, position)
) STRICT;

-- Every credit that moved: grants are positive, charges negative. It sums to what is free and held.
CREATE TABLE ledger (
    account_id INTEGER NOT NULL REFERENCES accounts,
    request_id TEXT,
    amount INTEGER NOT NULL,
    at REAL NOT NULL
) STRICT;
"""


def sqlite_path(database: str) -> str:
    """The file that a database address names.

    Raises:
        SettingsError: it is no `sqlite:///PATH`.
    """
    scheme, _, rest = database.partition("://")  # never shown whole: there may be a password in it
    path = rest.removeprefix("/")
    if scheme != "sqlite" or not rest.startswith("/") or not path:
        raise SettingsError(
            f"The database {scheme}://… cannot be used.", hint="This version stores in SQLite: sqlite:///PATH"
        )
    return path


class Store:
    """One connection on one thread.

    Raises:
        SettingsError: the database cannot be opened, or was written by another version.
    """

    def __init__(self, database: str) -> None:
        self._path = Path(sqlite_path(database))
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="lightmeter-store")
        self._db: apsw.Connection = self._thread.submit(self._open).result()

    def _open(self) -> apsw.Connection:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            db = apsw.Connection(str(self._path))
            db.set_busy_timeout(10_000)
            db.pragma("journal_mode", "wal")
            db.pragma("synchronous", "full")
            db.pragma("foreign_keys", "on")
            if db.pragma("user_version") == 0:
                with db:
                    db.execute(SCHEMA)
                    db.pragma("user_version", VERSION)
        except (apsw.Error, OSError) as error:
            raise SettingsError(f"The database {self._path} cannot be used: {error}.") from error
        if db.pragma("user_version") != VERSION:
            raise SettingsError(f"The database {self._path} was written by another version of lightmeter.")
        return db

    async def write(self, change: Callable[[apsw.Connection], T]) -> T:
        """Run `change` in a transaction of its own; returns when it is on disk."""

        def in_transaction() -> T:
            db = self._db
            db.execute("BEGIN IMMEDIATE")
            try:
                result = change(db)
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
            return result

        return await self._run(in_transaction)

    async def read(self, look: Callable[[apsw.Connection], T]) -> T:
        """Run `look`, which changes nothing."""
        return await self._run(lambda: look(self._db))

    async def _run(self, work: Callable[[], T]) -> T:
        # Shielded: a client that hangs up does not take back what was decided.
        future: asyncio.Future[T] = asyncio.get_running_loop().run_in_executor(self._thread, work)
        return await asyncio.shield(future)

    def close(self) -> None:
        """Finish what was handed in and close the file."""
        self._thread.submit(self._db.close).result()
        self._thread.shutdown()
