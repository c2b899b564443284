"""Reads the rows of the table with the answers to the user's question (`--ask`) from a run's journal.

There is a row for every item, frame and back end, with the values of the answer or an error. An item that was never
sent has a row too. Each export parses the texts of the answers again, by the JSON schema of the newest question for
this table. If a text is invalid and the item was sent a second time, the text is replaced by the second text of the
same back end about the same frame.
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
from lightmeter.export.ask_answer_check import parse_descriptions
from lightmeter.export.asset_matching import expected_asset_name, outcome_of
from lightmeter.facts.descriptions import DescriptionEntry
from lightmeter.facts.lenient_decode import decode_answer_lenient
from lightmeter.journal.compression import decompress
from lightmeter.journal.queries.export import question_rows
from lightmeter.journal.submission_states import State
from lightmeter.tables.arrow.answer_schema import answers_schema
from lightmeter.tables.arrow.row_tables import ColumnValues, ConstantColumn, build_table

_ROWS_AT_ONCE: Final = 4096

_NOT_SENT: Final = {
    "budget": "the budget does not reach for it",
    "key_budget": "the budget of the key does not reach for it",
    "no_credits": "the account has no credits",
    "at_risk": "it may cost more than --max-at-risk allows for one request",
    "no_bound": "it has no upper price",
    None: "the run has not come to it",
}


class _Retry(NamedTuple):
    """What the journal says about the second request for an item (manifest row), which repeats the user's question.

    Attributes:
        wanted: Whether a second request was wanted, because the first answer was invalid.
        reason: Why no second request was sent; None if no reason is stored.
        state: State of the second request; None if there is none.
        error: Error of the second request; None if there is none.
        packed: Compressed answer to the second request; None if there is none.
        url: URL of the item.
        path: Local path of the item; None if it has none.
    """

    wanted: bool
    reason: str | None
    state: str | None
    error: str | None
    packed: bytes | None
    url: str
    path: str | None


class _Row(NamedTuple):
    """A row of the table of answers to the user's question (`--ask`), without the columns that identify the item.

    Attributes:
        frame: Number of a video's frame, from 0; None for an image or a whole video.
        source: The back end that answered; None if unknown.
        values: Property → value; None if there is no valid answer.
        error: Why there is no valid answer; None if there is one.
        raw: The invalid text of an answer; None without an invalid text.
    """

    frame: int | None = None
    source: str | None = None
    values: Mapping[str, Any] | None = None
    error: str | None = None
    raw: str | None = None


def answer_tables(db: sqlite.Connection, ask: Ask, run_id: str, run: int) -> Iterator[pa.Table]:
    """Yield Arrow tables with the answers to the user's question about the items of one run, in manifest order.

    Args:
        db: The run's journal. A database with the latest run of each item must be attached to it as `latest`.
        ask: The user's question (`--ask`).
        run_id: Id of the run.
        run: Position of the run among the runs of the output folder, oldest first, from 0.
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
    last: tuple[Any, Mapping[str, Any]] = (None, {})  # rows of one request are consecutive
    for item_id, url, frame, status, reason, error, asset, *answers in question_rows(db, run):
        submission_id, earlier_id, packed, *retry = answers
        if status != "ok" or asset is None or packed is None:
            yield item_id, url, _Row(frame, error=": ".join(word for word in (status, reason, error) if word))
            continue
        if (submission_id, earlier_id) != last[0]:
            last = ((submission_id, earlier_id), decode_answer_lenient(decompress(packed)))
        for row in _answer_rows(ask, last[1], asset, _Retry(*retry)):
            yield item_id, url, row if frame is None else row._replace(frame=frame)


def _answer_rows(ask: Ask, answer: Mapping[str, Any], asset: int, retry: _Retry) -> Iterator[_Row]:
    first = parse_descriptions(ask, answer, asset)
    if not first:
        yield _Row(error=f"No description was answered.{_service_errors(answer)}")
    is_invalid = any(parsed.error is not None for _, parsed in first)
    second, retry_note = _parse_second_answer(ask, retry) if is_invalid else ({}, "")
    for entry, parsed in first:
        replacements = second.get((entry.frame, entry.source)) if parsed.error is not None else None
        if replacements:
            yield _row(*replacements.pop(0), " Both answers are not valid.")
        else:
            yield _row(entry, parsed, retry_note)


def _row(entry: DescriptionEntry, parsed: ParsedAnswer, error_note: str) -> _Row:
    if parsed.error is None:
        return _Row(entry.frame, entry.source, parsed.values)
    return _Row(entry.frame, entry.source, None, f"{parsed.error}{error_note}", entry.text)


_ParsedByFrameAndSource = dict[tuple[int | None, str | None], list[tuple[DescriptionEntry, ParsedAnswer]]]


def _parse_second_answer(ask: Ask, retry: _Retry) -> tuple[_ParsedByFrameAndSource, str]:
    """Parse the stored answer to the second request for an item, which repeated the user's question.

    Args:
        ask: The user's question (`--ask`).
        retry: What the journal says about the second request, or why there was none.

    Returns:
        (found, sentence). `found` maps (frame, back end) to the descriptions in the second answer, each with its values
        or its error; it is empty without a second answer. `sentence` says what became of the second request, for the
        error of each invalid text that `found` does not replace.
    """
    if not retry.wanted or retry.state is None:
        reason = _NOT_SENT.get(retry.reason, retry.reason)
        return {}, f" It was not asked again: {reason}." if retry.wanted else " It was not asked again."
    if retry.state == State.VOIDED:
        return {}, f" It was asked again, and refused: {retry.error}"
    if retry.state != State.SETTLED or retry.packed is None:
        return {}, f" It was asked again, and no answer is there ({retry.state})."
    raw = decompress(retry.packed)
    (placed,) = outcome_of(raw, [(0, expected_asset_name(retry.url, retry.path))], 0).rows
    if placed.asset is None:
        return {}, f" It was asked again, and not answered: {placed.error}"
    grouped: _ParsedByFrameAndSource = defaultdict(list)
    for entry, parsed in parse_descriptions(ask, decode_answer_lenient(raw), placed.asset):
        grouped[entry.frame, entry.source].append((entry, parsed))
    return dict(grouped), " It was asked again, and the second answer does not describe it."


def _service_errors(answer: Mapping[str, Any]) -> str:
    """Return a sentence with the errors in an answer about one image or video.

    The sentence is empty if the answer has no errors, or is not about exactly one image or video.
    """
    results = answer.get("all")
    errors, assets = (results.get("errors"), results.get("assets")) if isinstance(results, dict) else (None, None)
    if not isinstance(errors, list) or not isinstance(assets, list) or len(assets) != 1:
        return ""
    return f" The service says: {'; '.join(map(str, errors))}" if errors else ""
