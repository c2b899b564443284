"""What a run's journal tells the tables: rows of `assets`, answers with the rows they answer, requests, findings.

Where a folder holds several runs, each row of a manifest is told once: its state by the latest run that has it, its
facts by the latest run that answered it. Which that is stands in a scratch database, so that memory stays flat.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import apsw

from lightmeter.clock import utc_from_timestamp
from lightmeter.journal.raw import unpack
from lightmeter.journal.store import journal_path
from lightmeter.pipeline.session import Header
from lightmeter.tables.flatten import AnswerContext, Flattener, ItemRef

__all__ = ["CREDIT_STEP", "Latest", "share_of", "tell"]

CREDIT_STEP: Final = 2**-20
"""Shares of credits are whole multiples of this (about a millionth): any sum of such doubles is exact."""

_NEWEST: Final = "coalesce((SELECT run FROM latest.{} WHERE item_id = i.item_id), ?1) = ?1"

_ASSETS: Final = f"""
SELECT i.item_id, i.url, i.status, i.reason, i.error, coalesce(i.kind, o.kind) AS kind,
       coalesce(i.name, o.name) AS name,
       coalesce(s.request_id, e.request_id) AS request_id, i.duplicate_of,
       coalesce(i.width, o.width) AS width, coalesce(i.height, o.height) AS height,
       coalesce(i.duration_s, o.duration_s) AS duration_s,
       coalesce(i.content_sha256, o.content_sha256) AS content_sha256,
       coalesce(s.answered_at, e.answered_at) AS answered_at, i.extra,
       iif(i.submission_id IS NULL, NULL, s.paid) AS paid,
       (SELECT count(*) FROM items p WHERE p.submission_id = i.submission_id) AS sharers,
       (SELECT count(*) FROM items p WHERE p.submission_id = i.submission_id AND p.seq < i.seq) AS place,
       (SELECT credits FROM latest.paid WHERE item_id = i.item_id) AS paid_in_all
FROM items i LEFT JOIN items o ON o.item_id = i.duplicate_of
     LEFT JOIN submissions s ON s.submission_id = coalesce(i.submission_id, o.submission_id)
     LEFT JOIN reused r ON r.seq = coalesce(o.seq, i.seq) LEFT JOIN earlier e ON e.earlier_id = r.earlier_id
WHERE {_NEWEST.format("stated")} ORDER BY i.seq
"""  # noqa: S608 (our own words)

# In the order of the manifest: answers come in any order, tables are the same again.
_ANSWERS: Final = """
SELECT f.request_id, a.raw, f.submission_id, NULL
FROM (SELECT s.submission_id, s.request_id, min(i.seq) AS first
      FROM submissions s LEFT JOIN items i USING (submission_id)
      WHERE s.state = 'settled' GROUP BY s.submission_id ORDER BY first, s.submission_id LIMIT -1) f
CROSS JOIN answers a ON a.submission_id = f.submission_id
"""

_EARLIER: Final = """
SELECT e.request_id, e.raw, NULL, f.earlier_id
FROM (SELECT earlier_id, min(seq) AS first FROM reused GROUP BY earlier_id ORDER BY first LIMIT -1) f
CROSS JOIN earlier e ON e.earlier_id = f.earlier_id
"""

_ROWS_OF: Final = f"""
WITH answered AS (
  SELECT item_id, asset FROM items WHERE submission_id = ?2
  UNION ALL SELECT item_id, asset FROM reused JOIN items USING (seq) WHERE earlier_id = ?3
)
SELECT i.item_id, i.url, iif({_NEWEST.format("answered")}, answered.asset, NULL)
FROM answered JOIN items i USING (item_id)
UNION ALL
SELECT i.item_id, i.url, iif({_NEWEST.format("answered")}, answered.asset, NULL)
FROM answered JOIN items i ON i.duplicate_of = answered.item_id
"""  # noqa: S608 (our own words)

_REQUESTS: Final = """
SELECT request_id, state, sent_at, answered_at, assets, paid AS credits_paid, remaining AS credits_remaining,
       http_status, attempts, polls
FROM submissions ORDER BY submission_id
"""

_FINDINGS: Final = f"""
SELECT i.item_id, i.url, f.name AS "check", f.severity, f.message, f.value, f.facts
FROM findings f JOIN items i USING (seq) WHERE {_NEWEST.format("stated")} ORDER BY f.seq, f.rowid
"""  # noqa: S608 (our own words)

_SCRATCH: Final = """
CREATE TABLE stated (item_id TEXT PRIMARY KEY, run INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE answered (item_id TEXT PRIMARY KEY, run INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE paid (item_id TEXT PRIMARY KEY, credits REAL NOT NULL) WITHOUT ROWID;
"""

_OVERLAP: Final = "SELECT 1 FROM j.items JOIN stated USING (item_id) LIMIT 1"

_TAKE_IN: Final = (
    "INSERT OR REPLACE INTO stated SELECT item_id, ? FROM j.items",
    """
INSERT OR REPLACE INTO answered SELECT i.item_id, ? FROM j.items i LEFT JOIN j.items o ON o.item_id = i.duplicate_of
WHERE coalesce(i.asset, o.asset) IS NOT NULL
""",
    """
INSERT INTO paid
SELECT item_id, share(s.paid, (SELECT count(*) FROM j.items p WHERE p.submission_id = i.submission_id),
                      (SELECT count(*) FROM j.items p WHERE p.submission_id = i.submission_id AND p.seq < i.seq))
FROM j.items i JOIN j.submissions s USING (submission_id) WHERE s.paid > 0
ON CONFLICT DO UPDATE SET credits = credits + excluded.credits
""",
)


def share_of(paid: int, sharers: int, place: int) -> float:
    """What one of the items of a request has cost, in credits: all shares add up to what was paid, exactly.

    Args:
        paid: Whole credits paid for the request.
        sharers: Its items.
        place: Of the item among them, from 0.
    """
    each, left = divmod(round(paid / CREDIT_STEP), sharers)
    return (each + (place < left)) * CREDIT_STEP


@dataclass(frozen=True, slots=True)
class Latest:
    """Which of several runs tells an item's state, and which its facts; kept in a file of its own.

    Attributes:
        path: The scratch database.
        overlaps: Whether the last run has an item that an older one has too.
    """

    path: Path
    overlaps: bool

    @classmethod
    def of(cls, runs: list[Path], path: Path) -> Latest:
        """Look through the journals of the folders `runs`, oldest first."""
        scratch = apsw.Connection(str(path))
        try:
            scratch.execute(_SCRATCH)
            share: Any = share_of
            scratch.create_scalar_function("share", share, 3, deterministic=True)
            overlaps = False
            for place, run in enumerate(runs):
                scratch.execute("ATTACH ? AS j", (str(journal_path(run)),))
                with scratch:
                    overlaps = scratch.execute(_OVERLAP).fetchone() is not None
                    for statement in _TAKE_IN:
                        scratch.execute(statement, (place,) if "?" in statement else None)
                scratch.execute("DETACH j")
        finally:
            scratch.close()
        return cls(path, overlaps)


def tell(flattener: Flattener, db: apsw.Connection, header: Header, run: int) -> Iterator[None]:
    """Hand everything that a run tells to the flattener, pausing after each step so that the caller may take it.

    Args:
        flattener: Gets the rows.
        db: The run's journal, with the scratch database of `Latest` attached as `latest`.
        header: The run's.
        run: Its place among the runs of the folder.
    """
    for row in _rows(db, _ASSETS, run):
        flattener.add_row("assets", _asset(row, header))
        yield
    options = header.options
    for statement in (_ANSWERS, _EARLIER):
        for request_id, packed, *whose in db.execute(statement):
            refs = [ItemRef(*row) for row in db.execute(_ROWS_OF, (run, *whose))]
            context = AnswerContext(header.run_id, request_id, options.role, options.language)
            flattener.add_answer(unpack(packed), refs, context)
            yield
    for row in _rows(db, _REQUESTS):
        moments = {name: _moment(row[name]) for name in ("sent_at", "answered_at")}
        flattener.add_row("requests", {**row, **moments, "run_id": header.run_id})
        yield
    for row in _rows(db, _FINDINGS, run):
        flattener.add_row("prechecks", {**row, "run_id": header.run_id})
        yield


def _rows(db: apsw.Connection, statement: str, *bound: int) -> Iterator[dict[str, Any]]:
    cursor = db.execute(statement, bound)
    names: list[str] | None = None
    for values in cursor:
        names = names or [column[0] for column in cursor.get_description()]
        yield dict(zip(names, values, strict=True))


def _asset(row: dict[str, Any], header: Header) -> dict[str, Any]:
    paid, paid_in_all = row["paid"], row["paid_in_all"]
    own = share_of(paid, row["sharers"], row["place"]) if paid else 0.0
    return {
        **row,
        "run_id": header.run_id,
        "credits": own if paid_in_all is None else paid_in_all,
        "features": list(header.options.features),
        "backends": list(header.options.backends),
        "answered_at": _moment(row["answered_at"]),
        "extra": json.loads(row["extra"]),
    }


def _moment(at: float | None) -> Any:
    return None if at is None else utc_from_timestamp(at)
