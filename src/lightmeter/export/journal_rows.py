"""What a run's journal tells the tables: rows of `assets`, answers with the rows they answer, requests, findings.

Where a folder holds several runs, each row of a manifest is told once: its state by the latest run that has it, its
facts by the latest run that answered it. Which that is stands in a scratch database, so that memory stays flat.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import apsw

from lightmeter.facts.flatten import AnswerContext, ItemRef
from lightmeter.journal.compression import decompress
from lightmeter.journal.files import journal_path
from lightmeter.journal.header import RunHeader
from lightmeter.tables.records import ColumnValues, ConstantColumn, DeferredRows, DeferredRowsBuilder, to_timestamps
from lightmeter.tables.writer import Loader

__all__ = ["CREDIT_STEP", "LatestRunIndex", "TableSinks", "credit_share", "write_journal_rows"]

CREDIT_STEP: Final = 2**-20
"""Shares of credits are whole multiples of this (about a millionth): any sum of such doubles is exact."""

_ROWS_AT_A_TIME: Final = 8192
_ANSWERS_AT_A_TIME: Final = 256
_BYTES_AT_A_TIME: Final = 2**20

_Columns: TypeAlias = "dict[str, tuple[Any, ...]]"

_NEWEST: Final = "coalesce((SELECT run FROM latest.{} WHERE item_id = i.item_id), ?1) = ?1"

_ASSETS: Final = f"""
SELECT i.item_id, i.url, i.status, i.reason, i.error, coalesce(i.kind, o.kind) AS kind,
       coalesce(i.name, o.name) AS name,
       coalesce(s.request_id, e.request_id) AS request_id, i.duplicate_of,
       coalesce(i.width, o.width) AS width, coalesce(i.height, o.height) AS height,
       coalesce(i.duration_s, o.duration_s) AS duration_s,
       coalesce(i.content_sha256, o.content_sha256) AS content_sha256, z.content_bytes,
       coalesce(s.answered_at, e.answered_at) AS answered_at, i.extra,
       iif(i.submission_id IS NULL, NULL, s.paid) AS paid,
       (SELECT count(*) FROM items p WHERE p.submission_id = i.submission_id) AS sharers,
       (SELECT count(*) FROM items p WHERE p.submission_id = i.submission_id AND p.seq < i.seq) AS place,
       (SELECT paid FROM answer_retries g JOIN submissions USING (submission_id) WHERE g.seq = i.seq) AS paid_again,
       (SELECT credits FROM latest.paid WHERE item_id = i.item_id) AS paid_in_all
FROM items i LEFT JOIN items o ON o.item_id = i.duplicate_of
     LEFT JOIN submissions s ON s.submission_id = coalesce(i.submission_id, o.submission_id)
     LEFT JOIN reused r ON r.seq = coalesce(o.seq, i.seq) LEFT JOIN earlier e ON e.earlier_id = r.earlier_id
     LEFT JOIN (SELECT seq AS of, max(json_extract(facts, '$.size_bytes')) AS content_bytes FROM findings
                WHERE name IN ('reach', 'decode') AND severity = 'info' GROUP BY seq) z ON z.of = i.seq
WHERE {_NEWEST.format("stated")} ORDER BY i.seq
"""  # noqa: S608 (our own words)

# In the order of the manifest: answers come in any order, tables are the same again.
_ANSWERS: Final = """
SELECT f.submission_id, f.request_id, a.raw
FROM (SELECT s.submission_id, s.request_id, min(i.seq) AS first
      FROM submissions s LEFT JOIN items i USING (submission_id)
      WHERE s.state IN ('settled', 'charge_unknown')
      GROUP BY s.submission_id ORDER BY first, s.submission_id LIMIT -1) f
CROSS JOIN answers a ON a.submission_id = f.submission_id
"""

_EARLIER: Final = """
SELECT f.earlier_id, e.request_id, e.raw
FROM (SELECT earlier_id, min(seq) AS first FROM reused GROUP BY earlier_id ORDER BY first LIMIT -1) f
CROSS JOIN earlier e ON e.earlier_id = f.earlier_id
"""

# The rows that many answers are about, duplicates after originals: one statement for each answer would take longer
# than all else that is done for it.
_ROWS_OF: Final = """
SELECT w.value, i.item_id, i.url, iif({newest}, o.asset, NULL)
FROM json_each(?2) w CROSS JOIN {answered} CROSS JOIN items i ON i.item_id = o.item_id
UNION ALL
SELECT w.value, i.item_id, i.url, iif({newest}, o.asset, NULL)
FROM json_each(?2) w CROSS JOIN {answered} CROSS JOIN items i ON i.duplicate_of = o.item_id
"""
_SOURCES: Final = tuple(
    (statement, _ROWS_OF.format(newest=_NEWEST.format("answered"), answered=answered))
    for statement, answered in (
        (_ANSWERS, "items o ON o.submission_id = w.value"),
        (_EARLIER, "reused r ON r.earlier_id = w.value CROSS JOIN items o ON o.seq = r.seq"),
    )
)

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
    """
INSERT INTO paid
SELECT item_id, s.paid FROM j.answer_retries g JOIN j.items i USING (seq)
     JOIN j.submissions s ON s.submission_id = g.submission_id WHERE s.paid > 0
ON CONFLICT DO UPDATE SET credits = credits + excluded.credits
""",
)


def credit_share(paid: int, sharers: int, place: int) -> float:
    """What one of the items of a request has cost, in credits: all shares add up to what was paid, exactly.

    Args:
        paid: Whole credits paid for the request.
        sharers: Its items.
        place: Of the item among them, from 0.
    """
    each, left = divmod(round(paid / CREDIT_STEP), sharers)
    return (each + (place < left)) * CREDIT_STEP


@dataclass(frozen=True, slots=True)
class LatestRunIndex:
    """Which of several runs tells an item's state, and which its facts; kept in a file of its own.

    Attributes:
        path: The scratch database.
        overlaps: Whether the last run has an item that an older one has too.
    """

    path: Path
    overlaps: bool

    @classmethod
    def of(cls, runs: list[Path], path: Path) -> LatestRunIndex:
        """Look through the journals of the folders `runs`, oldest first."""
        scratch = apsw.Connection(str(path))
        try:
            scratch.execute(_SCRATCH)
            share: Any = credit_share
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


class TableSinks(NamedTuple):
    """What a journal tells goes to these: answers, and rows that are rows already."""

    loader: Loader
    recorder: DeferredRowsBuilder


def write_journal_rows(into: TableSinks, db: apsw.Connection, header: RunHeader, run: int) -> None:
    """Have everything written that a run tells.

    Args:
        into: Who makes rows of it, and who writes them.
        db: The run's journal, with the scratch database of `LatestRunIndex` attached as `latest`.
        header: The run's.
        run: Its place among the runs of the folder.
    """
    _tell_rows(into, db.execute(_ASSETS, (run,)), partial(_assets, into.recorder, header))
    options = header.options
    for statement, rows_of in _SOURCES:
        for some in _some_answers(db.execute(statement)):
            refs = defaultdict(list)
            for key, *row in db.execute(rows_of, (run, json.dumps([key for key, _, _ in some]))):
                refs[key].append(ItemRef(*row))
            for key, request_id, raw in some:
                context = AnswerContext(header.run_id, request_id, options.role, options.language)
                into.loader.add_answer(raw, refs[key], context)
    _tell_rows(into, db.execute(_REQUESTS), partial(_requests, into.recorder, header))
    _tell_rows(into, db.execute(_FINDINGS, (run,)), partial(_findings, into.recorder, header))


def _some_answers(packed: Iterable[tuple[Any, ...]]) -> Iterator[list[tuple[int, str | None, bytes]]]:
    """Answers, unpacked, as many at a time as memory allows."""
    some, size_bytes = [], 0
    for key, request_id, raw in packed:
        some.append((key, request_id, decompress(raw)))
        size_bytes += len(some[-1][2])
        if len(some) == _ANSWERS_AT_A_TIME or size_bytes >= _BYTES_AT_A_TIME:
            yield some
            some, size_bytes = [], 0
    if some:
        yield some


def _tell_rows(into: TableSinks, cursor: apsw.Cursor, made: Callable[[_Columns, int], DeferredRows]) -> None:
    """What a statement selects, as rows of one table, many at a time."""
    first = list(islice(cursor, 1))
    names = [column[0] for column in cursor.get_description()] if first else []
    told = chain(first, cursor)
    while rows := list(islice(told, _ROWS_AT_A_TIME)):
        into.loader.put(made(dict(zip(names, zip(*rows, strict=True), strict=True)), len(rows)))


_PAID: Final = ("paid", "sharers", "place", "paid_again", "paid_in_all")


def _assets(recorder: DeferredRowsBuilder, header: RunHeader, told: _Columns, count: int) -> DeferredRows:
    columns: dict[str, ColumnValues] = {
        **told,
        "run_id": ConstantColumn(header.run_id),
        "credits": list(map(_credits, *(told[name] for name in _PAID))),
        "features": ConstantColumn(list(header.options.features)),
        "backends": ConstantColumn(list(header.options.backends)),
        "answered_at": to_timestamps(told["answered_at"]),
    }
    return recorder.records("assets", columns, count)


def _credits(paid: int | None, sharers: int, place: int, again: int | None, paid_in_all: float | None) -> float:
    """An item's own share with what asking about it again cost, or what all runs paid for it."""
    if paid_in_all is not None:
        return paid_in_all
    return (credit_share(paid, sharers, place) if paid else 0.0) + (again or 0)


def _requests(recorder: DeferredRowsBuilder, header: RunHeader, told: _Columns, count: int) -> DeferredRows:
    at = {name: to_timestamps(told[name]) for name in ("sent_at", "answered_at")}
    return recorder.records("requests", {**told, **at, "run_id": ConstantColumn(header.run_id)}, count)


def _findings(recorder: DeferredRowsBuilder, header: RunHeader, told: _Columns, count: int) -> DeferredRows:
    return recorder.records("prechecks", {**told, "run_id": ConstantColumn(header.run_id)}, count)
