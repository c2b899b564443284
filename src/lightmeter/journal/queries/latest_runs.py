"""Find, in a folder with several runs, the latest run that has an item (manifest row), or an answer about its asset."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from lightmeter import sqlite
from lightmeter.journal.files import journal_path
from lightmeter.journal.frame_rows import FIRST_FRAME_SEQ, FRAME_SEQS, ROW_OF
from lightmeter.journal.queries.items import REACH_FACTS

CREDIT_STEP: Final = 2**-20
"""Unit of shares of credits, about a millionth of a credit.

The credits of a request are divided among its items in multiples of this unit, so that sums of these floats are exact.
"""

_SCHEMA: Final = """
CREATE TABLE stated (item_id TEXT PRIMARY KEY, run INTEGER NOT NULL, identity TEXT, content_sha256 TEXT, size_bytes,
                     etag) WITHOUT ROWID;
CREATE TABLE answered (item_id TEXT PRIMARY KEY, run INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE paid (item_id TEXT PRIMARY KEY, credits REAL) WITHOUT ROWID;
CREATE TABLE newest (run INTEGER NOT NULL);
"""

_ROWS: Final = f"""
FROM j.items i LEFT JOIN j.items o ON o.item_id = i.duplicate_of
JOIN j.items a ON a.seq = iif(o.identity = i.identity, o.seq, i.seq) LEFT JOIN j.{REACH_FACTS.format("f", "a")}
"""
"""SQL: the rows `i` of a run, the original `o` of each duplicate, and the row `a` whose image or video was checked.

`a` is the original if it has the same URL, otherwise `i` itself.
"""

_IS_SAME_ASSET: Final = """coalesce(n.content_sha256 = a.content_sha256, n.identity = a.identity
    AND coalesce(n.size_bytes = f.facts ->> '$.size_bytes', 1) AND coalesce(n.etag = f.facts ->> '$.etag', 1))
"""
"""SQL: whether row `a` of a run has the same image or video as the newest state `n` of its item.

This is the rule of `carry_over`: contents decide; if one is unknown, URL or path, size and ETag.
"""

_ADD_RUN: Final = (
    f"""
INSERT OR IGNORE INTO stated SELECT i.item_id, :run, a.identity, a.content_sha256,
    f.facts ->> '$.size_bytes', f.facts ->> '$.etag' {_ROWS} WHERE i.seq < {FIRST_FRAME_SEQ}
""",
    f"""
INSERT OR IGNORE INTO answered SELECT i.item_id, :run {_ROWS} JOIN stated n ON n.item_id = i.item_id
WHERE i.seq < {FIRST_FRAME_SEQ} AND (n.run = :run OR {_IS_SAME_ASSET}) AND (
    coalesce(i.asset, o.asset) IS NOT NULL OR (coalesce(i.kind, o.kind) = 'video' AND EXISTS (
        SELECT 1 FROM j.items v WHERE v.seq {FRAME_SEQS.format("coalesce(o.seq, i.seq)")} AND v.asset IS NOT NULL)))
""",  # noqa: S608 (our own words, here and below)
)
"""SQL: adds the run `:run`, attached as `j`, to `stated` and `answered`. Newer runs must have been added before."""

_ADD_UNANSWERED: Final = "INSERT OR IGNORE INTO answered SELECT item_id, run FROM stated"

_ITEM: Final = f"(SELECT v.item_id FROM {{run}}.items v WHERE v.seq = {ROW_OF.format('i.seq')})"  # noqa: S608
"""SQL: the id of the item that row `i` belongs to: the manifest row itself, or the video if row `i` is a frame.

`{run}` is the name under which the journal is attached.
"""

_ADD_CREDITS: Final = (
    f"""
INSERT INTO {{target}}
SELECT {_ITEM}, iif(s.said, share(s.paid,
    (SELECT count(*) FROM {{run}}.items p WHERE p.submission_id = i.submission_id),
    (SELECT count(*) FROM {{run}}.items p WHERE p.submission_id = i.submission_id AND p.seq < i.seq)), NULL)
FROM {{run}}.items i JOIN {{run}}.submissions s USING (submission_id) WHERE {{charged}}
ON CONFLICT DO UPDATE SET credits = credits + excluded.credits
""",  # noqa: S608
    f"""
INSERT INTO {{target}}
SELECT {_ITEM}, iif(s.said, s.paid, NULL) FROM {{run}}.answer_retries g JOIN {{run}}.items i USING (seq)
     JOIN {{run}}.submissions s ON s.submission_id = g.submission_id WHERE {{charged}}
ON CONFLICT DO UPDATE SET credits = credits + excluded.credits
""",  # noqa: S608
    """
INSERT INTO {target} SELECT item_id, credits FROM {run}.paid_before WHERE true
ON CONFLICT DO UPDATE SET credits = credits + excluded.credits
""",
)


def credit_share(paid: int, sharers: int, place: int) -> float:
    """Return the part of a request's price that falls to one item. All parts together are exactly the price.

    Args:
        paid: Whole credits paid for the request.
        sharers: Number of items in the request.
        place: Position of the item among the items of the request, from 0.
    """
    each, left = divmod(round(paid / CREDIT_STEP), sharers)
    return (each + (place < left)) * CREDIT_STEP


def has_shared_items(db: sqlite.Connection, older: list[Path]) -> bool:
    """Return whether any item id of the journal `db` also occurs in the journal of one of the folders `older`."""
    for folder in older:
        db.execute("ATTACH ? AS older", (str(journal_path(folder)),))
        try:
            if db.execute("SELECT 1 FROM main.items JOIN older.items USING (item_id) LIMIT 1").fetchone():
                return True
        finally:
            db.execute("DETACH older")
    return False


def attach_latest_runs(db: sqlite.Connection, path: Path) -> None:
    """Attach the database at `path`, which `build_latest_runs` wrote, under the name `latest`.

    It says which run of the folder is the newest with each item.
    """
    db.execute("ATTACH ? AS latest", (str(path),))


def add_credits(db: sqlite.Connection, run: str, target: str, *, named_only: bool) -> None:
    """Add the credits that each item cost in a run to the item's sum in a table.

    Args:
        db: A connection in a transaction, to which the journal of the run is attached.
        run: Name under which the journal is attached.
        target: Name of the table with the sums; it has the columns `item_id` and `credits`.
        named_only: Whether requests whose answers name no charge are left out. If not, the sum of their items becomes
            null: not known.
    """
    charged = "s.said AND s.paid > 0" if named_only else "s.said = 0 OR s.paid > 0"
    share: Any = credit_share
    db.create_scalar_function("share", share, 3, deterministic=True)
    for statement in _ADD_CREDITS:
        db.execute(statement.format(run=run, target=target, charged=charged))


def build_latest_runs(runs: list[Path], path: Path, newest: int) -> None:
    """Write a database that says, for each item, which run of a folder has its newest state and its newest answer.

    Runs are numbered from 0, oldest first. The tables are `stated` (item → latest run with the item, and the image or
    video that the item has there), `answered` (item → latest run with an answer about this image or video; the run in
    `stated` if there is none), `paid` (item → credits that it cost in all runs; null if not known) and `newest` (the
    newest run of the folder; rows of other runs are no longer in the manifest). An answer about another image or video,
    which the item had before, does not count.

    Args:
        runs: Folders of the runs, oldest first; empty if no item to be exported is in more than one run.
        path: File of the new database.
        newest: Number of the newest run of the folder.
    """
    index = sqlite.connect(path)
    try:
        index.execute(_SCHEMA)
        index.execute("INSERT INTO newest VALUES (?)", (newest,))
        for position, run in reversed(list(enumerate(runs))):
            index.execute("ATTACH ? AS j", (str(journal_path(run)),))
            with index:
                for statement in _ADD_RUN:
                    index.execute(statement, {"run": position})
                add_credits(index, "j", "paid", named_only=False)
            index.execute("DETACH j")
        index.execute(_ADD_UNANSWERED)
    finally:
        index.close()
