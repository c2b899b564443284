"""Decoding of answers of any shape, without failing. Pure.

A list instead of an object, an object keyed by name instead of a list, and a bare text instead of an entry are all read
as a sequence of entries. An entry is a dict. The key of an entry becomes its name.
"""

from __future__ import annotations

import json
import math
import re
from functools import lru_cache
from typing import Any, Final, NamedTuple

import orjson

from lightmeter.facts.lenient_json import parse_object_lenient

# Feature → field that gets the text of an entry that is only a text. `_KEY_FIELD` names the field that gets the key of
# an entry in an object, if the entry itself lacks this field.
_TEXT_FIELD: Final = {
    "tags": "name",
    "colors": "hex",
    "nsfw": "label",
    "descriptions": "description",
    "texts": "text",
    "brands": "name",
    "faces": "source",
    "embeddings": "model",
}
_KEY_FIELD: Final = {**_TEXT_FIELD, "descriptions": "source", "texts": "source"}

_NAMED_BY_KEY: Final = frozenset(("tags", "colors", "nsfw", "brands"))
"""Features whose keys name the entries: a bare value under a key is the score of that entry."""

_NUMBER: Final = re.compile(r"\s*([-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)(?:\s*(%))?\s*")
_MAX_NUMBER_CHARS: Final = 64
_PER_CENT: Final = 100.0

_MAX_EXACT_INT: Final = 2**53
"""Integers below this are doubles without loss."""


MAX_FLOAT32: Final = (2.0 - 2.0**-23) * 2.0**127
"""The largest number in single precision (IEEE 754)."""


class Corner(NamedTuple):
    """A corner of the outline around a face, text or brand, in the unit of the answer: pixels, or 0 to 1."""

    x: float
    y: float


class FeatureEntries(NamedTuple):
    """The entries of one feature, such as tags, of an image, video or frame: two lists of the same length.

    Attributes:
        fields: The fields of each entry, in the order of the answer.
        literals: Each entry as JSON value, unchanged.
    """

    fields: list[dict[str, Any]]
    literals: list[Any]


def decode_answer_lenient(raw: bytes) -> dict[str, Any]:
    """Return the JSON object in `raw`, the bytes of an answer; an empty dict if there is none. Never raises."""
    return parse_object_lenient(raw) or {}


def read_entries(table: str, value: Any) -> FeatureEntries:
    """Return the entries of the feature `table` (such as `tags`) in an answer, without nulls.

    `value` is the JSON value of the feature, of any shape.
    """
    if isinstance(value, dict):
        found = FeatureEntries([value], [value]) if _is_single(table, value) else _keyed(table, value)
    else:
        literals = [literal for literal in value if literal is not None] if isinstance(value, list) else []
        found = FeatureEntries([_fields(table, literal) for literal in literals], literals)
    return _with_vectors(found) if table == "embeddings" else found


def _with_vectors(found: FeatureEntries) -> FeatureEntries:
    """Return the entries in `found`, of the feature `embeddings`, that have a vector of numbers.

    DuckDB's vector functions fail on a column with a null or empty vector, even in rows that a query does not select.
    """
    valid = [
        ({**fields, "vector": coordinates}, literal)
        for fields, literal in zip(found.fields, found.literals, strict=True)
        if (coordinates := _coordinates(fields.get("vector")))
    ]
    return FeatureEntries([fields for fields, _ in valid], [literal for _, literal in valid])


def _coordinates(value: Any) -> list[float] | None:
    """Return a list of numbers as floats; None for no list, or if a value is no number or beyond single precision."""
    if not isinstance(value, list):
        return None
    coordinates = [known for one in value if (known := to_float(one)) is not None and abs(known) <= MAX_FLOAT32]
    return coordinates if len(coordinates) == len(value) else None


def _keyed(table: str, value: dict[str, Any]) -> FeatureEntries:
    """Return the entries of the feature `table` in the object `value`, such as `{"cat": {"score": 0.9}}`.

    A key becomes the name of an entry that has none.
    """
    name_field = _KEY_FIELD[table]
    fields, literals = [], []
    for key, inner in value.items():
        for literal in inner if isinstance(inner, list) else (inner,):
            entry = _under_key(table, literal) if isinstance(literal, str) else _fields(table, literal)
            fields.append(entry if entry.get(name_field) is not None else {**entry, name_field: key})
            literals.append(literal)
    return FeatureEntries(fields, literals)


def _under_key(table: str, literal: str) -> dict[str, Any]:
    """Return the fields of an entry of the feature `table` that is only a text (`literal`) under a key.

    From `{"cat": "0.9"}` in `tags`, the text is `0.9`, and the fields are `{"score": "0.9"}`.
    """
    if table in _NAMED_BY_KEY:
        if to_float(literal) is not None:
            return {"score": literal}
        if table == "nsfw":
            return {"likelihood": literal}
    return _fields(table, literal)


def _is_single(table: str, value: dict[str, Any]) -> bool:
    """Whether the object `value` is itself one entry of the feature `table`, not a collection of entries by key."""
    if table == "faces":
        return not any(isinstance(inner, list) and inner and isinstance(inner[0], dict) for inner in value.values())
    if table == "embeddings":
        return "vector" in value
    return isinstance(value.get(_TEXT_FIELD[table]), str)


def _fields(table: str, literal: Any) -> dict[str, Any]:
    """Return an entry of the feature `table` as a dict of its fields.

    `literal` is the entry in the answer: an object, a bare text, or a bare score.
    """
    if isinstance(literal, dict):
        return literal
    if isinstance(literal, str):
        return {_TEXT_FIELD[table]: literal}
    score = to_float(literal)
    return {} if score is None else {"score": score}


def to_float(value: Any) -> float | None:
    """Return `value` as a float if it is a finite number; None for anything else, booleans included.

    A text with a decimal number is a number too: with a point, without thousands separators. A text in per cent is
    divided by 100.
    """
    if type(value) is float and value - value == 0:  # fast path: neither infinite nor NaN
        return value
    if isinstance(value, str):
        return _parse_number(value) if len(value) <= _MAX_NUMBER_CHARS else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


@lru_cache(maxsize=4096)
def _parse_number(text: str) -> float | None:
    """Return the number that a decimal text such as `0.5` or `50 %` (0.5) states; None for other texts. Cached."""
    found = _NUMBER.fullmatch(text)
    if found is None:
        return None
    value = float(found.group(1)) / (_PER_CENT if found.group(2) else 1.0)
    return value if math.isfinite(value) else None


def read_polygon(fields: dict[str, Any]) -> list[Corner]:
    """Return the corners around a face, text or brand, from its field `bounding_poly.vertices`; an empty list if none.

    A missing coordinate is 0: the JSON form of Protocol Buffers leaves out zeros.
    """
    outline = fields.get("bounding_poly") or fields.get("boundingPoly")
    vertices = outline.get("vertices") if isinstance(outline, dict) else outline
    if not isinstance(vertices, list):
        return []
    return [
        Corner(_coordinate(corner.get("x", 0)), _coordinate(corner.get("y", 0)))
        for corner in vertices
        if isinstance(corner, dict)
    ]


def _coordinate(value: Any) -> float:
    return float(value) if type(value) is int and -_MAX_EXACT_INT < value < _MAX_EXACT_INT else to_float(value) or 0.0


def json_text(value: Any) -> str:
    """Return a value as JSON text; a part of it that JSON cannot hold is written as its `str`."""
    try:
        return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
    except (TypeError, orjson.JSONEncodeError):
        return json.dumps(value, default=str)
