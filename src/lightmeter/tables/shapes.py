"""The shapes that answers come in, and how any of them is read without failing. Pure.

Lists where objects were promised, objects keyed by name where lists were, a bare text for an entry: all of it is read
as a sequence of entries, each a dict, with the key it stood under.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeAlias

import orjson

__all__ = ["Entry", "entries", "json_text", "number", "parse_answer", "polygon"]

Point: TypeAlias = "dict[str, float]"

# What a bare text stands for, and what the key of an object stands for, where the entry itself does not say.
_TEXT_MEANS: Final = {
    "tags": "name",
    "colors": "hex",
    "nsfw": "label",
    "descriptions": "description",
    "texts": "text",
    "brands": "name",
    "faces": "source",
}
_KEY_MEANS: Final = {**_TEXT_MEANS, "descriptions": "source", "texts": "source"}


class Entry(NamedTuple):
    """One entry of an answer: its fields, and what was answered literally."""

    fields: dict[str, Any]
    literal: Any


def parse_answer(raw: bytes) -> dict[str, Any]:
    """The object that an answer is; an empty one where it is none. Never raises.

    JSON as Python's own writer may write it (NaN, Infinity, lone surrogates) is read too; NaN becomes None.
    """
    raw = raw.removeprefix(b"\xef\xbb\xbf")
    try:
        answer = orjson.loads(raw)
    except orjson.JSONDecodeError:
        try:
            answer = json.loads(raw, parse_constant=lambda _: None)
        except (ValueError, RecursionError):
            return {}
    return answer if isinstance(answer, dict) else {}


def entries(table: str, value: Any) -> Iterator[Entry]:
    """The entries of one feature of an asset, in the order of the answer; nulls are none."""
    if isinstance(value, dict):
        if _is_single(table, value):
            yield Entry(value, value)
            return
        meaning = _KEY_MEANS[table]
        for key, inner in value.items():
            for literal in inner if isinstance(inner, list) else (inner,):
                fields = literal if isinstance(literal, dict) else _bare(table, literal)
                yield Entry(fields if fields.get(meaning) is not None else {**fields, meaning: key}, literal)
    elif isinstance(value, list):
        for literal in value:
            if literal is not None:
                yield Entry(literal if isinstance(literal, dict) else _bare(table, literal), literal)


def _is_single(table: str, value: dict[str, Any]) -> bool:
    """Whether an object is one entry itself, not a collection of entries by key."""
    if table == "faces":
        return not any(isinstance(inner, list) and inner and isinstance(inner[0], dict) for inner in value.values())
    return isinstance(value.get(_TEXT_MEANS[table]), str)


def _bare(table: str, literal: Any) -> dict[str, Any]:
    """The fields of an entry that is no object: a text or a score."""
    if isinstance(literal, str):
        return {_TEXT_MEANS[table]: literal}
    score = number(literal)
    return {} if score is None else {"score": score}


def number(value: Any) -> float | None:
    """A finite number as a double; None for anything else, booleans included."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def polygon(fields: dict[str, Any]) -> list[Point] | None:
    """The corners around an entry, from `bounding_poly.vertices`; None where there are none.

    A coordinate that is missing is 0: writers that leave out zeros are common (JSON of Protocol Buffers does).
    """
    outline = fields.get("bounding_poly") or fields.get("boundingPoly")
    vertices = outline.get("vertices") if isinstance(outline, dict) else outline
    if not isinstance(vertices, list):
        return None
    corners = [
        {"x": number(corner.get("x", 0)) or 0.0, "y": number(corner.get("y", 0)) or 0.0}
        for corner in vertices
        if isinstance(corner, dict)
    ]
    return corners or None


def json_text(value: Any) -> str:
    """A value as JSON text; what JSON cannot hold is its text in Python."""
    try:
        return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
    except (TypeError, orjson.JSONEncodeError):
        return json.dumps(value, default=str)
