"""The SQL schema of the service's database, and its migrations. They are the same for SQLite and PostgreSQL.

A database stores the version of its schema. When lightmeter opens a database with an older version, it migrates the
database. If the version is newer, it raises an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lightmeter.errors import SettingsError

VERSION: Final = 4
"""Version of `SCHEMA`. Each change of the schema needs a version that is higher by 1, and a migration."""

SCHEMA: Final = """
CREATE TABLE accounts (
    account_id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    credits INTEGER NOT NULL CHECK (credits >= 0),  -- free credits, without the held ones
    held INTEGER NOT NULL DEFAULT 0 CHECK (held >= 0)
) STRICT;

CREATE TABLE keys (
    key_hash BLOB PRIMARY KEY,                      -- SHA-256: the key itself is not stored
    account_id INTEGER NOT NULL REFERENCES accounts
) STRICT;

CREATE TABLE requests (
    request_id TEXT PRIMARY KEY,
    account_id INTEGER NOT NULL REFERENCES accounts,
    state TEXT NOT NULL,
    acknowledged INTEGER NOT NULL,                  -- 1: the client polls for the result
    echo TEXT NOT NULL,                             -- the request, JSON
    digest BLOB NOT NULL,                           -- SHA-256 of the request and its uploads
    hold INTEGER NOT NULL,
    paid INTEGER,
    remaining INTEGER,
    result BLOB,                                    -- the object `all`, JSON
    error TEXT,
    attempts INTEGER NOT NULL,                      -- also the fencing token: only the last attempt may finish it
    deaths INTEGER NOT NULL DEFAULT 0,              -- crashes of processes that ran other requests too
    deaths_alone INTEGER NOT NULL DEFAULT 0,        -- crashes of processes that ran only this request
    alone INTEGER NOT NULL DEFAULT 0,               -- 1: the last attempt ran alone
    lease_until REAL,                               -- end of the lease of a process whose client waits
    job_id INTEGER,                                 -- id of its job in the PostgreSQL job queue
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

-- Double entry: each row moves credits from one ledger account to another, so that the sum of all four is always 0,
-- and free + held + revenue = granted credits.
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

MIGRATIONS: Final[Mapping[int, str]] = {
    # Only SQLite had version 1. Its ledger had a row for each grant and each charge, and none for holds.
    1: """
        ALTER TABLE requests ADD COLUMN digest BLOB NOT NULL DEFAULT x'';
        ALTER TABLE requests ADD COLUMN lease_until REAL;
        ALTER TABLE requests ADD COLUMN job_id INTEGER;
        CREATE INDEX IF NOT EXISTS requests_by_end ON requests (finished_at);
        CREATE TABLE double_ledger (
            account_id INTEGER NOT NULL REFERENCES accounts,
            request_id TEXT,
            debit TEXT NOT NULL CHECK (debit IN ('grants', 'free', 'held', 'revenue')),
            credit TEXT NOT NULL CHECK (credit IN ('grants', 'free', 'held', 'revenue') AND credit <> debit),
            amount INTEGER NOT NULL CHECK (amount > 0),
            at REAL NOT NULL
        ) STRICT;
        INSERT INTO double_ledger SELECT account_id, NULL, 'grants', 'free', amount, at FROM ledger WHERE amount > 0;
        INSERT INTO double_ledger
            SELECT account_id, request_id, 'free', 'held', -amount, at FROM ledger WHERE amount < 0;
        INSERT INTO double_ledger
            SELECT account_id, request_id, 'held', 'revenue', -amount, at FROM ledger WHERE amount < 0;
        INSERT INTO double_ledger SELECT account_id, request_id, 'free', 'held', hold, created_at FROM requests
            WHERE state IN ('queued', 'running') AND hold > 0;
        DROP TABLE ledger;
        ALTER TABLE double_ledger RENAME TO ledger;
        CREATE INDEX ledger_by_account ON ledger (account_id);
    """,
    2: """
        ALTER TABLE requests ADD COLUMN deaths INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE requests ADD COLUMN deaths_alone INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE requests ADD COLUMN alone INTEGER NOT NULL DEFAULT 0;
        UPDATE requests SET deaths = attempts - 1 WHERE attempts > 1 AND state IN ('queued', 'running');
    """,
    # Up to version 3, a cancelled request was a failed one with this text.
    3: """
        UPDATE requests SET state = 'cancelled' WHERE state = 'failed'
            AND error = 'Request failed: the operator of the service cancelled it, and nothing was charged.';
    """,
}
"""Version of a database → SQL that migrates the database to the next version, without loss of data."""


def migrations_from(version: int, database: str) -> list[str]:
    """Return the SQL scripts that migrate a database from the version `version` to `VERSION`, in order.

    Args:
        version: Version of the schema that the database has.
        database: Name of the database for the error message.

    Raises:
        SettingsError: `version` is newer than `VERSION`.
    """
    if version > VERSION:
        raise SettingsError(
            f"The database {database} was made by a newer lightmeter: it has version {version}, known is {VERSION}.",
            hint="Install that lightmeter, or use another --database.",
        )
    return [MIGRATIONS[step] for step in range(version, VERSION)]
