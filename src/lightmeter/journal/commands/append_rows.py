"""Add rows, chunk by chunk, to the journal of a run that has begun already (`--stream`).

Each chunk of rows is first written to a temporary journal in memory. There, answers of earlier runs are looked up for
its rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from lightmeter import sqlite
from lightmeter.journal.commands.plan_rows import PlannedRow, add_rows, before_sending, restore_rows
from lightmeter.journal.commands.submissions import put_meta
from lightmeter.journal.frame_rows import frame_of, row_of
from lightmeter.journal.schema import SCHEMA

_COPIED: Final = ("items", "findings", "answer_retries")

_EARLIER: Final = "SELECT sha256, request_id, answered_at, raw FROM earlier"

_LINKS: Final = "SELECT l.seq, e.sha256 FROM {0} l JOIN earlier e USING (earlier_id)"

Inserts = Sequence[tuple[str, Sequence[tuple[Any, ...]]]]
"""SQL statements that each insert one row.

Each statement comes with a list of values: one tuple for each row to insert.
"""


@contextmanager
def chunk_in_memory(rows: Sequence[PlannedRow], options: str) -> Iterator[sqlite.Connection]:
    """Yield a temporary journal in memory with the planned `rows`.

    `options` is the JSON of the run's options; it is stored in the temporary journal.
    """
    with closing(sqlite.connect(Path(":memory:"))) as db:
        with db:
            db.execute(SCHEMA)
            put_meta({"options": options})(db)
            restore_rows(rows)(db)
        yield db


def read_chunk(db: sqlite.Connection) -> Inserts:
    """Return SQL statements that copy the content of the journal `db` to another journal.

    They copy the rows, their findings, and the answers of earlier runs that belong to them.
    """
    inserts: list[tuple[str, Sequence[tuple[Any, ...]]]] = []
    for table in _COPIED:
        names = [name for _, name, *_ in db.execute(f"PRAGMA table_info({table})")]
        columns, places = ", ".join(names), ", ".join("?" * len(names))
        rows = db.execute(f"SELECT {columns} FROM {table} ORDER BY rowid").fetchall()  # noqa: S608 (our own words)
        inserts.append((f"INSERT INTO {table} ({columns}) VALUES ({places})", rows))  # noqa: S608 (likewise)
    earlier = "INSERT INTO earlier (sha256, request_id, answered_at, raw) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
    inserts.append((earlier, db.execute(_EARLIER).fetchall()))
    for table in ("reused", "repeated"):
        link = f"INSERT INTO {table} SELECT ?, earlier_id FROM earlier WHERE sha256 = ?"  # noqa: S608 (likewise)
        inserts.append((link, db.execute(_LINKS.format(table)).fetchall()))
    return inserts


def index_findings(db: sqlite.Connection) -> None:
    """Create an index by row number on the table `findings` (problems that pre-checks found) of a temporary journal."""
    db.execute("CREATE INDEX IF NOT EXISTS findings_by_row ON findings (seq)")


@sqlite.command
def append_rows(db: sqlite.Connection, inserts: Inserts, meta: Mapping[str, str]) -> None:
    """Add rows to the journal of a run.

    Args:
        db: The journal, in a transaction.
        inserts: SQL statements that add the rows, from `read_chunk`.
        meta: Values (name → text) to write to the journal's table `meta`.
    """
    for statement, rows in inserts:
        db.executemany(statement, rows)
    put_meta(meta)(db)


@sqlite.command
def append_rows_of_plan(db: sqlite.Connection, rows: Iterable[PlannedRow], *, find_duplicates: bool) -> None:
    """Add rows of a later plan, made for the same manifest, to the journal of a run, which lacks these rows.

    Whatever status a row has in the later plan, it is added as a row that was not sent: `pending`, or the status that
    the pre-checks gave it.

    Args:
        db: The journal of the run, in a transaction.
        rows: The rows to add, in the order of the manifest, and then the rows of their frames.
        find_duplicates: Whether a row with the same URL, path or content as an earlier row becomes a duplicate. The
            frames of such a video are left out.
    """
    for planned in rows:
        row = before_sending(planned)
        if frame_of(row.seq) is None:
            add_rows([row], find_duplicates=find_duplicates)(db)
        elif db.execute("SELECT status = 'pending' FROM items WHERE seq = ?", (row_of(row.seq),)).get:
            restore_rows([row])(db)
