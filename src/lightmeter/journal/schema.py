"""The SQL schema of a journal, its version, and the migration of older journals."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Final

from lightmeter import sqlite
from lightmeter.atomic import write_text
from lightmeter.errors import JournalVersion
from lightmeter.journal.frame_rows import FIRST_FRAME_SEQ, FRAME_OF, FRAME_SEQS, ROW_OF, SEND_ORDER
from lightmeter.redaction import has_credentials, mask_credentials

APPLICATION_ID: Final = 0x4C4D4A31
"""Number that marks an SQLite file as a journal of lightmeter. Its bytes are the characters `LMJ1`.

It stands in the header of the file. The command `file` and the class `Journal` recognize a journal by it.
"""

VERSION: Final = 8
"""Version of the schema, stored as `user_version`. A journal with an older version is migrated when it is opened."""

_TABLES_SINCE_2: Final = """
-- Balances of the account, each read while no request was in flight.
CREATE TABLE readings (
    reading_id INTEGER PRIMARY KEY,
    at REAL NOT NULL,
    balance INTEGER NOT NULL,
    place INTEGER NOT NULL,            -- rowid of the last transition before it
    opens INTEGER NOT NULL             -- 1: begins a new window for proofs
) STRICT;

-- Proofs from balances of what requests without an answer were charged: JSON with every number.
CREATE TABLE proofs (
    proof_id INTEGER PRIMARY KEY,
    at REAL NOT NULL,
    opening INTEGER NOT NULL REFERENCES readings,
    closing INTEGER NOT NULL REFERENCES readings,
    document TEXT NOT NULL
) STRICT;

-- Answers that earlier runs paid for, and the rows of this run that they answer.
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

_TABLES_SINCE_4: Final = """
-- Rows whose first answer is invalid: each gets one second request of its own.
CREATE TABLE IF NOT EXISTS answer_retries (
    seq INTEGER PRIMARY KEY REFERENCES items,
    error TEXT NOT NULL,               -- error in the first answer, quoted in the second prompt
    backends TEXT NOT NULL,            -- back ends, JSON list; empty: those of the run
    submission_id INTEGER REFERENCES submissions,
    reason TEXT                        -- why no second request was sent, if known
) STRICT;
CREATE INDEX IF NOT EXISTS answer_retries_by_submission
    ON answer_retries (submission_id) WHERE submission_id IS NOT NULL;
"""

_TABLES_SINCE_5: Final = """
-- Rows of an earlier manifest that this one lacks, kept because their request was open; they are never sent again.
CREATE TABLE IF NOT EXISTS gone (seq INTEGER PRIMARY KEY) STRICT;

-- Answers to the repeated question of rows whose results come from an earlier run.
CREATE TABLE IF NOT EXISTS repeated (
    seq INTEGER PRIMARY KEY REFERENCES items,
    earlier_id INTEGER NOT NULL REFERENCES earlier
) STRICT;

-- Credits that each item cost in runs whose journals were removed.
CREATE TABLE IF NOT EXISTS paid_before (item_id TEXT PRIMARY KEY, credits REAL NOT NULL) STRICT, WITHOUT ROWID;
"""

_PLACES_AND_FRAMES_SINCE_8: Final = f"""
CREATE INDEX IF NOT EXISTS findings_by_seq ON findings (seq);

DROP INDEX IF EXISTS items_by_status;
CREATE INDEX items_by_status ON items (status, {SEND_ORDER});

-- The status of a video whose frames are sent in its place: that of the frame that is furthest from being answered.
-- A pending video with a pending frame stays as it is: the index finds such a frame, and the others are not read.
CREATE TRIGGER IF NOT EXISTS video_status AFTER UPDATE OF status ON items WHEN NEW.seq >= {FIRST_FRAME_SEQ} AND NOT (
    (SELECT status FROM items WHERE seq = {ROW_OF.format("NEW.seq")}) = 'pending' AND EXISTS (
        SELECT 1 FROM items WHERE status = 'pending' AND seq {FRAME_SEQS.format(ROW_OF.format("NEW.seq"))}
        AND {SEND_ORDER} = coalesce(NEW.send_order, {ROW_OF.format("NEW.seq")})))
BEGIN
    UPDATE items SET (status, reason, error) = (
        SELECT f.status, f.reason, 'Frame ' || {FRAME_OF.format("f.seq")} || ': ' || f.error FROM items f
        WHERE f.seq {FRAME_SEQS.format(ROW_OF.format("NEW.seq"))}
        ORDER BY CASE f.status WHEN 'pending' THEN 0 WHEN 'in_doubt' THEN 1 WHEN 'over_budget' THEN 2
                               WHEN 'failed' THEN 3 WHEN 'skipped' THEN 4 ELSE 5 END,
                 f.reason IS NOT NULL, f.seq LIMIT 1
    ) WHERE seq = {ROW_OF.format("NEW.seq")};
END;
"""  # noqa: S608 (our own words)

_MIGRATIONS: Final = {
    2: "ALTER TABLE submissions ADD COLUMN said INTEGER NOT NULL DEFAULT 1;" + _TABLES_SINCE_2,
    3: "",  # submissions may be in state `charge_unknown`, which version 2 does not know
    4: _TABLES_SINCE_4,
    5: _TABLES_SINCE_5,
    6: """
        ALTER TABLE items ADD COLUMN size_bytes INTEGER;
        ALTER TABLE items ADD COLUMN perceptual_hash INTEGER;
        ALTER TABLE items ADD COLUMN duplicate_distance INTEGER;
    """,
    7: "ALTER TABLE items ADD COLUMN send_order INTEGER;",
    8: _PLACES_AND_FRAMES_SINCE_8,
}
"""Schema version → SQL that migrates a journal to it from the version before."""

SCHEMA: Final = (
    """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;

-- One row for each row of the manifest, in order, and one for each frame that is sent: see `frame_rows`.
CREATE TABLE items (
    seq INTEGER PRIMARY KEY,
    item_id TEXT NOT NULL UNIQUE,
    url TEXT NOT NULL,                 -- as in the manifest
    path TEXT,                         -- absolute, for local files
    identity TEXT,                     -- canonical URL or path; equal for rows of the same asset
    kind TEXT,
    extra TEXT NOT NULL,               -- the manifest's additional columns, JSON
    status TEXT NOT NULL CHECK (status IN
        ('pending', 'ok', 'failed', 'skipped', 'duplicate', 'in_doubt', 'over_budget')),
    reason TEXT,                       -- code to group by
    error TEXT,                        -- a sentence for the user
    duplicate_of TEXT,
    frames_low INTEGER NOT NULL,       -- pictures that will be charged, at least
    frames_high INTEGER,               -- pictures at most; NULL: no bound is known
    width INTEGER,
    height INTEGER,
    duration_s REAL,
    content_sha256 TEXT,
    submission_id INTEGER REFERENCES submissions,
    asset INTEGER,                     -- its position in the answer's all.assets
    name TEXT,                         -- its name there
    size_bytes INTEGER,                -- length of the content
    perceptual_hash INTEGER,           -- 64 bits, as a signed number
    duplicate_distance INTEGER,        -- bits in which its perceptual hash differs from that of `duplicate_of`
    send_order INTEGER                 -- its place in the order in which rows are sent; NULL: that of the manifest
) STRICT;
-- Only rows that others can duplicate: skipped rows and duplicates have no pictures that are charged.
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

-- One row for each POST that was decided on.
CREATE TABLE submissions (
    submission_id INTEGER PRIMARY KEY,
    state TEXT NOT NULL,
    hold INTEGER NOT NULL,             -- whole credits, the most it can cost
    assets INTEGER NOT NULL,
    paid INTEGER,
    remaining INTEGER,                 -- balance after it, as the answer reports it
    request_id TEXT,
    http_status INTEGER,
    sent_at REAL,
    acked_at REAL,
    answered_at REAL,
    attempts INTEGER NOT NULL DEFAULT 0,
    polls INTEGER NOT NULL DEFAULT 0,
    error TEXT,
    said INTEGER NOT NULL DEFAULT 1    -- charge: 0 not reported, the hold counts; 1 reported; 2 no errors; 3 rounded up
) STRICT;
CREATE INDEX submissions_by_state ON submissions (state);

-- The bytes of answers, compressed with zstd, written before anything reads them.
CREATE TABLE answers (
    submission_id INTEGER PRIMARY KEY REFERENCES submissions,
    raw BLOB NOT NULL
) STRICT;

-- Every change of state of a submission, in order: the evidence for statements and proofs.
CREATE TABLE transitions (
    submission_id INTEGER NOT NULL REFERENCES submissions,
    event TEXT NOT NULL,
    state TEXT NOT NULL,
    at REAL NOT NULL,
    detail TEXT
) STRICT;

-- Sums of credits, updated in the transactions that change them.
CREATE TABLE money (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    paid INTEGER NOT NULL,
    held INTEGER NOT NULL CHECK (held >= 0)
) STRICT;
INSERT INTO money VALUES (1, 0, 0);
"""
    + _TABLES_SINCE_2
    + _TABLES_SINCE_4
    + _TABLES_SINCE_5
    + _PLACES_AND_FRAMES_SINCE_8
)


def migrate(db: sqlite.Connection, path: Path) -> None:
    """Migrate an older journal to the schema version `VERSION`, in one transaction; the stored data stay the same.

    Raises:
        JournalVersion: a newer lightmeter wrote the journal.
    """
    if db.pragma("user_version") == VERSION:
        return
    with db:  # the first statement writes, so that of two processes one waits for the other
        db.execute("UPDATE meta SET value = value WHERE 0")
        version = db.pragma("user_version")
        if version > VERSION:
            raise JournalVersion(
                f"{path} has journal version {version}, this lightmeter writes version {VERSION}.",
                hint="Use the version of lightmeter that wrote it, or a newer one.",
            )
        for target in range(version + 1, VERSION + 1):
            db.execute(_MIGRATIONS[target])
        db.pragma("user_version", VERSION)


def remove_credentials(db: sqlite.Connection, path: Path) -> None:
    """Remove credentials that an earlier version stored in a journal and in the `plan.json` beside it.

    The credentials were part of the manifest's URL or the service's base URL. They are erased from the bytes of the
    file, not only from the table `meta`. A journal on a read-only medium stays as it is.
    """
    query = "SELECT value FROM meta WHERE key IN ('manifest', 'manifest_path')"
    query += " UNION SELECT json_extract(value, '$.base_url') FROM meta WHERE key = 'options' AND json_valid(value)"
    found = [value for (value,) in db.execute(query) if value is not None and has_credentials(value)]
    if not found:
        return
    with suppress(sqlite.BusyError, sqlite.CantOpenError, sqlite.ReadOnlyError, OSError):
        _remove_from_plan(path.with_name("plan.json"), found)
        db.pragma("secure_delete", 1)
        with sqlite.write_transaction(db):
            rows = [(key, _masked_value(key, value)) for key, value in db.execute("SELECT key, value FROM meta")]
            db.execute("DELETE FROM meta")
            db.executemany("INSERT INTO meta VALUES (?, ?)", rows)
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _masked_value(key: str, value: str) -> str:
    if key == "options":
        options = json.loads(value)
        return json.dumps({**options, "base_url": options.get("base_url") and mask_credentials(options["base_url"])})
    return mask_credentials(value) if key in {"manifest", "manifest_path"} else value


def _remove_from_plan(path: Path, locations: list[str]) -> None:
    if path.exists():
        text = path.read_text(encoding="utf-8")
        for location in locations:
            quoted = json.dumps(location, ensure_ascii=False)[1:-1]
            text = text.replace(quoted, mask_credentials(quoted))
        write_text(path, text)
