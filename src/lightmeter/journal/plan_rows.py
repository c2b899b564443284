"""Rows as a plan leaves them: written once, duplicates found on the way; priced anew, and read back for a plan file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lightmeter import sqlite
from lightmeter.media.sampling import WHOLE_SECONDS_SQL

__all__ = [
    "CachedAnswer",
    "CachedRow",
    "PlannedFinding",
    "PlannedRow",
    "add_rows",
    "clear_cached_rows",
    "planned_rows",
    "restore_rows",
    "reuse",
    "set_frames",
]


@dataclass(frozen=True, slots=True)
class PlannedFinding:
    """One finding of a pre-check, ready to be stored; `facts` is JSON."""

    name: str
    severity: str
    message: str
    value: float | None
    facts: str


@dataclass(frozen=True, slots=True)
class CachedAnswer:
    """An answer of an earlier run: the SHA-256 of its bytes, its own facts, and the bytes, packed."""

    sha256: str
    request_id: str | None
    answered_at: float
    raw: bytes


@dataclass(frozen=True, slots=True)
class CachedRow:
    """A row that an earlier answer answers: where its asset is in it, and what it is called there."""

    seq: int
    asset: int
    name: str | None
    answer: CachedAnswer


@dataclass(frozen=True, slots=True)
class PlannedRow:
    """A manifest row as the plan leaves it: to be sent (`pending`), or not, with a reason.

    `frames_low` to `frames_high` (None: no bound) pictures will be charged for it. `extra` is JSON. `identity` is None
    for rows that cannot be an asset. `duplicate_of` is found by the journal, unless the row comes from a plan file.
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
    duplicate_of: str | None = None


_INSERT: Final = """
INSERT INTO items (seq, item_id, url, path, identity, kind, extra, status, reason, error, duplicate_of,
                   frames_low, frames_high, width, height, duration_s, content_sha256)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""

_INSERT_FINDING: Final = "INSERT INTO findings VALUES (?, ?, ?, ?, ?, ?)"

_KNOWN: Final = """
SELECT EXISTS (SELECT 1 FROM items WHERE item_id = ?1),
       (SELECT item_id FROM items WHERE identity = ?2 AND frames_low > 0 LIMIT 1),
       (SELECT item_id FROM items WHERE content_sha256 = ?3 AND frames_low > 0 LIMIT 1)
"""
"""Whether an id is taken, and which row is the same asset. That is one that is charged for: rows of a dead URL, however
many, are none, and are in no index that is looked through."""


def add_rows(rows: Sequence[PlannedRow]) -> Callable[[sqlite.Connection], None]:
    """Write rows; the journal knows all earlier ones, so it finds duplicates and repeated ids."""

    def change(db: sqlite.Connection) -> None:
        for row in rows:
            _add(db, row)

    return change


def _add(db: sqlite.Connection, row: PlannedRow) -> None:
    status, reason, error, original = row.status, row.reason, row.error, None
    item_id = row.item_id
    ((repeated, same_place, same_content),) = db.execute(_KNOWN, (item_id, row.identity, row.content_sha256))
    if repeated:
        item_id = _free_id(db, row)
        if row.own_id and status == "pending":
            status, reason, error = "skipped", "id_repeated", f"The id {row.item_id!r} stands in an earlier row."
    if status == "pending":
        original = same_place or same_content
        if original is not None:
            status, reason = "duplicate", "same_asset"
    frames = (row.frames_low, row.frames_high) if status == "pending" else (0, 0)
    _insert(db, row, (item_id, status, reason, error, original), frames)


def _free_id(db: sqlite.Connection, row: PlannedRow) -> str:
    """An id for a row whose own is taken: with its number, and once more where somebody's id looks like that."""
    item_id = row.item_id
    while True:
        item_id = f"{item_id}#{row.seq}"
        if not db.execute("SELECT 1 FROM items WHERE item_id = ?", (item_id,)).fetchone():
            return item_id


def _insert(
    db: sqlite.Connection, row: PlannedRow, stands: tuple[str, str, str | None, str | None, str | None], frames: Any
) -> None:
    item_id, status, reason, error, original = stands
    names = (row.seq, item_id, row.url, row.path, row.identity, row.kind, row.extra)
    facts = (row.width, row.height, row.duration_s, row.content_sha256)
    db.execute(_INSERT, (*names, status, reason, error, original, *frames, *facts))
    for found in row.findings:
        values = (row.seq, found.name, found.severity, found.message, found.value, found.facts)
        db.execute(_INSERT_FINDING, values)


def restore_rows(rows: Sequence[PlannedRow]) -> Callable[[sqlite.Connection], None]:
    """Write rows exactly as they are, with ids and duplicates as an earlier plan found them."""

    def change(db: sqlite.Connection) -> None:
        for row in rows:
            stands = (row.item_id, row.status, row.reason, row.error, row.duplicate_of)
            _insert(db, row, stands, (row.frames_low, row.frames_high))

    return change


_ROWS: Final = """
SELECT seq, item_id, url, path, identity, kind, extra, 0, status, reason, error, frames_low, frames_high,
       width, height, duration_s, content_sha256, duplicate_of FROM items ORDER BY seq
"""

_FINDINGS: Final = "SELECT seq, name, severity, message, value, facts FROM findings ORDER BY seq, rowid"

_REUSED: Final = """
SELECT r.seq, i.asset, i.name, e.sha256 FROM reused r JOIN items i USING (seq) JOIN earlier e USING (earlier_id)
ORDER BY r.seq
"""


def planned_rows(db: sqlite.Connection) -> Iterator[tuple[PlannedRow, tuple[int, str | None, str] | None]]:
    """All rows in order, each with the (asset, name, sha256) of the earlier answer that it is answered with, if any."""
    findings: Iterator[Any] = iter(db.execute(_FINDINGS))
    reused: Iterator[Any] = iter(db.execute(_REUSED))
    found, answered = next(findings, None), next(reused, None)
    values: Any
    for values in db.execute(_ROWS):
        seq, facts, answer = values[0], [], None
        while found is not None and found[0] == seq:
            facts.append(PlannedFinding(*found[1:]))
            found = next(findings, None)
        if answered is not None and answered[0] == seq:
            answer, answered = answered[1:], next(reused, None)
        yield PlannedRow(*(*values[:-1], tuple(facts), values[-1])), answer


def set_frames(groups: Sequence[tuple[str | None, int | None, int, int | None]]) -> Callable[[sqlite.Connection], None]:
    """Give rows that are to be paid for, or are answered by earlier answers, new counts of pictures.

    Args:
        groups: (kind, length in seconds as `WHOLE_SECONDS_SQL` rounds it, at least, at most) for each there is.
    """

    def change(db: sqlite.Connection) -> None:
        db.execute("CREATE TEMP TABLE lengths (kind TEXT, seconds INTEGER, low INTEGER, high INTEGER)")
        try:
            db.executemany("INSERT INTO lengths VALUES (?, ?, ?, ?)", groups)
            db.execute(
                "UPDATE items SET frames_low = low, frames_high = high FROM lengths "  # noqa: S608 (a constant expression)
                f"WHERE items.kind IS lengths.kind AND {WHOLE_SECONDS_SQL} IS lengths.seconds "
                "AND status IN ('pending', 'over_budget', 'ok')"
            )
        finally:
            db.execute("DROP TABLE lengths")

    return change


def reuse(found: Sequence[CachedRow]) -> Callable[[sqlite.Connection], None]:
    """Answer rows that wait with earlier answers: they are ok, and cost nothing."""

    def change(db: sqlite.Connection) -> None:
        for one in found:
            answer = one.answer
            values = (answer.sha256, answer.request_id, answer.answered_at, answer.raw)
            db.execute(
                "INSERT INTO earlier (sha256, request_id, answered_at, raw) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
                values,
            )
            db.execute(
                "INSERT INTO reused SELECT ?, earlier_id FROM earlier WHERE sha256 = ?", (one.seq, answer.sha256)
            )
            db.execute(
                "UPDATE items SET status = 'ok', reason = 'cached', asset = ?, name = ? WHERE seq = ?",
                (one.asset, one.name, one.seq),
            )

    return change


def clear_cached_rows(db: sqlite.Connection) -> None:
    """Let the rows that earlier answers answered wait again: something else is asked now."""
    db.execute(
        "UPDATE items SET status = 'pending', reason = NULL, asset = NULL, name = NULL "
        "WHERE seq IN (SELECT seq FROM reused)"
    )
    db.execute("DELETE FROM reused")
    db.execute("DELETE FROM earlier")
