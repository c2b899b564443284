"""What was answered to a question: the object in the text, checked against the schema, or what is wrong. Pure.

Models put objects into code fences, and sentences around them: both are tolerated. What is no JSON to the letter is
not: a trailing comma or a comment is an error that the model is told of.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from lightmeter.ask.json_schema import ListOf, ObjectOf, Property, Scalar, ValueType
from lightmeter.ask.question import MAX_ERROR_CHARS, Ask

__all__ = ["ParsedAnswer", "parse_answer_text"]

_MAX_OBJECTS: Final = 64
"""Objects in a text that are looked at."""

_BEGINS: Final = re.compile(r"\{(?=\s*[\"'}])")

_MAX_ERRORS: Final = 3
_MAX_MESSAGE_CHARS: Final = 150
_LONG: Final = 2**63


class ParsedAnswer(NamedTuple):
    """What one text says.

    Attributes:
        values: By property, in the types of the columns; None where there is an error.
        error: What is wrong, as a sentence; None where nothing is.
    """

    values: dict[str, Any] | None
    error: str | None


def parse_answer_text(ask: Ask, text: object) -> ParsedAnswer:
    """Read one answer. Never raises.

    Where a text holds several objects, the first that validates is taken.
    """
    if not isinstance(text, str) or not text.strip():
        return ParsedAnswer(None, "The answer is empty.")
    first: ParsedAnswer | None = None
    for found in _objects_in(text):
        reading = ParsedAnswer(None, found) if isinstance(found, str) else _checked(ask, found)
        if reading.error is None:
            return reading
        first = first or reading
    return first or ParsedAnswer(None, "The answer holds no JSON object.")


def _objects_in(text: str) -> Iterator[dict[str, Any] | str]:
    """The objects in a text, in order; the last is what is wrong with one that cannot be read.

    Nothing is looked for inside an object that is broken: a part of an answer is no answer. A brace before a word
    belongs to a sentence, not to an object.
    """
    at = 0
    for _ in range(_MAX_OBJECTS):
        begins = _BEGINS.search(text, at)
        if begins is None:
            return
        try:
            value, at = _DECODER.raw_decode(text, begins.start())
        except (ValueError, RecursionError) as error:
            yield f"It is no JSON: {error}."
            return
        yield value


def _refused(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


_DECODER: Final = json.JSONDecoder(parse_constant=_refused)


def _checked(ask: Ask, value: dict[str, Any]) -> ParsedAnswer:
    try:
        if ask.validator.is_valid(value):
            return ParsedAnswer(_properties(ask.properties, value, ""), None)
        errors = [(_place(error.instance_path), error.message) for error in ask.validator.iter_errors(value)]
    except (ValueError, RecursionError) as error:  # too large a number, half a surrogate pair, too deep a nesting
        return ParsedAnswer(None, _cut(str(error)) or "It is nested too deeply.")
    said = [f"{place}: {_cut(message)}" for place, message in sorted(errors)[:_MAX_ERRORS]]
    more = f"; and {len(errors) - _MAX_ERRORS} more" if len(errors) > _MAX_ERRORS else ""
    return ParsedAnswer(None, f"{'; '.join(said)}{more}."[:MAX_ERROR_CHARS])


def _place(path: Any) -> str:
    """Where in the answer, as `parts[0].name`; the answer itself has no place."""
    place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return place.removeprefix(".") or "the answer"


def _cut(message: str) -> str:
    return message if len(message) <= _MAX_MESSAGE_CHARS else f"{message[:_MAX_MESSAGE_CHARS]}…"


class _UnfitError(ValueError):
    """A value that the schema allows and no column can hold."""


def _properties(properties: tuple[Property, ...], value: dict[str, Any], place: str) -> dict[str, Any]:
    """The properties that are asked for; what is answered beside them has no column."""
    return {
        one.name: _converted(one.type, value.get(one.name), f"{place}.{one.name}".removeprefix("."))
        for one in properties
    }


def _converted(wanted: ValueType, value: Any, place: str) -> Any:
    if value is None:
        return None
    if isinstance(wanted, ListOf):
        return [_converted(wanted.item, one, f"{place}[{number}]") for number, one in enumerate(value)]
    if isinstance(wanted, ObjectOf):
        return _properties(wanted.properties, value, place)
    return _scalar(wanted, value, place)


def _scalar(wanted: Scalar, value: Any, place: str) -> Any:
    if wanted.kind == "string":
        return value if value.isascii() else value.encode("utf-8", "replace").decode()  # half a surrogate pair
    if wanted.kind == "boolean":
        return value
    try:
        number = int(value) if wanted.kind == "integer" else float(value)
    except OverflowError:
        raise _UnfitError(f"{place}: the number is too large.") from None
    if isinstance(number, int) and not -_LONG <= number < _LONG:
        raise _UnfitError(f"{place}: {number} is no integer of 64 bits.")
    if isinstance(number, float) and number - number != 0:
        raise _UnfitError(f"{place}: the number is too large.")
    return number
