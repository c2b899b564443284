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
