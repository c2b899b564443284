"""The table of a question, made from a run's journal: a row for every item, source and frame, with values or a reason.

Every item of the manifest is there, also one that was never sent. Texts are read again each time, so the table always
says what the newest question of its name makes of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

import apsw
import pyarrow as pa

from lightmeter.ask.question import Ask
from lightmeter.ask.reading import read_answer
from lightmeter.facts.descriptions import descriptions_of
from lightmeter.facts.shapes import parse_answer
from lightmeter.journal.raw import unpack
from lightmeter.tables.answers import answers_schema, table_name
from lightmeter.tables.records import Records

__all__ = ["answer_records"]

_ROWS_AT_A_TIME: Final = 4096

_ITEMS: Final = """
SELECT i.item_id, i.url, o.status, o.reason, o.error, o.asset, o.submission_id, r.earlier_id, coalesce(a.raw, e.raw)
FROM items i JOIN items o ON o.item_id = coalesce(i.duplicate_of, i.item_id)
     LEFT JOIN answers a ON a.submission_id = o.submission_id
     LEFT JOIN reused r ON r.seq = o.seq LEFT JOIN earlier e ON e.earlier_id = r.earlier_id
WHERE coalesce((SELECT run FROM latest.answered WHERE item_id = i.item_id),
               (SELECT run FROM latest.stated WHERE item_id = i.item_id), ?1) = ?1
ORDER BY i.seq
"""
"""Duplicates with the answer of their original; of several runs, each item by the latest that answered it."""


class _Row(NamedTuple):
    """One row of the table, without the item's own columns."""

    frame: int | None = None
    source: str | None = None
    values: Mapping[str, Any] | None = None
    error: str | None = None
    raw: str | None = None


def answer_records(db: apsw.Connection, ask: Ask, run_id: str, run: int) -> Iterator[Records]:
    """The rows of the question's table that a run tells, in the order of its manifest.

    Args:
        db: The run's journal, with the scratch database of `telling.Latest` attached as `latest`.
        ask: The question.
        run_id: The run.
        run: Its place among the runs of the folder.
    """
    schema, rows = answers_schema(ask), _rows(db, ask, run)
    while some := list(islice(rows, _ROWS_AT_A_TIME)):
        yield _records(ask, schema, run_id, some)


def _records(ask: Ask, schema: pa.Schema, run_id: str, rows: list[tuple[str, str, _Row]]) -> Records:
    columns: dict[str, Any] = {
        "item_id": [item_id for item_id, _, _ in rows],
        "url": [url for _, url, _ in rows],
        "run_id": [run_id] * len(rows),
    }
    columns |= {name: [getattr(row, name) for _, _, row in rows] for name in ("frame", "source", "error", "raw")}
    for one in ask.properties:
        values = [None if row.values is None else row.values[one.name] for _, _, row in rows]
        columns[one.name] = pa.array(values, schema.field(one.name).type)
    return Records(table_name(ask), schema, columns, len(rows))


def _rows(db: apsw.Connection, ask: Ask, run: int) -> Iterator[tuple[str, str, _Row]]:
    last: tuple[Any, Mapping[str, Any]] = (None, {})  # rows of one batch stand together
    for item_id, url, status, reason, error, asset, *keys, packed in db.execute(_ITEMS, (run,)):
        if status != "ok" or asset is None or packed is None:
            yield item_id, url, _Row(error=_unanswered(status, reason, error))
            continue
        if keys != last[0]:
            last = (keys, parse_answer(unpack(packed)))
        for row in _answered(ask, last[1], asset):
            yield item_id, url, row


def _unanswered(status: str, reason: str | None, error: str | None) -> str:
    """Why an item has no answer: its status, and what is known beside it."""
    return ": ".join(word for word in (status, reason, error) if word)


def _answered(ask: Ask, answer: Mapping[str, Any], asset: int) -> Iterable[_Row]:
    found = descriptions_of(answer, asset)
    if not found:
        yield _Row(error=f"No description was answered.{_errors_of(answer)}")
    for one in found:
        values, error = read_answer(ask, one.text)
        yield _Row(one.frame, one.source, values, error, None if error is None else one.text)


def _errors_of(answer: Mapping[str, Any]) -> str:
    """What back ends said instead, where the answer is about one item alone."""
    results = answer.get("all")
    errors, assets = (results.get("errors"), results.get("assets")) if isinstance(results, dict) else (None, None)
    if not isinstance(errors, list) or not isinstance(assets, list) or len(assets) != 1:
        return ""
    return f" The service says: {'; '.join(map(str, errors))}" if errors else ""
