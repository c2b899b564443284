"""The shapes that answers come in, and how any of them is read without failing. Pure.

Lists where objects were promised, objects keyed by name where lists were, a bare text for an entry: all of it is read
as a sequence of entries, each a dict, with the key it stood under.
"""

from __future__ import annotations

import json
import math
import re
from functools import lru_cache
from typing import Any, Final, NamedTuple

import orjson

from lightmeter.facts.lenient_json import parse_object_lenient

__all__ = [
    "MAX_FLOAT32",
    "Corner",
    "FeatureEntries",
    "decode_answer_lenient",
    "json_text",
    "read_entries",
    "read_polygon",
    "to_float",
]

# What a bare text stands for, and what the key of an object stands for, where the entry itself does not say.
_TEXT_MEANS: Final = {
    "tags": "name",
    "colors": "hex",
    "nsfw": "label",
    "descriptions": "description",
    "texts": "text",
    "brands": "name",
    "faces": "source",
    "embeddings": "model",
}
_KEY_MEANS: Final = {**_TEXT_MEANS, "descriptions": "source", "texts": "source"}

_NAMED_BY_KEY: Final = frozenset(("tags", "colors", "nsfw", "brands"))
"""Features whose keys name the entries: a bare value under a key says how sure the back end is."""

_FIGURE: Final = re.compile(r"\s*([-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)(?:\s*(%))?\s*")
_LONGEST_FIGURE: Final = 64
_PER_CENT: Final = 100.0

_PIXELS: Final = 2**53
"""No picture is as wide; integers below are doubles without loss."""


MAX_FLOAT32: Final = (2.0 - 2.0**-23) * 2.0**127
"""The largest number in single precision (IEEE 754)."""


class Corner(NamedTuple):
    """A point of a picture."""

    x: float
    y: float


class FeatureEntries(NamedTuple):
    """The entries of one feature of an asset, in the order of the answer: two lists of the same length.

    Attributes:
        fields: The fields of each entry.
        literals: What was answered literally.
    """

    fields: list[dict[str, Any]]
    literals: list[Any]


def decode_answer_lenient(raw: bytes) -> dict[str, Any]:
    """The object that an answer is; an empty one where it is none. Never raises."""
    return parse_object_lenient(raw) or {}


def read_entries(table: str, value: Any) -> FeatureEntries:
    """The entries of one feature of an asset, whatever its shape; a null is none."""
    if isinstance(value, dict):
        found = FeatureEntries([value], [value]) if _is_single(table, value) else _keyed(table, value)
    else:
        literals = [literal for literal in value if literal is not None] if isinstance(value, list) else []
        found = FeatureEntries([_fields(table, literal) for literal in literals], literals)
    return _with_vectors(found) if table == "embeddings" else found


def _with_vectors(found: FeatureEntries) -> FeatureEntries:
    """The entries that have a vector of numbers; the others are left out.

    A bare list of coordinates would be an entry for each of them. And DuckDB's functions of vectors refuse a column
    that holds a null or an empty one, also in rows that a query does not select.
    """
    kept = [
        ({**fields, "vector": coordinates}, literal)
        for fields, literal in zip(found.fields, found.literals, strict=True)
        if (coordinates := _coordinates(fields.get("vector")))
    ]
    return FeatureEntries([fields for fields, _ in kept], [literal for _, literal in kept])


def _coordinates(value: Any) -> list[float] | None:
    """The numbers of a list; None where one of its values is none, or beyond single precision."""
    if not isinstance(value, list):
        return None
    coordinates = [known for one in value if (known := to_float(one)) is not None and abs(known) <= MAX_FLOAT32]
    return coordinates if len(coordinates) == len(value) else None


def _keyed(table: str, value: dict[str, Any]) -> FeatureEntries:
    """Entries of an object; one that does not say what its key says gets it from the key."""
    meaning = _KEY_MEANS[table]
    fields, literals = [], []
    for key, inner in value.items():
        for literal in inner if isinstance(inner, list) else (inner,):
            said = _under_key(table, literal) if isinstance(literal, str) else _fields(table, literal)
            fields.append(said if said.get(meaning) is not None else {**said, meaning: key})
            literals.append(literal)
    return FeatureEntries(fields, literals)


def _under_key(table: str, literal: str) -> dict[str, Any]:
    """The fields of a bare text under a key: a score as a text, a likelihood, or what a bare text means elsewhere."""
    if table in _NAMED_BY_KEY:
        if to_float(literal) is not None:
            return {"score": literal}
        if table == "nsfw":
            return {"likelihood": literal}
    return _fields(table, literal)


def _is_single(table: str, value: dict[str, Any]) -> bool:
    """Whether an object is one entry itself, not a collection of entries by key."""
    if table == "faces":
        return not any(isinstance(inner, list) and inner and isinstance(inner[0], dict) for inner in value.values())
    if table == "embeddings":
        return "vector" in value
    return isinstance(value.get(_TEXT_MEANS[table]), str)


def _fields(table: str, literal: Any) -> dict[str, Any]:
    """The fields of an entry; a bare text or a bare score is one too."""
    if isinstance(literal, dict):
        return literal
    if isinstance(literal, str):
        return {_TEXT_MEANS[table]: literal}
    score = to_float(literal)
    return {} if score is None else {"score": score}


def to_float(value: Any) -> float | None:
    """A finite number as a double; None for anything else, booleans included.

    A decimal number as a text is a number too, with a point and without separators of thousands; a text in per cent
    is divided by 100.
    """
    if type(value) is float and value - value == 0:  # the usual case at once: neither infinite nor NaN
        return value
    if isinstance(value, str):
        return _number_in(value) if len(value) <= _LONGEST_FIGURE else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


@lru_cache(maxsize=4096)
def _number_in(text: str) -> float | None:
    """Cached: likelihoods are asked for too, a few words over and over."""
    found = _FIGURE.fullmatch(text)
    if found is None:
        return None
    value = float(found.group(1)) / (_PER_CENT if found.group(2) else 1.0)
    return value if math.isfinite(value) else None


def read_polygon(fields: dict[str, Any]) -> list[Corner]:
    """The corners around an entry, from `bounding_poly.vertices`; an empty list where there are none.

    A coordinate that is missing is 0: writers that leave out zeros are common (JSON of Protocol Buffers does).
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
    return float(value) if type(value) is int and -_PIXELS < value < _PIXELS else to_float(value) or 0.0


def json_text(value: Any) -> str:
    """A value as JSON text; what JSON cannot hold is its text in Python."""
    try:
        return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
    except (TypeError, orjson.JSONEncodeError):
        return json.dumps(value, default=str)
