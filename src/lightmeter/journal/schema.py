"""The journal's tables, as SQL, and the version they carry."""

from __future__ import annotations

from typing import Final

__all__ = ["APPLICATION_ID", "SCHEMA", "VERSION"]

APPLICATION_ID: Final = 0x4C4D4A31
"""`LMJ1` in the SQLite header, so that `file` and we know one when we see it."""

VERSION: Final = 1

SCHEMA: Final = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;

-- One row for each row of the manifest, in its order.
CREATE TABLE items (
    seq INTEGER PRIMARY KEY,
    item_id TEXT NOT NULL UNIQUE,
    url TEXT NOT NULL,                 -- as the manifest has it
    path TEXT,                         -- absolute, for local files
    identity TEXT,                     -- canonical URL or path: what makes two rows the same asset
    kind TEXT,
    extra TEXT NOT NULL,               -- the manifest's other columns, JSON
    status TEXT NOT NULL CHECK (status IN
        ('pending', 'ok', 'failed', 'skipped', 'duplicate', 'in_doubt', 'over_budget')),
    reason TEXT,                       -- a short word to group by
    error TEXT,                        -- a sentence to read
    duplicate_of TEXT,
    frames_low INTEGER NOT NULL,       -- pictures that will be charged: at least
    frames_high INTEGER,               -- at most; NULL: no bound is known
    width INTEGER,
    height INTEGER,
    duration_s REAL,
    content_sha256 TEXT,
    submission_id INTEGER REFERENCES submissions,
    asset INTEGER,                     -- its position in the answer's all.assets
    name TEXT                          -- its name there
) STRICT;
CREATE INDEX items_by_status ON items (status, seq);
CREATE INDEX items_by_identity ON items (identity) WHERE identity IS NOT NULL;
CREATE INDEX items_by_content ON items (content_sha256) WHERE content_sha256 IS NOT NULL;
CREATE INDEX items_by_submission ON items (submission_id) WHERE submission_id IS NOT NULL;
CREATE INDEX items_by_original ON items (duplicate_of) WHERE duplicate_of IS NOT NULL;

CREATE TABLE findings (
    seq INTEGER NOT NULL REFERENCES items,
    name TEXT NOT NULL,
    severity TEXT NOT NULL,
    message TEXT NOT NULL,
    value REAL,
    facts TEXT NOT NULL                -- JSON
) STRICT;

-- One row for each POST that was ever decided on.
CREATE TABLE submissions (
    submission_id INTEGER PRIMARY KEY,
    state TEXT NOT NULL,
    hold INTEGER NOT NULL,             -- whole credits set aside
    assets INTEGER NOT NULL,
    paid INTEGER,
    remaining INTEGER,                 -- balance after it, as answered
    request_id TEXT,
    http_status INTEGER,
    sent_at REAL,
    acked_at REAL,
    answered_at REAL,
    attempts INTEGER NOT NULL DEFAULT 0,
    polls INTEGER NOT NULL DEFAULT 0,
    error TEXT
) STRICT;
CREATE INDEX submissions_by_state ON submissions (state);

-- The bytes as they came (zstd), written before anything looks at them.
CREATE TABLE answers (
    submission_id INTEGER PRIMARY KEY REFERENCES submissions,
    raw BLOB NOT NULL
) STRICT;

-- Every step a submission took: what a statement is proven with.
CREATE TABLE transitions (
    submission_id INTEGER NOT NULL REFERENCES submissions,
    event TEXT NOT NULL,
    state TEXT NOT NULL,
    at REAL NOT NULL,
    detail TEXT
) STRICT;

-- Running totals of money, kept in the transaction that moves it.
CREATE TABLE money (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    paid INTEGER NOT NULL,
    held INTEGER NOT NULL CHECK (held >= 0)
) STRICT;
INSERT INTO money VALUES (1, 0, 0);
"""
