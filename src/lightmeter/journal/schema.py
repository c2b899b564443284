"""The journal's tables, as SQL, and the version they carry."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from lightmeter import sqlite
from lightmeter.errors import JournalVersion

__all__ = ["APPLICATION_ID", "SCHEMA", "VERSION", "migrate"]

APPLICATION_ID: Final = 0x4C4D4A31
"""`LMJ1` in the SQLite header, so that `file` and we know one when we see it."""

VERSION: Final = 4

_SINCE_2: Final = """
-- The balance of the account, read while nothing was in flight.
CREATE TABLE readings (
    reading_id INTEGER PRIMARY KEY,
    at REAL NOT NULL,
    balance INTEGER NOT NULL,
    place INTEGER NOT NULL,            -- rowid of the last transition before it
    opens INTEGER NOT NULL             -- 1: the proofs to come count from here
) STRICT;

-- What balances have proven of requests without an answer, whole: JSON with every number it rests on.
CREATE TABLE proofs (
    proof_id INTEGER PRIMARY KEY,
    at REAL NOT NULL,
    opening INTEGER NOT NULL REFERENCES readings,
    closing INTEGER NOT NULL REFERENCES readings,
    document TEXT NOT NULL
) STRICT;

-- Answers that earlier runs paid for, and the rows of this run that are answered with them.
CREATE TABLE IF NOT EXISTS earlier (
    earlier_id INTEGER PRIMARY KEY,
    sha256 TEXT NOT NULL UNIQUE,       -- of the answer's bytes
    request_id TEXT,
    answered_at REAL NOT NULL,
    raw BLOB NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS reused (
    seq INTEGER PRIMARY KEY REFERENCES items,
    earlier_id INTEGER NOT NULL REFERENCES earlier
) STRICT;
CREATE INDEX IF NOT EXISTS reused_by_earlier ON reused (earlier_id);
"""

_SINCE_4: Final = """
-- Rows whose first answer does not validate: each is asked about once more, in a request of its own.
CREATE TABLE IF NOT EXISTS answer_retries (
    seq INTEGER PRIMARY KEY REFERENCES items,
    error TEXT NOT NULL,               -- what is wrong with the first answer, as the second prompt quotes it
    backends TEXT NOT NULL,            -- who is asked, JSON; none: all that the run asks
    submission_id INTEGER REFERENCES submissions,
    reason TEXT                        -- why it was not asked about again, as far as is known
) STRICT;
CREATE INDEX IF NOT EXISTS answer_retries_by_submission
    ON answer_retries (submission_id) WHERE submission_id IS NOT NULL;
"""

_TO: Final = {
    2: "ALTER TABLE submissions ADD COLUMN said INTEGER NOT NULL DEFAULT 1;" + _SINCE_2,
    3: "",  # submissions may be `charge_unknown`, which an earlier version does not know
    4: _SINCE_4,
}
"""What brings a journal to this version from the one before."""

SCHEMA: Final = (
    """
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
-- Only rows that others may be duplicates of: what is skipped, or a duplicate itself, has no pictures to be charged.
CREATE INDEX items_by_identity ON items (identity) WHERE identity IS NOT NULL AND frames_low > 0;
CREATE INDEX items_by_content ON items (content_sha256) WHERE content_sha256 IS NOT NULL AND frames_low > 0;
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
    error TEXT,
    said INTEGER NOT NULL DEFAULT 1    -- 0: the answer names no charge, the hold was taken; 2: it names no error either
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
    + _SINCE_2
    + _SINCE_4
)


def migrate(db: sqlite.Connection, path: Path) -> None:
    """Bring an older journal to `VERSION`, in one transaction; what it says of the past stays as it is.

    Raises:
        JournalVersion: it was written by a newer lightmeter.
    """
    if db.pragma("user_version") == VERSION:
        return
    with db:  # a savepoint would let two readers both begin: the first statement writes, and so waits for the other
        db.execute("UPDATE meta SET value = value WHERE 0")
        version = db.pragma("user_version")
        if version > VERSION:
            raise JournalVersion(
                f"{path} has journal version {version}, this lightmeter writes version {VERSION}.",
                hint="Use the version of lightmeter that wrote it, or a newer one.",
            )
        for target in range(version + 1, VERSION + 1):
            db.execute(_TO[target])
        db.pragma("user_version", VERSION)
