"""The tables, and how those of earlier versions become them: one text for both databases.

A database says which version it is of. An older one is brought up step by step when it is opened, in the transaction
that looks; a newer one is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lightmeter.errors import SettingsError

__all__ = ["MIGRATIONS", "SCHEMA", "VERSION", "steps_from"]

VERSION: Final = 3

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
    deaths INTEGER NOT NULL DEFAULT 0,              -- of processes that were doing it beside other requests
    deaths_alone INTEGER NOT NULL DEFAULT 0,        -- of processes that were doing nothing else
    alone INTEGER NOT NULL DEFAULT 0,               -- the last attempt is one of those
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

MIGRATIONS: Final[Mapping[int, str]] = {
    # SQLite alone has had this one. Its ledger had a row for each grant and each charge; holds were not in it.
    1: """
        ALTER TABLE requests ADD COLUMN digest BLOB NOT NULL DEFAULT x'';
        ALTER TABLE requests ADD COLUMN lease_until REAL;
        ALTER TABLE requests ADD COLUMN job_id INTEGER;
        CREATE INDEX requests_by_end ON requests (finished_at);
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
}
"""What turns a version into the next one; no data are lost on the way."""


def steps_from(version: int, database: str) -> list[str]:
    """What brings a database of `version` up to ours, in order; nothing if it is of ours.

    Args:
        version: As the database says.
        database: What to call it in a message.

    Raises:
        SettingsError: it is newer than this program.
    """
    if version > VERSION:
        raise SettingsError(
            f"The database {database} was made by a newer lightmeter: it has version {version}, known is {VERSION}.",
            hint="Install that lightmeter, or use another --database.",
        )
    return [MIGRATIONS[step] for step in range(version, VERSION)]
