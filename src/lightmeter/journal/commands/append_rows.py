"""Add rows to the journal of a run that has begun already (`--stream`), some rows (a chunk) at a time.

Each chunk is first written to a journal in memory, where answers of earlier runs are looked up for its rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from lightmeter import sqlite
from lightmeter.journal.commands.plan_rows import PlannedRow, restore_rows
from lightmeter.journal.commands.submissions import put_meta
from lightmeter.journal.schema import SCHEMA

_COPIED: Final = ("items", "findings", "answer_retries")

_EARLIER: Final = "SELECT sha256, request_id, answered_at, raw FROM earlier"

_LINKS: Final = "SELECT l.seq, e.sha256 FROM {0} l JOIN earlier e USING (earlier_id)"

Inserts = Sequence[tuple[str, Sequence[tuple[Any, ...]]]]
"""SQL statements, each with the values of the rows that it inserts."""


@contextmanager
def chunk_in_memory(rows: Sequence[PlannedRow], options: str) -> Iterator[sqlite.Connection]:
    """Yield a temporary journal in memory with some rows of a plan and `options`, the run's options as JSON."""
    with closing(sqlite.connect(Path(":memory:"))) as db:
        with db:
            db.execute(SCHEMA)
            put_meta({"options": options})(db)
            restore_rows(rows)(db)
        yield db


def read_chunk(db: sqlite.Connection) -> Inserts:
    """Return SQL statements that copy the rows of the journal `db`, and their stored answers, into another journal."""
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
    """Create an index by row on the table `findings` (problems that pre-checks found) of a temporary journal."""
    db.execute("CREATE INDEX IF NOT EXISTS findings_by_row ON findings (seq)")


@sqlite.command
def append_rows(db: sqlite.Connection, inserts: Inserts, meta: Mapping[str, str]) -> None:
    """Add rows to the journal of a run by the SQL `inserts`, and write `meta` (name → value) to its table `meta`."""
    for statement, rows in inserts:
        db.executemany(statement, rows)
    put_meta(meta)(db)
