"""Answers to the user's question, held against its schema: which rows are asked about again, of whom, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lightmeter.ask.answer_parser import ParsedAnswer, parse_answer_text
from lightmeter.ask.question import MAX_ERROR_CHARS, Ask
from lightmeter.facts.descriptions import DescriptionEntry, read_descriptions
from lightmeter.facts.lenient_decode import decode_answer_lenient
from lightmeter.journal.answer_retries import RetryRow, first_answers
from lightmeter.journal.compression import decompress
from lightmeter.journal.items import AnswerRetry
from lightmeter.journal.store import open_read_only

__all__ = ["all_descriptions_valid", "parse_descriptions", "rows_with_invalid_answers"]


def parse_descriptions(ask: Ask, answer: Mapping[str, Any], asset: int) -> list[tuple[DescriptionEntry, ParsedAnswer]]:
    """Each description of one asset of an answer, and what it says to the question."""
    return [(one, parse_answer_text(ask, one.text)) for one in read_descriptions(answer, asset)]


def all_descriptions_valid(ask: Ask, answer: Mapping[str, Any], asset: int) -> bool:
    """Whether one asset of an answer has descriptions, and all of them are valid."""
    readings = parse_descriptions(ask, answer, asset)
    return bool(readings) and all(said.error is None for _, said in readings)


def rows_with_invalid_answers(out: Path, ask: Ask, backends: Sequence[str], first: int, last: int) -> list[RetryRow]:
    """Rows first ≤ seq ≤ last whose first answer is not valid, and that were not found to be so before.

    A row that was answered without any description is not among them: there is nothing wrong to tell a model of.

    Args:
        out: The folder of the run.
        ask: The question.
        backends: Who the run asks.
        first: The first row.
        last: The last row.
    """
    with open_read_only(out) as db:
        return list(_invalid(first_answers(db, first, last), ask, backends))


def _invalid(rows: Iterator[tuple[int, int, int, bytes]], ask: Ask, backends: Sequence[str]) -> Iterator[RetryRow]:
    known, answer = -1, dict[str, Any]()
    for seq, submission_id, asset, packed in rows:
        if submission_id != known:
            known, answer = submission_id, decode_answer_lenient(decompress(packed))
        wrong = [
            (one.source, said.error) for one, said in parse_descriptions(ask, answer, asset) if said.error is not None
        ]
        if wrong:
            error = "; ".join(dict.fromkeys(error for _, error in wrong))[:MAX_ERROR_CHARS]
            who = {(source or "").lower() for source, _ in wrong}
            yield RetryRow(seq, AnswerRetry(error, tuple(sorted(who)) if who <= {*backends} else ()))
