"""Finds the JSON object in a model's answer to the user's question, and validates it against the question's schema.

Code fences, sentences and a model's thinking around the object are ignored. Invalid JSON, such as a trailing comma or a
comment, is an error. A second request reports the error to the model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from lightmeter.ask.json_schema import ListOf, ObjectOf, Property, Scalar, ValueType
from lightmeter.ask.question import MAX_ERROR_CHARS, Ask
from lightmeter.wire.model_text import without_thinking

_MAX_OBJECTS: Final = 64
"""Maximum number of JSON objects in a text that are validated. Further objects are ignored."""

_OBJECT_START: Final = re.compile(r"\{(?=\s*[\"'}])")

_MAX_ERRORS: Final = 3
_MAX_MESSAGE_CHARS: Final = 150
_INT64_LIMIT: Final = 2**63


class ParsedAnswer(NamedTuple):
    """Values in a model's answer to the user's question, or the error in the answer.

    Attributes:
        values: Property of the question's schema → value, in the type of the property's table column; None on an error.
        error: The error, as a sentence; None if the answer is valid.
    """

    values: dict[str, Any] | None
    error: str | None


def parse_answer_text(ask: Ask, text: object) -> ParsedAnswer:
    """Return the values in `text`, a model's answer: those of the first JSON object that fits the question `ask`.

    If no object fits, the result says why the first one does not fit. If there is no object, it says so. Never raises.
    """
    if not isinstance(text, str) or not text.strip():
        return ParsedAnswer(None, "The answer is empty.")
    first: ParsedAnswer | None = None
    for value in _objects_in(without_thinking(text)):
        answer = ParsedAnswer(None, value) if isinstance(value, str) else _validate(ask, value)
        if answer.error is None:
            return answer
        first = first or answer
    return first or ParsedAnswer(None, "The answer holds no JSON object.")


def _objects_in(text: str) -> Iterator[dict[str, Any] | str]:
    """Yield the JSON objects in a text, in order, without the objects inside them.

    At invalid JSON, yield an error message (a text) and stop. A brace before a word without quotes, as in `{like this`,
    does not start an object, but belongs to a sentence.
    """
    at = 0
    for _ in range(_MAX_OBJECTS):
        start = _OBJECT_START.search(text, at)
        if start is None:
            return
        try:
            value, at = _DECODER.raw_decode(text, start.start())
        except (ValueError, RecursionError) as error:
            yield f"It is no JSON: {error}."
            return
        yield value


def _reject_constant(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


_DECODER: Final = json.JSONDecoder(parse_constant=_reject_constant)


def _validate(ask: Ask, value: dict[str, Any]) -> ParsedAnswer:
    try:
        if ask.validator.is_valid(value):
            return ParsedAnswer(_properties(ask.properties, value, ""), None)
        errors = [(_place(error.instance_path), error.message) for error in ask.validator.iter_errors(value)]
    except (ValueError, RecursionError) as error:  # too large a number, a lone surrogate, too deep nesting
        return ParsedAnswer(None, _shorten(str(error)) or "It is nested too deeply.")
    messages = [f"{place}: {_shorten(message)}" for place, message in sorted(errors)[:_MAX_ERRORS]]
    more = f"; and {len(errors) - _MAX_ERRORS} more" if len(errors) > _MAX_ERRORS else ""
    return ParsedAnswer(None, f"{'; '.join(messages)}{more}."[:MAX_ERROR_CHARS])


def _place(path: Any) -> str:
    """Return the path of a value in a JSON answer as text for error messages, such as `parts[0].name`."""
    place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return place.removeprefix(".") or "the answer"


def _shorten(message: str) -> str:
    return message if len(message) <= _MAX_MESSAGE_CHARS else f"{message[:_MAX_MESSAGE_CHARS]}…"


_VALUE_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int, float),  # 2.0 is an integer in JSON Schema
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}
"""JSON type of a table column → types of the parsed JSON values that fit it."""


class _UnfitError(ValueError):
    """Raised if a value in a model's answer is valid by the JSON schema, but does not fit its table column."""


def _properties(properties: tuple[Property, ...], value: dict[str, Any], place: str) -> dict[str, Any]:
    """Return property → value in the type of the property's table column, for the JSON object `value`.

    The value of a missing property is None. `place` is the path of `value` in the answer, for error messages.
    """
    return {
        prop.name: _converted(prop.type, value.get(prop.name), f"{place}.{prop.name}".removeprefix("."))
        for prop in properties
    }


def _converted(column_type: ValueType, value: Any, place: str) -> Any:
    if value is None:
        return None
    kind = _kind_of(column_type)
    if type(value) not in _VALUE_TYPES[kind]:  # a part of a schema with `properties` but no `type` accepts any value
        raise _UnfitError(f"{place}: {_shorten(repr(value))} is not of type {kind!r}.")
    if isinstance(column_type, ListOf):
        return [_converted(column_type.item, one, f"{place}[{number}]") for number, one in enumerate(value)]
    if isinstance(column_type, ObjectOf):
        return _properties(column_type.properties, value, place)
    return _scalar(column_type, value, place)


def _kind_of(column_type: ValueType) -> str:
    if isinstance(column_type, Scalar):
        return column_type.kind
    return "array" if isinstance(column_type, ListOf) else "object"


def _scalar(column_type: Scalar, value: Any, place: str) -> Any:
    if column_type.kind == "string":
        return value if value.isascii() else value.encode("utf-8", "replace").decode()  # a lone surrogate
    if column_type.kind == "boolean":
        return value
    try:
        number = int(value) if column_type.kind == "integer" else float(value)
    except OverflowError:
        raise _UnfitError(f"{place}: the number is too large.") from None
    if isinstance(number, int) and not -_INT64_LIMIT <= number < _INT64_LIMIT:
        raise _UnfitError(f"{place}: {number} is no integer of 64 bits.")
    if isinstance(number, float) and number - number != 0:
        raise _UnfitError(f"{place}: the number is too large.")
    return number
