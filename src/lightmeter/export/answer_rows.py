"""The table of a question, made from a run's journal: a row for every item, frame and source, with values or a reason.

Every item of the manifest is there, also one that was never sent. Texts are read again each time, so the table always
says what the newest question of its name makes of them. A text that is not valid gives way to that of the second
answer, from the same source to the same frame.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

import pyarrow as pa

from lightmeter import sqlite
from lightmeter.ask.answer_parser import ParsedAnswer
from lightmeter.ask.question import Ask
from lightmeter.export.answer_check import parse_descriptions
from lightmeter.export.asset_matching import expected_asset_name, outcome_of
from lightmeter.facts.descriptions import DescriptionEntry
from lightmeter.facts.lenient_decode import decode_answer_lenient
from lightmeter.journal.compression import decompress
from lightmeter.journal.export_queries import question_rows
from lightmeter.journal.state import State
from lightmeter.tables.answer_schema import answers_schema
from lightmeter.tables.row_tables import ColumnValues, ConstantColumn, build_table

__all__ = ["answer_tables"]

_ROWS_AT_ONCE: Final = 4096

_NOT_SENT: Final = {
    "budget": "the budget does not reach for it",
    "key_budget": "the budget of the key does not reach for it",
    "no_credits": "the account has no credits",
    "at_risk": "it may cost more than --max-at-risk allows for one request",
    "no_bound": "it has no upper price",
    None: "the run has not come to it",
}


class _Second(NamedTuple):
    """What became of asking about an item again, as the journal has it."""

    wanted: bool
    reason: str | None
    state: str | None
    error: str | None
    packed: bytes | None
    url: str
    path: str | None


class _Row(NamedTuple):
    """One row of the table, without the item's own columns."""

    frame: int | None = None
    source: str | None = None
    values: Mapping[str, Any] | None = None
    error: str | None = None
    raw: str | None = None


def answer_tables(db: sqlite.Connection, ask: Ask, run_id: str, run: int) -> Iterator[pa.Table]:
    """Yield the rows of the question's table that come from one run, in the order of its manifest.

    Args:
        db: The run's journal, with the index of latest runs attached as `latest`.
        ask: The question.
        run_id: The run.
        run: Its position among the runs of the folder.
    """
    schema, rows = answers_schema(ask), _rows(db, ask, run)
    while chunk := list(islice(rows, _ROWS_AT_ONCE)):
        columns: dict[str, ColumnValues] = {
            "item_id": [item_id for item_id, _, _ in chunk],
            "url": [url for _, url, _ in chunk],
            "run_id": ConstantColumn(run_id),
        }
        columns |= {name: [getattr(row, name) for _, _, row in chunk] for name in ("frame", "source", "error", "raw")}
        for one in ask.properties:
            values = [None if row.values is None else row.values[one.name] for _, _, row in chunk]
            columns[one.name] = pa.array(values, schema.field(one.name).type)
        yield build_table(schema, columns, len(chunk))


def _rows(db: sqlite.Connection, ask: Ask, run: int) -> Iterator[tuple[str, str, _Row]]:
    last: tuple[Any, Mapping[str, Any]] = (None, {})  # rows of one batch stand together
    for item_id, url, status, reason, error, asset, submission_id, earlier_id, packed, *second in question_rows(
        db, run
    ):
        if status != "ok" or asset is None or packed is None:
            yield item_id, url, _Row(error=_unanswered(status, reason, error))
            continue
        if (submission_id, earlier_id) != last[0]:
            last = ((submission_id, earlier_id), decode_answer_lenient(decompress(packed)))
        for row in _answered(ask, last[1], asset, _Second(*second)):
            yield item_id, url, row


def _unanswered(status: str, reason: str | None, error: str | None) -> str:
    """Why an item has no answer: its status, and what is known beside it."""
    return ": ".join(word for word in (status, reason, error) if word)


def _answered(ask: Ask, answer: Mapping[str, Any], asset: int, second: _Second) -> Iterator[_Row]:
    first = parse_descriptions(ask, answer, asset)
    if not first:
        yield _Row(error=f"No description was answered.{_errors_of(answer)}")
    wrong = any(said.error is not None for _, said in first)
    better, became = _asked_again(ask, second) if wrong else ({}, "")
    for one, said in first:
        again = better.get((one.frame, one.source)) if said.error is not None else None
        if again:
            told, reading = again.pop(0)
            yield _row(told, reading, " Both answers are not valid.")
        else:
            yield _row(one, said, became)


def _row(one: DescriptionEntry, said: ParsedAnswer, more: str) -> _Row:
    if said.error is None:
        return _Row(one.frame, one.source, said.values)
    return _Row(one.frame, one.source, None, f"{said.error}{more}", one.text)


_Readings = dict[tuple[int | None, str | None], list[tuple[DescriptionEntry, ParsedAnswer]]]


def _asked_again(ask: Ask, second: _Second) -> tuple[_Readings, str]:
    """What the second answer says, by frame and source, and a sentence for what it does not say."""
    if not second.wanted or second.state is None:
        reason = _NOT_SENT.get(second.reason, second.reason)
        return {}, f" It was not asked again: {reason}." if second.wanted else " It was not asked again."
    if second.state == State.VOIDED:
        return {}, f" It was asked again, and refused: {second.error}"
    if second.state != State.SETTLED or second.packed is None:
        return {}, f" It was asked again, and no answer is there ({second.state})."
    raw = decompress(second.packed)
    (placed,) = outcome_of(raw, [(0, expected_asset_name(second.url, second.path))], 0).rows
    if placed.asset is None:
        return {}, f" It was asked again, and not answered: {placed.error}"
    grouped: _Readings = defaultdict(list)
    for one, said in parse_descriptions(ask, decode_answer_lenient(raw), placed.asset):
        grouped[one.frame, one.source].append((one, said))
    return dict(grouped), " It was asked again, and the second answer does not describe it."


def _errors_of(answer: Mapping[str, Any]) -> str:
    """What back ends said instead, where the answer is about one item alone."""
    results = answer.get("all")
    errors, assets = (results.get("errors"), results.get("assets")) if isinstance(results, dict) else (None, None)
    if not isinstance(errors, list) or not isinstance(assets, list) or len(assets) != 1:
        return ""
    return f" The service says: {'; '.join(map(str, errors))}" if errors else ""
