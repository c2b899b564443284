"""Checks answers against the JSON schema of the user's question (`--ask`), to find rows that need a second request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lightmeter.ask.answer_parser import ParsedAnswer, parse_answer_text
from lightmeter.ask.question import MAX_ERROR_CHARS, Ask
from lightmeter.facts.descriptions import DescriptionEntry, read_descriptions
from lightmeter.facts.lenient_decode import decode_answer_lenient
from lightmeter.journal.compression import decompress
from lightmeter.journal.queries.answer_retries import RetryRow, first_answers
from lightmeter.journal.queries.pending_rows import AnswerRetry
from lightmeter.journal.store import open_read_only


def parse_descriptions(ask: Ask, answer: Mapping[str, Any], asset: int) -> list[tuple[DescriptionEntry, ParsedAnswer]]:
    """Return the descriptions of an image or video, each with the values parsed from its text, or an error.

    Args:
        ask: The user's question (`--ask`). A back end answers it in a description, whose text is JSON.
        answer: The whole answer of the service, a JSON object.
        asset: Position of the image or video in `all.assets` of the answer.
    """
    return [(one, parse_answer_text(ask, one.text)) for one in read_descriptions(answer, asset)]


def all_descriptions_valid(ask: Ask, answer: Mapping[str, Any], asset: int) -> bool:
    """Whether an image or video has descriptions, and all of them are valid answers to the user's question.

    Args:
        ask: The user's question (`--ask`).
        answer: The whole answer of the service, a JSON object.
        asset: Position of the image or video in `all.assets` of the answer.
    """
    pairs = parse_descriptions(ask, answer, asset)
    return bool(pairs) and all(parsed.error is None for _, parsed in pairs)


def rows_with_invalid_answers(out: Path, ask: Ask, backends: Sequence[str], first: int, last: int) -> list[RetryRow]:
    """Return the manifest rows to send a second time, because their answer does not fit the user's question.

    Rows that were already sent a second time are left out. Rows whose answer has no text at all are left out too,
    because a second request reports the error in the text to the model.

    Args:
        out: The folder of the run.
        ask: The user's question (`--ask`).
        backends: Names of the back ends of the run.
        first: Place, in the order of sending, of the first row to check, from 0.
        last: Place, in the order of sending, of the last row to check.
    """
    with open_read_only(out) as db:
        return list(_retry_rows(first_answers(db, first, last), ask, backends))


def _retry_rows(rows: Iterator[tuple[int, int, int, bytes]], ask: Ask, backends: Sequence[str]) -> Iterator[RetryRow]:
    decoded_id, answer = -1, dict[str, Any]()
    for seq, submission_id, asset, packed in rows:
        if submission_id != decoded_id:
            decoded_id, answer = submission_id, decode_answer_lenient(decompress(packed))
        errors = [
            (entry.source, parsed.error)
            for entry, parsed in parse_descriptions(ask, answer, asset)
            if parsed.error is not None
        ]
        if errors:
            message = "; ".join(dict.fromkeys(error for _, error in errors))[:MAX_ERROR_CHARS]
            sources = {(source or "").lower() for source, _ in errors}
            yield RetryRow(seq, AnswerRetry(message, tuple(sorted(sources)) if sources <= {*backends} else ()))
