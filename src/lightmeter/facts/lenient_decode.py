"""Decoding of answers of any shape, without failing. Pure.

The value of a feature in an answer may be a list of entries, an object with entries under keys, or a single entry. An
entry may be an object, or only a text or a score. All of these are read as a sequence of dicts, one for each entry. If
an entry under a key lacks its name (for some features, its source or model), the key takes that place.
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
"""Features whose entries are named by their keys, so that a bare number under a key is the score of that entry."""

_NUMBER: Final = re.compile(r"\s*([-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)(?:\s*(%))?\s*")
_MAX_NUMBER_CHARS: Final = 64
_PER_CENT: Final = 100.0

_MAX_EXACT_INT: Final = 2**53
"""Integers between minus this number and this number are converted to doubles without loss."""


MAX_FLOAT32: Final = (2.0 - 2.0**-23) * 2.0**127
"""The largest number in single precision (IEEE 754)."""


class Corner(NamedTuple):
    """A corner of the outline around a face, text or brand, in the unit of the answer: pixels, or 0 to 1."""

    x: float
    y: float


class FeatureEntries(NamedTuple):
    """The entries of one feature, such as tags, of an image, video or frame: two lists of the same length.

    Attributes:
        fields: Each entry as a dict of its fields, in the order of the answer.
        literals: Each entry as it is in the answer, a JSON value of any type.
    """

    fields: list[dict[str, Any]]
    literals: list[Any]


def decode_answer_lenient(raw: bytes) -> dict[str, Any]:
    """Return the JSON object in `raw`, the bytes of an answer; an empty dict if there is none. Never raises."""
    return parse_object_lenient(raw) or {}


def read_entries(table: str, value: Any) -> FeatureEntries:
    """Return the entries of the feature `table` (such as `tags`) in an answer.

    `value` is the JSON value of the feature, of any shape. Null entries in a list are left out, and so are embeddings
    without a valid vector.
    """
    if isinstance(value, dict):
        found = FeatureEntries([value], [value]) if _is_single(table, value) else _keyed(table, value)
    else:
        literals = [literal for literal in value if literal is not None] if isinstance(value, list) else []
        found = FeatureEntries([_fields(table, literal) for literal in literals], literals)
    return _with_vectors(found) if table == "embeddings" else found


def _with_vectors(found: FeatureEntries) -> FeatureEntries:
    """Return the entries of the feature `embeddings` in `found` without those that lack a vector of numbers.

    They are left out because DuckDB's vector functions fail on a column with a null or empty vector, even in rows that
    a query does not select.
    """
    valid = [
        ({**fields, "vector": coordinates}, literal)
        for fields, literal in zip(found.fields, found.literals, strict=True)
        if (coordinates := _coordinates(fields.get("vector")))
    ]
    return FeatureEntries([fields for fields, _ in valid], [literal for _, literal in valid])


def _coordinates(value: Any) -> list[float] | None:
    """Return a list of numbers as floats.

    Return None if `value` is not a list, or if one of its values is not a number or beyond single precision.
    """
    if not isinstance(value, list):
        return None
    coordinates = [known for one in value if (known := to_float(one)) is not None and abs(known) <= MAX_FLOAT32]
    return coordinates if len(coordinates) == len(value) else None


def _keyed(table: str, value: dict[str, Any]) -> FeatureEntries:
    """Return the entries of the feature `table` in the object `value`, such as `{"cat": {"score": 0.9}}`.

    If an entry lacks the field that `_KEY_FIELD` names, such as the name of a tag, its key becomes that field's value.
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
    """Return the fields of an entry that an answer gives as a text under a key, instead of as an object.

    `literal` is the text. The feature, `table`, determines which field the text becomes. For example, if `tags` is
    `{"cat": "0.9"}`, the text `0.9` gives the fields `{"score": "0.9"}`.
    """
    if table in _NAMED_BY_KEY:
        if to_float(literal) is not None:
            return {"score": literal}
        if table == "nsfw":
            return {"likelihood": literal}
    return _fields(table, literal)


def _is_single(table: str, value: dict[str, Any]) -> bool:
    """Return whether the object `value` is one entry of the feature `table`, and not an object of entries by key."""
    if table == "faces":
        return not any(isinstance(inner, list) and inner and isinstance(inner[0], dict) for inner in value.values())
    if table == "embeddings":
        return "vector" in value
    return isinstance(value.get(_TEXT_FIELD[table]), str)


def _fields(table: str, literal: Any) -> dict[str, Any]:
    """Return an entry of the feature `table` as a dict of its fields.

    `literal` is the entry in the answer. An object is returned as it is. A number becomes the field `score`. A text
    becomes the field `name` (tags, brands), `hex` (colors), `label` (nsfw), `description`, `text`, `source` (faces) or
    `model` (embeddings). Any other value gives an empty dict.
    """
    if isinstance(literal, dict):
        return literal
    if isinstance(literal, str):
        return {_TEXT_FIELD[table]: literal}
    score = to_float(literal)
    return {} if score is None else {"score": score}


def to_float(value: Any) -> float | None:
    """Return the JSON value `value` as a finite float; None if it is not a finite number.

    A text is a number if it has a decimal point (or none) and no thousands separators, such as `0.5` or `1e3`. A text
    with a percent sign is divided by 100: `50 %` gives 0.5. Booleans and texts of more than `_MAX_NUMBER_CHARS`
    characters are not numbers.
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
    """Return the number that a text such as `0.5` or `50 %` states, 0.5 for both; None for other texts. Cached."""
    found = _NUMBER.fullmatch(text)
    if found is None:
        return None
    value = float(found.group(1)) / (_PER_CENT if found.group(2) else 1.0)
    return value if math.isfinite(value) else None


def read_polygon(fields: dict[str, Any]) -> list[Corner]:
    """Return the corners around a face, text or brand, from its field `bounding_poly.vertices`.

    Without that field, the field `boundingPoly` is read. If both are missing, return an empty list. A missing
    coordinate is taken as 0, because the JSON form of Protocol Buffers leaves out zeros.
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
    """Return a value as JSON text; parts of the value that JSON cannot hold are converted by `str`.

    The text is `null` if the value is nested too deeply for Python.
    """
    try:
        return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
    except (TypeError, orjson.JSONEncodeError):
        try:
            return json.dumps(value, default=str)
        except RecursionError:
            return "null"
