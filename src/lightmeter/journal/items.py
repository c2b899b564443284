"""Rows of the manifest in the journal: written once by the plan, read by the run and the export."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import apsw

__all__ = [
    "STATUSES",
    "Pending",
    "PlannedFinding",
    "PlannedRow",
    "add_rows",
    "count_by_status",
    "pending_frames",
    "pending_rows",
    "reasons",
    "totals",
]

STATUSES: Final = ("ok", "failed", "skipped", "duplicate", "in_doubt", "over_budget", "pending")


@dataclass(frozen=True, slots=True)
class PlannedFinding:
    """One finding of a pre-check, ready to be stored; `facts` is JSON."""

    name: str
    severity: str
    message: str
    value: float | None
    facts: str


@dataclass(frozen=True, slots=True)
class PlannedRow:
    """A manifest row as the plan leaves it: to be sent (`pending`), or skipped with a reason.

    `frames_low` to `frames_high` (None: no bound) pictures will be charged for it. `extra` is JSON. `identity` is None
    for rows that cannot be an asset.
    """

    seq: int
    item_id: str
    url: str
    path: str | None
    identity: str | None
    kind: str | None
    extra: str
    own_id: bool
    status: str = "pending"
    reason: str | None = None
    error: str | None = None
    frames_low: int = 0
    frames_high: int | None = 0
    width: int | None = None
    height: int | None = None
    duration_s: float | None = None
    content_sha256: str | None = None
    findings: tuple[PlannedFinding, ...] = ()


@dataclass(frozen=True, slots=True)
class Pending:
    """A row that waits to be sent."""

    seq: int
    url: str
    path: str | None
    kind: str | None
    frames_high: int | None


_INSERT: Final = """
INSERT INTO items (seq, item_id, url, path, identity, kind, extra, status, reason, error, duplicate_of,
                   frames_low, frames_high, width, height, duration_s, content_sha256)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""


def add_rows(rows: Sequence[PlannedRow]) -> Callable[[apsw.Connection], None]:
    """Write rows; the journal knows all earlier ones, so it finds duplicates and repeated ids."""

    def change(db: apsw.Connection) -> None:
        for row in rows:
            _add(db, row)

    return change


def _add(db: apsw.Connection, row: PlannedRow) -> None:
    status, reason, error, original = row.status, row.reason, row.error, None
    frames: tuple[int, int | None] = (row.frames_low, row.frames_high)
    item_id = row.item_id
    if db.execute("SELECT 1 FROM items WHERE item_id = ?", (item_id,)).fetchone():
        item_id = f"{item_id}#{row.seq}"
        if row.own_id and status == "pending":
            status, reason, error = (
                "skipped",
                "id_repeated",
                f"The id {row.item_id!r} stands in an earlier row.",
            )
    if status == "pending":
        original = _original(db, row)
        if original is not None:
            status, reason = "duplicate", "same_asset"
    if status != "pending":
        frames = (0, 0)
    values = (
        row.seq,
        item_id,
        row.url,
        row.path,
        row.identity,
        row.kind,
        row.extra,
        status,
        reason,
        error,
        original,
    )
    facts = (row.width, row.height, row.duration_s, row.content_sha256)
    db.execute(_INSERT, (*values, *frames, *facts))
    db.executemany(
        "INSERT INTO findings VALUES (?, ?, ?, ?, ?, ?)",
        [(row.seq, found.name, found.severity, found.message, found.value, found.facts) for found in row.findings],
    )


def _original(db: apsw.Connection, row: PlannedRow) -> str | None:
    """The earlier row that this one repeats: the same address, or the same content."""
    for column, value in (("identity", row.identity), ("content_sha256", row.content_sha256)):
        if value is None:
            continue
        found = db.execute(
            f"SELECT item_id FROM items WHERE {column} = ? AND status NOT IN ('duplicate', 'skipped') LIMIT 1",  # noqa: S608 (our own word)
            (value,),
        ).fetchone()
        if found:
            return str(found[0])
    return None


def count_by_status(db: apsw.Connection) -> dict[str, int]:
    """How many rows stand where; every status is there, also with 0."""
    counted = dict(db.execute("SELECT status, count(*) FROM items GROUP BY status"))
    return {status: counted.get(status, 0) for status in STATUSES}


def reasons(db: apsw.Connection) -> list[tuple[str, str, int, str]]:
    """(status, reason, rows, an example's url and error) for all rows that have a reason, most frequent first."""
    return [
        (status, reason, rows, example)
        for status, reason, rows, example in db.execute(
            "SELECT status, reason, count(*) AS rows, max(url || coalesce(': ' || error, '')) FROM items "
            "WHERE reason IS NOT NULL GROUP BY status, reason ORDER BY rows DESC, status, reason"
        )
    ]


def pending_frames(db: apsw.Connection) -> tuple[int, int | None]:
    """Pictures that will be charged for all rows still to be paid for, from (at least) to (at most, None: no bound)."""
    ((low, high, unbounded),) = db.execute(
        "SELECT coalesce(sum(frames_low), 0), coalesce(sum(frames_high), 0), count(*) - count(frames_high) "
        "FROM items WHERE status IN ('pending', 'over_budget')"
    )
    return low, None if unbounded else high


def totals(db: apsw.Connection) -> tuple[int, int]:
    """Credits (paid, held) so far."""
    ((paid, held),) = db.execute("SELECT paid, held FROM money")
    return paid, held


def pending_rows(db: apsw.Connection, first: int, last: int, chunk: int = 512) -> Iterator[Pending]:
    """Rows first ≤ seq ≤ last that wait to be sent, in order; each chunk is read when it is needed."""
    at = first
    while True:
        rows = list(
            db.execute(
                "SELECT seq, url, path, kind, frames_high FROM items "
                "WHERE status = 'pending' AND submission_id IS NULL AND seq BETWEEN ? AND ? ORDER BY seq LIMIT ?",
                (at, last, chunk),
            )
        )
        if not rows:
            return
        for row in rows:
            yield Pending(*row)
        at = rows[-1][0] + 1
