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
