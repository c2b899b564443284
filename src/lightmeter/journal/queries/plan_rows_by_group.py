"""Queries that group the rows of a plan: by what changed since another plan, and by the value of a manifest column."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from lightmeter import sqlite
from lightmeter.journal.files import journal_path
from lightmeter.journal.frame_rows import FIRST_FRAME_SEQ, HAS_FRAMES, IS_ROW, ROW_OF
from lightmeter.journal.queries.frame_counts import UNSENT
from lightmeter.journal.queries.send_order import stratum_sql


class PlannedGroup(NamedTuple):
    """Counts for the rows of a plan that have the same value in a column, or the same change since another plan.

    Attributes:
        name: The value in the column (None for rows without a value), or the change: `added`, `removed`, `changed` or
            `unchanged`.
        rows: Number of rows of the manifest.
        rows_to_send: Number of these rows that a run would send.
        frames_low: Least number of images and frames to be sent.
        frames_high: Most images and frames to be sent; None if unbounded.
        single: Number of video frames to be sent as single images, instead of a whole video.
    """

    name: str | None
    rows: int
    rows_to_send: int
    frames_low: int
    frames_high: int | None
    single: int


_GROUP: Final = f"""
WITH sent AS (
    SELECT g.name, total(i.frames_low) AS low, count(*) = count(i.frames_high) AS bounded,
           total(i.frames_high) AS high, total(i.seq >= {FIRST_FRAME_SEQ}) AS single
    FROM {{0}}items i JOIN temp.{{1}} g ON g.seq = {ROW_OF.format("i.seq")}
    WHERE i.{UNSENT} AND NOT {HAS_FRAMES.format("i", "{0}")} GROUP BY 1
)
SELECT g.name, count(*), CAST(total(i.{UNSENT}) AS INTEGER), CAST(coalesce(s.low, 0) AS INTEGER),
       iif(coalesce(s.bounded, 1), CAST(coalesce(s.high, 0) AS INTEGER), NULL), CAST(coalesce(s.single, 0) AS INTEGER)
FROM temp.{{1}} g JOIN {{0}}items i ON i.seq = g.seq LEFT JOIN sent s ON s.name IS g.name
GROUP BY 1 ORDER BY 4 DESC, 2 DESC, 1
"""  # noqa: S608 (our own words, here and below)
"""SQL: number of rows and frames for each name in the table `{1}`, which assigns names to row numbers.

`{0}` is the name of the attached journal with a dot.
"""

_MATCH: Final = f"""
CREATE TEMP TABLE same (seq INTEGER PRIMARY KEY, old_seq INTEGER NOT NULL UNIQUE);
INSERT INTO temp.same SELECT n.seq, o.seq FROM new.items n JOIN old.items o USING (item_id)
    WHERE n.{IS_ROW} AND o.{IS_ROW};
CREATE TEMP TABLE urls (url TEXT PRIMARY KEY, seq INTEGER NOT NULL) WITHOUT ROWID;
INSERT OR IGNORE INTO temp.urls SELECT url, seq FROM old.items
    WHERE {IS_ROW} AND url <> '' AND seq NOT IN (SELECT old_seq FROM temp.same) ORDER BY seq;
INSERT OR IGNORE INTO temp.same SELECT n.seq, u.seq FROM new.items n JOIN temp.urls u USING (url)
    WHERE n.{IS_ROW} AND n.seq NOT IN (SELECT seq FROM temp.same) ORDER BY n.seq;
CREATE TEMP TABLE differing AS SELECT s.seq, s.old_seq FROM temp.same s
    JOIN new.items n ON n.seq = s.seq JOIN old.items o ON o.seq = s.old_seq
    WHERE n.url IS NOT o.url OR n.content_sha256 <> o.content_sha256 OR n.extra IS NOT o.extra;
CREATE TEMP TABLE now (seq INTEGER PRIMARY KEY, name TEXT NOT NULL);
INSERT INTO temp.now SELECT seq, CASE WHEN seq IN (SELECT seq FROM temp.differing) THEN 'changed'
    WHEN seq IN (SELECT seq FROM temp.same) THEN 'unchanged' ELSE 'added' END FROM new.items WHERE {IS_ROW};
CREATE TEMP TABLE before (seq INTEGER PRIMARY KEY, name TEXT NOT NULL);
INSERT INTO temp.before SELECT seq, CASE WHEN seq IN (SELECT old_seq FROM temp.differing) THEN 'changed'
    WHEN seq IN (SELECT old_seq FROM temp.same) THEN 'unchanged' ELSE 'removed' END FROM old.items WHERE {IS_ROW};
"""  # noqa: S608
"""SQL: pairs the rows of two plans that have the same id, or else the same URL.

An id may be made from a path, and then depends on the folder. So rows with the same URL may have different ids.
"""


def rows_by_change(new: Path, old: Path) -> tuple[list[PlannedGroup], list[PlannedGroup]]:
    """Count the rows of a new and of an old plan that were `added`, `removed`, `changed` or left `unchanged`.

    Return (counts of the new plan's rows, counts of the old plan's rows). A row of the new plan and a row of the old
    plan are the same row if they have the same id, or else the same URL or path. The row is changed if its URL or path,
    its additional columns or its content differ. The contents of a row are compared only if both are known.

    Args:
        new: Folder with the journal of the new plan.
        old: Folder with the journal of the old plan.
    """
    with _attached(new=new, old=old) as db:
        db.execute(_MATCH)
        return _groups(db, "new.", "now"), _groups(db, "old.", "before")


def rows_by_value(folder: Path, column: str) -> list[PlannedGroup]:
    """Count the rows of a plan by their value in a manifest column. The value with most frames to send comes first.

    An image counts as one frame.

    Args:
        folder: Folder with the journal of the plan.
        column: Name of the column.
    """
    with _attached(new=folder) as db:
        db.execute("CREATE TEMP TABLE valued (seq INTEGER PRIMARY KEY, name TEXT)")
        query = f"INSERT INTO temp.valued SELECT seq, {stratum_sql(column)} FROM new.items WHERE {IS_ROW}"  # noqa: S608
        db.execute(query, (column,))
        return _groups(db, "new.", "valued")


@contextmanager
def _attached(**folders: Path) -> Iterator[sqlite.Connection]:
    """Open a database in memory and attach the journals of plans: `folders` is name → folder of the plan."""
    with closing(sqlite.connect(Path(":memory:"), create=False)) as db:
        for name, folder in folders.items():
            db.execute(f"ATTACH ? AS {name}", (str(journal_path(folder)),))
        yield db


def _groups(db: sqlite.Connection, schema: str, table: str) -> list[PlannedGroup]:
    return [PlannedGroup(*row) for row in db.execute(_GROUP.format(schema, table))]
