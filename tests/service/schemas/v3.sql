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
