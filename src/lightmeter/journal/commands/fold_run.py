"""Add what only an older run of a folder has to the journal of the next newer run, so that it can be removed."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from lightmeter import sqlite
from lightmeter.journal.commands.carry_over import COPY_ANSWERS, HAS_RESULT, LAST_ROW, attached_run, run_all
from lightmeter.journal.frame_rows import FIRST_FRAME_SEQ, FRAME_OF, FRAME_SEQS, FRAMES_PER_ROW
from lightmeter.journal.queries.latest_runs import add_credits

_FOLDED: Final = f"""
CREATE TEMP TABLE folded (
    seq INTEGER PRIMARY KEY, item_id TEXT NOT NULL UNIQUE, own_seq INTEGER NOT NULL, old_seq INTEGER NOT NULL
);
INSERT INTO temp.folded SELECT o.seq + {LAST_ROW} + 1, o.item_id, o.seq, coalesce(p.seq, o.seq)
FROM old.items o LEFT JOIN main.items n ON n.item_id = o.duplicate_of
LEFT JOIN old.items p ON p.item_id = n.item_id
     AND (p.status = 'ok' OR n.identity IS NOT p.identity OR n.content_sha256 IS NOT p.content_sha256)
WHERE o.seq < {FIRST_FRAME_SEQ} AND o.item_id NOT IN (SELECT item_id FROM main.items);
INSERT OR IGNORE INTO temp.folded
SELECT {FIRST_FRAME_SEQ} + v.seq * {FRAMES_PER_ROW} + {FRAME_OF.format("o.seq")},
       iif(v.own_seq = v.old_seq, o.item_id, format('%s#frame %d', v.item_id, {FRAME_OF.format("o.seq")})), o.seq, o.seq
FROM temp.folded v JOIN old.items o ON o.seq {FRAME_SEQS.format("v.old_seq")};
DELETE FROM temp.folded WHERE item_id IN (SELECT item_id FROM main.items);
"""  # noqa: S608
"""SQL: creates the table `folded`: the rows of the older run that the next newer run lacks, and their video frames.

Each row gets a number (`seq`) and an id in the newer run. `own_seq` is its number in the older run, and `old_seq` the
number of the row there whose result it gets. The two differ for a duplicate if the newer run has a row with the id of
its original: that row may have another image or video, or no result. The duplicate then gets the original's result
as its own. It remains a duplicate only if the original had no answer and is still the same image or video. Frames whose
request moved to the newer run are there already, as rows of their own.
"""

_FORMER: Final = f"""
INSERT OR IGNORE INTO temp.folded
SELECT iif(o.seq < {FIRST_FRAME_SEQ}, {FIRST_FRAME_SEQ} + o.seq * {FRAMES_PER_ROW}, o.seq)
           + ({LAST_ROW} + 1) * {FRAMES_PER_ROW},
       iif(o.item_id IN (SELECT item_id FROM main.items), format('%s#former %s.%d', o.item_id,
           (SELECT value FROM old.meta WHERE key = 'run_id'), o.seq), o.item_id), o.seq, o.seq
FROM old.items o WHERE {HAS_RESULT} AND o.seq NOT IN (SELECT old_seq FROM temp.folded) AND NOT EXISTS (
    SELECT 1 FROM main.items n WHERE n.identity = o.identity AND n.content_sha256 IS o.content_sha256
    AND n.frames_low > 0 AND +n.status = o.status) AND NOT EXISTS (
    SELECT 1 FROM main.items n WHERE n.content_sha256 = o.content_sha256 AND n.frames_low > 0 AND +n.status = o.status);
INSERT INTO temp.found SELECT seq, old_seq FROM temp.folded;
"""  # noqa: S608
"""SQL: adds to `folded` the former images and videos of items that have another one in the newer run.

They are paid for, so a later run gets their answers if they return. Each becomes a row like that of a video frame, but
its number belongs to no row of the manifest. So it is in no table that is exported. The plus before `n.status` keeps
SQLite from searching by the status, which most rows share.
"""

_FOLD: Final = (
    """
INSERT INTO main.items (seq, item_id, url, path, identity, kind, extra, status, reason, error, duplicate_of,
                        frames_low, frames_high, width, height, duration_s, content_sha256, asset, name,
                        size_bytes, perceptual_hash, duplicate_distance)
SELECT f.seq, f.item_id, o.url, o.path, o.identity, coalesce(o.kind, p.kind), o.extra,
       iif(p.status IN ('ok', 'failed'), p.status, o.status), p.reason, p.error, p.duplicate_of,
       iif(p.seq <> o.seq AND o.duplicate_distance IS NOT NULL, 0, p.frames_low), p.frames_high,
       coalesce(o.width, p.width), coalesce(o.height, p.height), coalesce(o.duration_s, p.duration_s),
       coalesce(o.content_sha256, p.content_sha256), p.asset, p.name, coalesce(o.size_bytes, p.size_bytes),
       coalesce(o.perceptual_hash, p.perceptual_hash), p.duplicate_distance
FROM temp.folded f JOIN old.items o ON o.seq = f.own_seq JOIN old.items p ON p.seq = f.old_seq
""",
    """
INSERT INTO main.findings SELECT f.seq, o.name, o.severity, o.message, o.value, o.facts
FROM temp.folded f JOIN old.findings o ON o.seq = f.own_seq ORDER BY o.rowid
""",
)
"""SQL: adds the rows in `folded` to the newer run, with their status and findings.

A near-duplicate with a result of its own has no frames to be charged (`frames_low` is 0), so that `same` does not take
it for the image that the answer is about.
"""


def fold_run(db: sqlite.Connection, folder: Path, put: sqlite.Change[None]) -> None:
    """Add those items, images and videos of an older run that the journal `db` lacks, with their answers.

    After that, the older run can be removed. The credits that each item cost in the older run, as answers name them,
    are added to the table `paid_before` of `db`. A duplicate whose original is an item of `db` already gets its
    own copy of the answer that the original had in the older run: the original may have another image or video in `db`.

    Args:
        db: The journal of the next run.
        folder: The folder of the older run.
        put: A function that records in `db` that the older run was added, such as the result of `put_meta`. It is
            called first, in the same transaction.
    """
    with attached_run(db, folder):
        put(db)
        add_credits(db, "old", "paid_before", named_only=True)
        run_all(db, (_FOLDED, _FORMER, *_FOLD, *COPY_ANSWERS))
