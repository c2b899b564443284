"""Answers to the user's question, held against its schema: which rows are asked about again, of whom, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lightmeter.ask.question import MOST_ERROR_CHARS, Ask
from lightmeter.ask.answer_parser import Reading, read_answer
from lightmeter.facts.descriptions import Description, descriptions_of
from lightmeter.facts.lenient_decode import parse_answer
from lightmeter.journal.answer_retries import RetryRow, first_answers
from lightmeter.journal.compression import unpack
from lightmeter.journal.items import Retry
from lightmeter.journal.store import reading

__all__ = ["all_valid", "invalid_rows", "readings_of"]


def readings_of(ask: Ask, answer: Mapping[str, Any], asset: int) -> list[tuple[Description, Reading]]:
    """Each description of one asset of an answer, and what it says to the question."""
    return [(one, read_answer(ask, one.text)) for one in descriptions_of(answer, asset)]


def all_valid(ask: Ask, answer: Mapping[str, Any], asset: int) -> bool:
    """Whether one asset of an answer has descriptions, and all of them are valid."""
    readings = readings_of(ask, answer, asset)
    return bool(readings) and all(said.error is None for _, said in readings)


def invalid_rows(out: Path, ask: Ask, backends: Sequence[str], first: int, last: int) -> list[RetryRow]:
    """Rows first ≤ seq ≤ last whose first answer is not valid, and that were not found to be so before.

    A row that was answered without any description is not among them: there is nothing wrong to tell a model of.

    Args:
        out: The folder of the run.
        ask: The question.
        backends: Who the run asks.
        first: The first row.
        last: The last row.
    """
    with reading(out) as db:
        return list(_invalid(first_answers(db, first, last), ask, backends))


def _invalid(rows: Iterator[tuple[int, int, int, bytes]], ask: Ask, backends: Sequence[str]) -> Iterator[RetryRow]:
    known, answer = -1, dict[str, Any]()
    for seq, submission_id, asset, packed in rows:
        if submission_id != known:
            known, answer = submission_id, parse_answer(unpack(packed))
        wrong = [(one.source, said.error) for one, said in readings_of(ask, answer, asset) if said.error is not None]
        if wrong:
            error = "; ".join(dict.fromkeys(error for _, error in wrong))[:MOST_ERROR_CHARS]
            who = {(source or "").lower() for source, _ in wrong}
            yield RetryRow(seq, Retry(error, tuple(sorted(who)) if who <= {*backends} else ()))
