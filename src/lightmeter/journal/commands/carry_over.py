"""Carry over what an earlier run of a folder paid for, or may have paid for, into the journal of the next run.

Rows of two runs are compared by asset (image or video). Two rows have the same asset if their contents are equal. They
also have the same asset if their URLs or paths are equal and no difference in content, size or entity tag (HTTP `ETag`)
is known.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from lightmeter import sqlite
from lightmeter.journal.compression import decompress
from lightmeter.journal.files import journal_path
from lightmeter.journal.frame_rows import FIRST_FRAME_SEQ, HAS_FRAMES
from lightmeter.journal.queries.items import REACH_FACTS
from lightmeter.journal.submission_states import HOLDING, State

_MOVABLE_STATES_SQL: Final = "(" + ", ".join(f"'{state}'" for state in sorted(HOLDING - {State.WRITTEN_OFF})) + ")"
"""SQL: states of requests whose answer or charge is unknown. These requests move to the next run.

Requests in the state `written_off` stay in the earlier run.
"""

_FOUND: Final = """
CREATE TEMP TABLE found (seq INTEGER PRIMARY KEY, old_seq INTEGER NOT NULL);
CREATE TEMP TABLE digests (submission_id INTEGER PRIMARY KEY, sha256 TEXT NOT NULL);
"""

_UNPAID: Final = "(n.status = 'pending' OR n.reason = 'screened')"
"""SQL: condition for rows of the next run that have no result.

They are still to be sent, or local back ends rejected them (`--screen`).
"""

LAST_ROW: Final = f"(SELECT coalesce(max(seq), -1) FROM main.items WHERE seq < {FIRST_FRAME_SEQ})"  # noqa: S608
"""SQL: number of the last row of the new manifest. Rows of video frames have larger numbers and do not count."""

_WITHOUT_VIDEOS: Final = f"""
DELETE FROM temp.same WHERE EXISTS (
    SELECT 1 FROM main.items n WHERE n.seq = same.seq AND {HAS_FRAMES.format("n", "main.")});
"""  # noqa: S608 (our own words, here and below)
"""SQL: removes videos from `same` if their frames are sent in their place.

The rows of these frames are compared instead.
"""


def _same_content(rows: str) -> str:
    """Return SQL that creates the table `same`: pairs of a row of the next run and an earlier row of the same content.

    Content is the same if the hashes are equal. If a hash is unknown, URL or path must be equal, and size and ETag
    where both are known. Of the next run, only rows `n` that meet the SQL condition `rows` are in the table, and no
    video whose frames are sent in its place.
    """
    return f"""
CREATE TEMP TABLE same AS
SELECT n.seq, o.seq AS old_seq FROM main.items n
JOIN old.items o ON o.content_sha256 = n.content_sha256 AND o.frames_low > 0 WHERE {rows}
UNION
SELECT n.seq, o.seq FROM main.items n JOIN old.items o ON o.identity = n.identity AND o.frames_low > 0
LEFT JOIN main.{REACH_FACTS.format("f", "n")} LEFT JOIN old.{REACH_FACTS.format("g", "o")}
WHERE {rows} AND coalesce(n.content_sha256 = o.content_sha256,
    coalesce(f.facts ->> '$.size_bytes' = g.facts ->> '$.size_bytes', 1)
    AND coalesce(f.facts ->> '$.etag' = g.facts ->> '$.etag', 1));
{_WITHOUT_VIDEOS}
"""  # noqa: S608 (our own words, here and below)


_SAME_BY_NEAR_DUPLICATES: Final = f"""
DELETE FROM temp.same;
INSERT INTO temp.same
WITH alike AS (
    SELECT n.seq, d.content_sha256 FROM main.items d JOIN main.items n ON n.item_id = d.duplicate_of
    WHERE d.duplicate_distance IS NOT NULL AND n.status = 'pending'
    UNION SELECT seq, content_sha256 FROM main.items WHERE status = 'pending')
SELECT a.seq, coalesce(p.seq, o.seq) FROM alike a JOIN old.items o ON o.content_sha256 = a.content_sha256
LEFT JOIN old.items p ON p.item_id = o.duplicate_of AND o.duplicate_distance IS NOT NULL
WHERE (SELECT value ->> '$.duplicates' FROM main.meta WHERE key = 'options') = 'near' ORDER BY a.seq, o.seq;
{_WITHOUT_VIDEOS}
"""  # noqa: S608
"""SQL: replaces the pairs in `same` by pairs of rows whose images look the same (`--duplicates near`).

It uses the near-duplicates that the plans of the two runs found.
"""

_HAS_ANSWER: Final = "o.status = 'ok' AND o.asset IS NOT NULL"
"""SQL: condition for rows of the earlier run that have an answer."""

_WAS_CHARGED: Final = """o.status = 'failed' AND (
    o.reason = 'paid_and_lost' OR EXISTS (SELECT 1 FROM old.reused r WHERE r.seq = o.seq) OR EXISTS (
        SELECT 1 FROM old.submissions s WHERE s.submission_id = o.submission_id AND s.state = 'settled' AND s.paid > 0))
"""
"""SQL: condition for rows of the earlier run that failed although their request was charged."""

HAS_RESULT: Final = f"({_HAS_ANSWER} OR {_WAS_CHARGED})"
"""SQL: condition for rows of the earlier run that were paid for, and have an answer or a charged failure."""

_FIND: Final = """
INSERT OR IGNORE INTO temp.found SELECT p.seq, p.old_seq
FROM temp.same p JOIN main.items n USING (seq) JOIN old.items o ON o.seq = p.old_seq
WHERE n.submission_id IS NULL AND {}
"""
"""SQL: adds to `found` the pairs in `same` for which the condition `{}` holds."""

_ANSWERED: Final = _FIND.format(_HAS_ANSWER)
_CHARGED: Final = _FIND.format(_WAS_CHARGED)

_OWN: Final = (
    _same_content("(n.status = 'pending' OR n.reason IN ('screened', 'cached'))"),
    _FIND.format(f"({_HAS_ANSWER} OR {_WAS_CHARGED} AND n.reason IS NOT 'cached') AND o.item_id = n.item_id"),
    f"""
INSERT OR IGNORE INTO temp.found
WITH new_rows AS (
    SELECT seq, identity, row_number() OVER (PARTITION BY identity ORDER BY seq) AS place FROM main.items n
    WHERE {_UNPAID} AND submission_id IS NULL AND seq NOT IN (SELECT seq FROM temp.found)),
old_rows AS (
    SELECT seq, identity, row_number() OVER (PARTITION BY identity ORDER BY seq) AS place FROM old.items o
    WHERE {HAS_RESULT} AND seq NOT IN (SELECT old_seq FROM temp.found))
SELECT n.seq, o.seq FROM new_rows n JOIN old_rows o USING (identity, place)
JOIN temp.same p ON p.seq = n.seq AND p.old_seq = o.seq
""",  # noqa: S608
    *(
        f"DELETE FROM main.{table} WHERE seq IN (SELECT seq FROM temp.found)"  # noqa: S608
        for table in ("reused", "repeated", "answer_retries")
    ),
)
"""SQL: adds to `found` pairs of rows with the same content, each row once (`--duplicates off`).

A row is paired with the row of the same id, or else with the next one of the same URL or path in the order of the
manifest. Rows that the plan answered from the cache are paired by id too, because the cache has one answer for all rows
of a URL.
"""

COPY_ANSWERS: Final = (
    """
INSERT INTO temp.digests SELECT a.submission_id, digest(a.raw) FROM old.answers a WHERE a.submission_id IN (
    SELECT o.submission_id FROM temp.found f JOIN old.items o ON o.seq = f.old_seq
    UNION SELECT r.submission_id FROM temp.found f JOIN old.answer_retries r ON r.seq = f.old_seq
          JOIN old.submissions s USING (submission_id) WHERE s.state = 'settled')
""",
    """
INSERT INTO main.earlier (sha256, request_id, answered_at, raw)
SELECT d.sha256, s.request_id, coalesce(s.answered_at, s.sent_at, 0), a.raw
FROM temp.digests d JOIN old.submissions s USING (submission_id) JOIN old.answers a USING (submission_id)
WHERE true ON CONFLICT DO NOTHING
""",
    """
INSERT INTO main.earlier (sha256, request_id, answered_at, raw)
SELECT e.sha256, e.request_id, e.answered_at, e.raw FROM old.earlier e WHERE e.earlier_id IN (
    SELECT r.earlier_id FROM temp.found f JOIN old.reused r ON r.seq = f.old_seq
    UNION SELECT r.earlier_id FROM temp.found f JOIN old.repeated r ON r.seq = f.old_seq)
ON CONFLICT DO NOTHING
""",
    """
INSERT INTO main.reused SELECT f.seq, e.earlier_id
FROM temp.found f JOIN old.items o ON o.seq = f.old_seq LEFT JOIN temp.digests d USING (submission_id)
     LEFT JOIN old.reused r ON r.seq = o.seq LEFT JOIN old.earlier b ON b.earlier_id = r.earlier_id
     JOIN main.earlier e ON e.sha256 = coalesce(d.sha256, b.sha256)
""",
    """
INSERT INTO main.repeated SELECT f.seq, e.earlier_id
FROM temp.found f LEFT JOIN old.answer_retries a ON a.seq = f.old_seq LEFT JOIN temp.digests d USING (submission_id)
     LEFT JOIN old.repeated r ON r.seq = f.old_seq LEFT JOIN old.earlier b ON b.earlier_id = r.earlier_id
     JOIN main.earlier e ON e.sha256 = coalesce(d.sha256, b.sha256)
""",
    f"""
INSERT INTO main.answer_retries SELECT f.seq, r.error, r.backends, r.submission_id, r.reason
FROM temp.found f JOIN old.answer_retries r ON r.seq = f.old_seq LEFT JOIN old.submissions s USING (submission_id)
WHERE r.submission_id IS NULL OR s.state IN {_MOVABLE_STATES_SQL}
""",  # noqa: S608
)
"""SQL: copies the answers of the rows in `found`.

If the user's question (`--ask`) was asked again about a row, the second answer is copied too.
"""

_MARK_FOUND: Final = """
UPDATE main.items SET status = o.status, reason = iif(o.status = 'ok', 'cached', o.reason), error = o.error,
       asset = o.asset, name = o.name
FROM temp.found f JOIN old.items o ON o.seq = f.old_seq WHERE f.seq = items.seq
"""
"""SQL: gives the rows in `found` the status and result that they had in the earlier run."""

_SENDABLE: Final = f"n.frames_low > 0 AND {_UNPAID}"
"""SQL: condition for rows of the next run that have no result and are neither duplicates nor bad rows."""

_MOVE_OPEN: Final = (
    f"INSERT INTO main.submissions SELECT * FROM old.submissions WHERE state IN {_MOVABLE_STATES_SQL}",  # noqa: S608
    """
INSERT INTO main.transitions SELECT t.* FROM old.transitions t JOIN main.submissions USING (submission_id)
ORDER BY t.rowid
""",
    "INSERT INTO main.answers SELECT a.* FROM old.answers a JOIN main.submissions USING (submission_id)",
    "UPDATE main.money SET held = held + (SELECT coalesce(sum(hold), 0) FROM main.submissions)",
    f"""
INSERT INTO temp.found SELECT n.seq, o.seq FROM old.items o JOIN main.submissions USING (submission_id)
JOIN main.items n ON n.item_id = o.item_id AND n.identity = o.identity WHERE {_SENDABLE}
""",  # noqa: S608
    f"""
INSERT INTO temp.found
WITH sent AS (
    SELECT o.seq, o.identity, row_number() OVER (PARTITION BY o.identity ORDER BY o.seq) AS place
    FROM old.items o JOIN main.submissions USING (submission_id) WHERE o.seq NOT IN (SELECT old_seq FROM temp.found))
SELECT r.seq, sent.seq FROM sent JOIN (
    SELECT n.seq, n.identity, row_number() OVER (PARTITION BY n.identity ORDER BY n.seq) AS place FROM main.items n
    WHERE {_SENDABLE} AND n.seq NOT IN (SELECT seq FROM temp.found) AND n.identity IN (SELECT identity FROM sent)
) r USING (identity, place)
""",  # noqa: S608
    """
UPDATE main.items SET submission_id = o.submission_id, status = o.status, reason = o.reason, error = o.error
FROM temp.found f JOIN old.items o ON o.seq = f.old_seq WHERE f.seq = items.seq
""",
    f"""
INSERT INTO main.gone SELECT {LAST_ROW} + row_number() OVER (ORDER BY o.seq)
FROM old.items o JOIN main.submissions USING (submission_id) WHERE o.seq NOT IN (SELECT old_seq FROM temp.found)
""",  # noqa: S608
    f"""
INSERT INTO main.items (seq, item_id, url, path, identity, kind, extra, status, reason, error, frames_low, frames_high,
                        width, height, duration_s, content_sha256, size_bytes, perceptual_hash, submission_id)
SELECT {LAST_ROW} + row_number() OVER (ORDER BY o.seq),
       iif(EXISTS (SELECT 1 FROM main.items n WHERE n.item_id = o.item_id),
           format('%s#request %d.%d', o.item_id, o.submission_id, o.seq), o.item_id),
       o.url, o.path, o.identity, o.kind, o.extra, o.status, o.reason, o.error, o.frames_low, o.frames_high,
       o.width, o.height, o.duration_s, o.content_sha256, o.size_bytes, o.perceptual_hash, o.submission_id
FROM old.items o JOIN main.submissions USING (submission_id) WHERE o.seq NOT IN (SELECT old_seq FROM temp.found)
""",  # noqa: S608
)
"""SQL: copies open requests, and links them to the rows of the next run.

Each row of a request is paired with one row of the same URL or path: with the row of the same id, or else with the next
one in the order of the manifest. If the new manifest lacks such a row, the row is appended to `items` and listed in
`gone`.
"""

_FORGET_OPEN: Final = (
    (
        "UPDATE money SET held = held - "  # noqa: S608
        f"(SELECT coalesce(sum(hold), 0) FROM submissions WHERE state IN {_MOVABLE_STATES_SQL})"
    ),
    *(
        f"UPDATE {table} SET submission_id = NULL WHERE submission_id IN "  # noqa: S608
        f"(SELECT submission_id FROM submissions WHERE state IN {_MOVABLE_STATES_SQL})"
        for table in ("items", "answer_retries")
    ),
    *(
        f"DELETE FROM {table} WHERE submission_id IN "  # noqa: S608
        f"(SELECT submission_id FROM submissions WHERE state IN {_MOVABLE_STATES_SQL})"
        for table in ("answers", "transitions", "submissions")
    ),
)


@contextmanager
def attached_run(db: sqlite.Connection, folder: Path) -> Iterator[None]:
    """Run a `with` block in a transaction on `db`, with the journal in `folder` attached as the database `old`.

    At the end of the block the transaction is committed; after an error it is rolled back.
    """
    digest: Any = _digest
    db.create_scalar_function("digest", digest, 1, deterministic=True)
    db.execute("ATTACH ? AS old", (str(journal_path(folder)),))
    try:
        with db:
            db.execute(_FOUND)
            yield
            db.execute("DROP TABLE IF EXISTS temp.same; DROP TABLE IF EXISTS temp.folded")
            db.execute("DROP TABLE temp.found; DROP TABLE temp.digests")
    finally:
        db.execute("DETACH old")


def _digest(compressed: bytes) -> str:
    return hashlib.sha256(decompress(compressed)).hexdigest()


def run_all(db: sqlite.Connection, statements: Sequence[str]) -> None:
    """Execute SQL statements one after the other."""
    for statement in statements:
        db.execute(statement)


def has_open_requests(db: sqlite.Connection) -> bool:
    """Return whether a journal has requests whose answer or charge is still unknown."""
    return bool(db.execute(f"SELECT EXISTS (SELECT 1 FROM submissions WHERE state IN {_MOVABLE_STATES_SQL})").get)  # noqa: S608


def move_open_requests(db: sqlite.Connection, folder: Path) -> None:
    """Copy requests whose answer or charge is unknown from the run in `folder` to the next run's journal `db`.

    The credits reserved for them are added to `db`. The earlier journal keeps both until `forget_open_requests` removes
    them there, so that they do not count twice.
    """
    with attached_run(db, folder):
        run_all(db, _MOVE_OPEN)


def forget_open_requests(db: sqlite.Connection) -> None:
    """Remove requests whose answer or charge is unknown, and the credits reserved for them, from the journal `db`.

    `db` is the journal of an earlier run. Call this function only after `move_open_requests` has copied these requests
    to the next run's journal.
    """
    with db:
        run_all(db, _FORGET_OPEN)


def carry_results(db: sqlite.Connection, folders: Sequence[Path]) -> None:
    """Copy answers and charged failures of earlier runs to pending rows of the next run's journal `db`.

    A row gets the answer about the same image or video. With `--duplicates off`, each row gets its own answer, if it
    has one. With `--duplicates near`, a row may also get the answer about an image that looks the same (a
    near-duplicate), if the plan of one of the two runs found this image.

    `folders` are the folders of the earlier runs, newest first.
    """
    if db.execute("SELECT value ->> '$.duplicates' FROM meta WHERE key = 'options'").get == "off":
        for folder in reversed(folders):  # the newest answer replaces older ones
            with attached_run(db, folder):
                run_all(db, (*_OWN, *COPY_ANSWERS, _MARK_FOUND))
    for folder in folders:
        with attached_run(db, folder):
            found = (_same_content(_UNPAID), _ANSWERED, _CHARGED, _SAME_BY_NEAR_DUPLICATES, _ANSWERED)
            run_all(db, (*found, *COPY_ANSWERS, _MARK_FOUND))
