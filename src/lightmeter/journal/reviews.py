"""Decisions of people about the items of a run (keep, reject, unsure), in `reviews.sqlite` beside the journal.

The file only grows: each decision is added to it, and each withdrawal of a decision is added too. Nothing in it is
changed or deleted. The valid decision about an item is the newest one that is not withdrawn. Several processes may
write at once. All decisions made with one click are one batch: they can only be withdrawn together.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, get_args

from lightmeter import sqlite
from lightmeter.errors import JournalError, UsageError

REVIEWS_NAME: Final = "reviews.sqlite"
"""Name of the file with the decisions, in the folder of the run."""

Decision = Literal["keep", "reject", "unsure"]
DECISIONS: Final[tuple[Decision, ...]] = get_args(Decision)
"""All decisions that a person can make about an item."""

_ROWS_AT_ONCE: Final = 32_768

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS batches (
    batch INTEGER PRIMARY KEY AUTOINCREMENT,   -- the newest has the largest
    run_id TEXT NOT NULL,
    decision TEXT NOT NULL CHECK (decision IN ('keep', 'reject', 'unsure')),
    by TEXT NOT NULL,
    at REAL NOT NULL,                          -- seconds since the epoch
    note TEXT
) STRICT;
CREATE TABLE IF NOT EXISTS decisions (
    item_id TEXT NOT NULL,
    batch INTEGER NOT NULL REFERENCES batches,
    url TEXT NOT NULL,
    PRIMARY KEY (item_id, batch)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS decisions_of_batch ON decisions (batch);
CREATE TABLE IF NOT EXISTS withdrawals (
    number INTEGER PRIMARY KEY AUTOINCREMENT,  -- the newest has the largest
    batch INTEGER NOT NULL UNIQUE REFERENCES batches,
    by TEXT NOT NULL,
    at REAL NOT NULL
) STRICT;
"""

_VALID: Final = """
SELECT item_id, url, max(batch) AS batch FROM decisions WHERE batch NOT IN (SELECT batch FROM withdrawals) {which}
GROUP BY item_id
"""
"""SQL: the valid decision about each item: the newest one that is not withdrawn.

`{which}` is a further condition, or empty. SQLite takes `url` from the row with the maximum.
"""

_COLUMNS: Final = "item_id, url, batch, run_id, decision, by, at, note"
_LATEST: Final = f"SELECT {_COLUMNS} FROM ({_VALID}) JOIN batches USING (batch)"  # noqa: S608 (constants)

_THESE: Final = "AND item_id IN (SELECT value FROM json_each(?))"

_ITEMS_SINCE: Final = """
SELECT item_id FROM decisions WHERE batch > ?
UNION SELECT item_id FROM decisions WHERE batch IN (SELECT batch FROM withdrawals WHERE number > ?)
"""

_MARK: Final = """
SELECT (SELECT coalesce(max(batch), 0) FROM batches), (SELECT coalesce(max(number), 0) FROM withdrawals)
"""


class ReviewDecision(NamedTuple):
    """A person's newest decision about an item; `at` is its time in seconds since the epoch.

    All decisions made with one click have the same `batch`, an id: `withdraw_reviews` withdraws them together.
    """

    item_id: str
    url: str
    batch: int
    run_id: str
    decision: Decision
    by: str
    at: float
    note: str | None


class ReviewMark(NamedTuple):
    """Version of a run's review decisions: the ids of the newest batch and of the newest withdrawal.

    A batch is a group of decisions made by one click.
    """

    batch: int = 0
    withdrawal: int = 0


class ReviewChanges(NamedTuple):
    """What has changed in a run's review decisions since an earlier version.

    `mark` is the new version. `items` are the ids of the items whose decision may have changed. `reviews` are the
    newest decisions about these items that are not withdrawn; an item without such a decision is not in `reviews`.
    """

    mark: ReviewMark
    items: list[str]
    reviews: list[ReviewDecision]


def add_reviews(
    folder: Path, run_id: str, items: Iterable[tuple[str, str]], decision: Decision, by: str, note: str = ""
) -> int:
    """Store the same decision about some items of a run; return the id of this batch, for `withdraw_reviews`.

    Args:
        folder: The output folder of the run.
        run_id: Id of the run.
        items: Pairs of item id and URL.
        decision: The decision: `keep`, `reject` or `unsure`.
        by: Name of the person who decides.
        note: A remark of the person; may be empty.

    Raises:
        UsageError: The person has no name.
        JournalError: The decision cannot be written.
    """
    if not by.strip():
        raise UsageError("A decision needs the name of the person who makes it.", hint="Type a name into Reviewer.")
    with _open_to_write(folder) as db, sqlite.write_transaction(db):
        values = (run_id, decision, by.strip(), time.time(), note.strip() or None)
        db.execute("INSERT INTO batches (run_id, decision, by, at, note) VALUES (?, ?, ?, ?, ?)", values)
        batch: int = db.last_insert_rowid()
        db.executemany(
            "INSERT INTO decisions (item_id, batch, url) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
            ((item_id, batch, url) for item_id, url in sorted(items)),  # in the order of the file: far faster
        )
        return batch


def withdraw_reviews(folder: Path, batch: int, by: str) -> list[str]:
    """Withdraw the decisions that were made together as batch `batch`; return the ids of the batch's items.

    If these decisions are withdrawn already, change nothing.

    Args:
        folder: The output folder of the run.
        batch: The batch id, from `add_reviews`.
        by: Name of the person who withdraws the decisions; stored with the withdrawal.

    Raises:
        UsageError: There is no such batch.
        JournalError: The withdrawal cannot be written.
    """
    with _open_to_write(folder) as db, sqlite.write_transaction(db):
        items = [item_id for (item_id,) in db.execute("SELECT item_id FROM decisions WHERE batch = ?", (batch,))]
        if not items:
            raise UsageError(f"There is no decision {batch} to undo.")
        db.execute(
            "INSERT INTO withdrawals (batch, by, at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
            (batch, by.strip(), time.time()),
        )
        return items


def read_reviews(folder: Path, item_ids: Iterable[str]) -> dict[str, ReviewDecision]:
    """Return the valid decisions about `item_ids` of the run in `folder`, as item id → decision.

    The valid decision is the newest one that is not withdrawn. Items without a valid decision are left out.

    Raises:
        JournalError: `reviews.sqlite` cannot be read.
    """
    if not has_reviews(folder):
        return {}
    with _open_to_read(folder) as db:
        rows = db.execute(_LATEST.format(which=_THESE), (json.dumps(list(item_ids)),))
        return {review.item_id: review for review in (ReviewDecision(*row) for row in rows)}


def valid_decisions(folder: Path) -> dict[str, Decision]:
    """Return the valid decisions about all items of the run in `folder`, as item id → decision.

    The valid decision is the newest one that is not withdrawn. Items without a valid decision are left out.

    Raises:
        JournalError: `reviews.sqlite` cannot be read.
    """
    if not has_reviews(folder):
        return {}
    with _open_to_read(folder) as db:
        rows: Any = db.execute(f"SELECT item_id, decision FROM ({_VALID.format(which='')}) JOIN batches USING (batch)")  # noqa: S608 (constants)
        return dict(rows)


def review_chunks(folder: Path) -> Iterator[tuple[ReviewMark, list[ReviewDecision]]]:
    """Yield all valid decisions about the items of the run in `folder`, in lists of bounded length.

    The valid decision about an item is the newest one that is not withdrawn. Each list comes with the version of the
    run's decisions. There is at least one list, which may be empty.

    Raises:
        JournalError: `reviews.sqlite` cannot be read.
    """
    if not has_reviews(folder):
        yield ReviewMark(), []
        return
    with _open_to_read(folder) as db, db:  # one transaction
        mark = _mark(db)
        rows = (ReviewDecision(*row) for row in db.execute(_LATEST.format(which="")))
        yield mark, list(islice(rows, _ROWS_AT_ONCE))
        while some := list(islice(rows, _ROWS_AT_ONCE)):
            yield mark, some


def review_mark(folder: Path) -> ReviewMark:
    """Return the version of the review decisions in a run's folder.

    It changes with every decision and every withdrawal.

    Raises:
        JournalError: `reviews.sqlite` cannot be read.
    """
    if not has_reviews(folder):
        return ReviewMark()
    with _open_to_read(folder) as db:
        return _mark(db)


def items_since(folder: Path, mark: ReviewMark) -> list[str]:
    """Return the ids of the items of the run in `folder` whose decision may have changed since the version `mark`.

    Raises:
        JournalError: `reviews.sqlite` cannot be read.
    """
    if not has_reviews(folder):
        return []
    with _open_to_read(folder) as db:
        return [item_id for (item_id,) in db.execute(_ITEMS_SINCE, mark)]


def changed_reviews(folder: Path, since: ReviewMark, most: int) -> ReviewChanges | None:
    """Return what has changed since the version `since` of a run's decisions.

    Return None if the decisions of more than `most` items may have changed, or if `since` is not a version of this
    folder's `reviews.sqlite`.

    Raises:
        JournalError: `reviews.sqlite` cannot be read.
    """
    with _open_to_read(folder) as db, db:  # one transaction
        mark = _mark(db)
        items = [item_id for (item_id,) in db.execute(f"{_ITEMS_SINCE} LIMIT ?", (*since, most + 1))]
        reviews = [
            ReviewDecision(*row) for row in db.execute(_LATEST.format(which=_THESE), (json.dumps(items[:most]),))
        ]
    is_other_file = since.batch > mark.batch or since.withdrawal > mark.withdrawal
    return None if is_other_file or len(items) > most else ReviewChanges(mark, items, reviews)


def has_reviews(folder: Path) -> bool:
    """Return whether the folder of a run has the file `reviews.sqlite`."""
    return (folder / REVIEWS_NAME).exists()


def _mark(db: sqlite.Connection) -> ReviewMark:
    ((batch, withdrawal),) = db.execute(_MARK).fetchall()
    return ReviewMark(int(batch or 0), int(withdrawal or 0))


@contextmanager
def _open_to_write(folder: Path) -> Iterator[sqlite.Connection]:
    path = folder / REVIEWS_NAME
    try:
        with closing(sqlite.open_wal(path)) as db:
            db.execute(_SCHEMA)
            yield db
    except sqlite.Error as error:
        hint = "Is the disk full, or the folder read-only? Earlier decisions are kept."
        raise JournalError(f"{path} cannot be written: {error}.", hint=hint) from error


@contextmanager
def _open_to_read(folder: Path) -> Iterator[sqlite.Connection]:
    path = folder / REVIEWS_NAME
    try:
        # With write access where possible: after a crash SQLite must rebuild the index of its log.
        is_writable = os.access(folder, os.W_OK) and os.access(path, os.W_OK)
        with closing(sqlite.connect(path, create=False) if is_writable else sqlite.open_immutable(path)) as db:
            if is_writable:
                db.execute(_SCHEMA)  # a writer was killed between creating the file and its tables
            yield db
    except sqlite.Error as error:
        raise JournalError(f"{path} cannot be read: {error}.") from error
