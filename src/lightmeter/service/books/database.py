"""What the service remembers, and the few words it needs to ask either database: one set of SQL for both.

The SQL of this service is small and plain, and both databases read it as it stands but for three things: the mark of a
parameter, the names of column types, and `FOR UPDATE`, which SQLite neither knows nor needs. Those are translated
here. (SQLAlchemy Core would say the same in its own language; it was weighed, and is a second vocabulary for forty
statements.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, Protocol

from lightmeter.errors import LightmeterError, SettingsError

__all__ = [
    "SCHEMA",
    "VERSION",
    "Connection",
    "StoreError",
    "is_postgres",
    "postgres_schema",
    "scheme_of",
    "sqlite_path",
    "to_postgres",
    "to_sqlite",
]

VERSION: Final = 2

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
    digest BLOB NOT NULL,                           -- SHA-256 of what was asked, uploads included
    hold INTEGER NOT NULL,
    paid INTEGER,
    remaining INTEGER,
    result BLOB,                                    -- the object `all`, JSON
    error TEXT,
    attempts INTEGER NOT NULL,                      -- also the fencing token: only the last attempt may end it
    lease_until REAL,                               -- of a process that does it without the queue
    job_id INTEGER,                                 -- in the queue, if it is in one
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

-- Double entry: each row takes from one book of the account and gives the same to another, so all books of an account
-- sum to nothing at any instant, and free + held + revenue = what was granted.
CREATE TABLE ledger (
    account_id INTEGER NOT NULL REFERENCES accounts,
    request_id TEXT,
    debit TEXT NOT NULL CHECK (debit IN ('grants', 'free', 'held', 'revenue')),
    credit TEXT NOT NULL CHECK (credit IN ('grants', 'free', 'held', 'revenue') AND credit <> debit),
    amount INTEGER NOT NULL CHECK (amount > 0),
    at REAL NOT NULL
) STRICT;
CREATE INDEX ledger_by_account ON ledger (account_id);
"""

_POSTGRES_WORDS: Final = (
    ("INTEGER PRIMARY KEY", "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"),
    ("INTEGER", "BIGINT"),
    ("REAL", "DOUBLE PRECISION"),
    ("BLOB", "BYTEA"),
    (") STRICT", ")"),
)


class StoreError(LightmeterError):
    """The database failed in the middle of something: it cannot be known whether that was written."""


class Connection(Protocol):
    """A transaction on either database."""

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement; `?` marks a parameter. Returns its rows."""
        ...

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run one statement for each row of parameters."""
        ...


def scheme_of(database: str) -> str:
    """The part of an address before `://`: all of it that may be shown, because there may be a password in the rest."""
    return database.partition("://")[0]


def is_postgres(database: str) -> bool:
    """Whether the address names a PostgreSQL server."""
    return scheme_of(database) in {"postgresql", "postgres"}


def sqlite_path(database: str) -> str:
    """The file that a database address names.

    Raises:
        SettingsError: it is no `sqlite:///PATH`.
    """
    scheme, _, rest = database.partition("://")
    path = rest.removeprefix("/")
    if scheme != "sqlite" or not rest.startswith("/") or not path:
        raise SettingsError(
            f"The database {scheme}://… cannot be used.", hint="Use sqlite:///PATH, or postgresql://USER@HOST/NAME."
        )
    return path


@lru_cache(maxsize=256)
def to_sqlite(sql: str) -> str:
    """A statement as SQLite wants it: a transaction that writes is alone there, so no row has to be locked."""
    return sql.replace(" FOR UPDATE", "")


@lru_cache(maxsize=256)
def to_postgres(sql: str) -> str:
    """A statement as psycopg wants it."""
    return sql.replace("%", "%%").replace("?", "%s")


def postgres_schema() -> str:
    """The tables in PostgreSQL's words."""
    schema = SCHEMA
    for ours, theirs in _POSTGRES_WORDS:
        schema = schema.replace(ours, theirs)
    return schema
