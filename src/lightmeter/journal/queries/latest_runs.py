"""For a folder with several runs: find the latest run that has an item (manifest row), or an answer about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from lightmeter import sqlite
from lightmeter.journal.files import journal_path
from lightmeter.journal.frame_rows import FRAME_SEQS, ROW_OF

CREDIT_STEP: Final = 2**-20
"""Shares of credits are whole multiples of this (about a millionth), so that sums of such floats are exact."""

_SCHEMA: Final = """
CREATE TABLE stated (item_id TEXT PRIMARY KEY, run INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE answered (item_id TEXT PRIMARY KEY, run INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE paid (item_id TEXT PRIMARY KEY, credits REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE changed (run INTEGER NOT NULL);
"""

_ADD_RUN: Final = (
    "INSERT INTO changed SELECT ? WHERE EXISTS (SELECT 1 FROM j.items JOIN stated USING (item_id))",
    "INSERT OR REPLACE INTO stated SELECT item_id, ? FROM j.items",
    f"""
INSERT OR REPLACE INTO answered SELECT i.item_id, ? FROM j.items i LEFT JOIN j.items o ON o.item_id = i.duplicate_of
WHERE coalesce(i.asset, o.asset) IS NOT NULL OR (coalesce(i.kind, o.kind) = 'video' AND EXISTS (
    SELECT 1 FROM j.items f WHERE f.seq {FRAME_SEQS.format("coalesce(o.seq, i.seq)")} AND f.asset IS NOT NULL))
""",  # noqa: S608 (our own words)
)

_ITEM: Final = f"(SELECT v.item_id FROM {{run}}.items v WHERE v.seq = {ROW_OF.format('i.seq')})"  # noqa: S608
"""SQL: the manifest's row that row `i` belongs to: itself, or the video whose frame it is."""

_ADD_CREDITS: Final = (
    f"""
INSERT INTO {{target}}
SELECT {_ITEM}, share(s.paid, (SELECT count(*) FROM {{run}}.items p WHERE p.submission_id = i.submission_id),
    (SELECT count(*) FROM {{run}}.items p WHERE p.submission_id = i.submission_id AND p.seq < i.seq))
FROM {{run}}.items i JOIN {{run}}.submissions s USING (submission_id) WHERE s.paid > 0
ON CONFLICT DO UPDATE SET credits = credits + excluded.credits
""",  # noqa: S608
    f"""
INSERT INTO {{target}}
SELECT {_ITEM}, s.paid FROM {{run}}.answer_retries g JOIN {{run}}.items i USING (seq)
     JOIN {{run}}.submissions s ON s.submission_id = g.submission_id WHERE s.paid > 0
ON CONFLICT DO UPDATE SET credits = credits + excluded.credits
""",  # noqa: S608
    """
INSERT INTO {target} SELECT item_id, credits FROM {run}.paid_before WHERE true
ON CONFLICT DO UPDATE SET credits = credits + excluded.credits
""",
)


def credit_share(paid: int, sharers: int, place: int) -> float:
    """Return the credits that one item of a request has cost. The shares of a request add up exactly to its price.

    Args:
        paid: Whole credits paid for the request.
        sharers: Number of items in the request.
        place: Position of the item among them, from 0.
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
    """Attach the database that `build_latest_runs` wrote to `path`, as `latest`: the newest run with each item."""
    db.execute("ATTACH ? AS latest", (str(path),))


def add_credits(db: sqlite.Connection, run: str, target: str) -> None:
    """Add the credits that each item cost in a run to the sums in a table.

    Args:
        db: A connection in a transaction, to which the journal of the run is attached.
        run: Name under which that journal is attached.
        target: Name of the table, with the columns `item_id` and `credits`.
    """
    share: Any = credit_share
    db.create_scalar_function("share", share, 3, deterministic=True)
    for statement in _ADD_CREDITS:
        db.execute(statement.format(run=run, target=target))


def build_latest_runs(runs: list[Path], path: Path) -> None:
    """Write a database that tells which of several runs of a folder has the newest state and answer of each item.

    Runs are numbered from 0, oldest first. The tables are `stated` (item → latest run with the item), `answered`
    (item → latest run with an answer about it), `paid` (item → credits that it cost in all runs) and `changed` (runs
    with items that an older run has too).

    Args:
        runs: Folders of the runs, oldest first.
        path: File of the new database.
    """
    index = sqlite.connect(path)
    try:
        index.execute(_SCHEMA)
        for position, run in enumerate(runs):
            index.execute("ATTACH ? AS j", (str(journal_path(run)),))
            with index:
                for statement in _ADD_RUN:
                    index.execute(statement, (position,))
                add_credits(index, "j", "paid")
            index.execute("DETACH j")
    finally:
        index.close()
