"""What is said about a face, found in the words of any back end. Pure.

The contract leaves the fields of a face open. Those of the known providers are found whatever their case and
underscores (`BoundingBox`, `bounding_box`); everything else stays in the column `raw`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

from lightmeter.tables.severity import likelihood_score
from lightmeter.tables.shapes import number, polygon

__all__ = ["FACE_COLUMNS", "read_face"]

FACE_COLUMNS: Final = (
    *("left", "top", "width", "height", "age_low", "age_high", "gender", "gender_score", "emotions"),
)

_BOXES: Final = ("boundingbox", "box", "bbox", "facerectangle")
_SIDES: Final = (("left", "x"), ("top", "y"), ("width", "w"), ("height", "h"))
_SPEAK_OF_BOXES: Final = frozenset(_BOXES).union(*_SIDES)
_NAMES: Final = ("type", "name", "emotion", "label", "value")
_SCORES: Final = ("confidence", "score", "probability")
_LIKELIHOOD_EMOTIONS: Final = {f"{word}likelihood": word for word in ("joy", "sorrow", "anger", "surprise")}
_AGE_SPAN: Final = re.compile(r"\D*(\d{1,3})(?:\D+(\d{1,3}))?\D*")
_PER_CENT: Final = 100.0


def read_face(fields: dict[str, Any]) -> dict[str, Any]:
    """The values of `FACE_COLUMNS`; None for what is not said."""
    names, speaks_of = _spoken_of(tuple(fields))
    face = dict(zip(names, fields.values(), strict=True))
    left, top, width, height = _box(face, fields, boxed="box" in speaks_of)
    age_low, age_high = _age(face) if "age" in speaks_of else (None, None)
    gender, gender_score = _gender(face) if "gender" in speaks_of else (None, None)
    emotions = _emotions(face) if "emotion" in speaks_of else None
    values = (left, top, width, height, age_low, age_high, gender, gender_score, emotions)
    return dict(zip(FACE_COLUMNS, values, strict=True))


@lru_cache(maxsize=1024)
def _spoken_of(keys: tuple[str, ...]) -> tuple[tuple[str, ...], frozenset[str]]:
    """Keys without case and underscores, and what they may speak of. Cached: all faces of a back end have the same."""
    names = tuple(key.replace("_", "").casefold() for key in keys)
    topics = {topic for topic in ("age", "gender", "emotion") for name in names if name.startswith(topic)}
    topics |= {"emotion" for name in names if name in _LIKELIHOOD_EMOTIONS}
    return names, frozenset(topics | {"box" for name in names if name in _SPEAK_OF_BOXES})


def _folded(value: Any) -> dict[str, Any]:
    """An object under keys without case and underscores; empty for what is no object."""
    if not isinstance(value, dict):
        return {}
    return {key.replace("_", "").casefold(): inner for key, inner in value.items()}


def _first(face: dict[str, Any], names: tuple[str, ...]) -> Any:
    for name in names:
        if (value := face.get(name)) is not None:
            return value
    return None


def _box(face: dict[str, Any], fields: dict[str, Any], *, boxed: bool) -> tuple[float | None, ...]:
    """Left, top, width and height: from a box, from the corners around the face, or from the face itself."""
    found: tuple[float | None, ...] = (None,) * len(_SIDES)
    if boxed:
        box = _folded(_first(face, _BOXES)) or face
        found = tuple([number(_first(box, names)) for names in _SIDES])
        if None not in found:
            return found
    corners = polygon(fields) or polygon({"bounding_poly": _first(face, ("boundingpoly", "fdboundingpoly"))})
    if not corners:
        return found
    across, down = [corner["x"] for corner in corners], [corner["y"] for corner in corners]
    left, top = min(across), min(down)
    return left, top, max(across) - left, max(down) - top


def _age(face: dict[str, Any]) -> tuple[float | None, float | None]:
    """Lower and upper end of the age; the same twice for a single figure."""
    said = _first(face, ("agerange", "age"))
    span = _folded(said)
    if span:
        return number(_first(span, ("low", "min"))), number(_first(span, ("high", "max")))
    if isinstance(said, str) and (found := _AGE_SPAN.fullmatch(said)):
        low, high = found.group(1), found.group(2) or found.group(1)
        return float(low), float(high)
    exact = number(said)
    if exact is not None:
        return exact, exact
    return number(_first(face, ("agelow", "agemin"))), number(_first(face, ("agehigh", "agemax")))


def _gender(face: dict[str, Any]) -> tuple[str | None, float | None]:
    said = face.get("gender")
    inner = _folded(said)
    word = _first(inner, ("value", "name", "label")) if inner else said
    score = _first(inner, _SCORES) if inner else _first(face, ("genderscore", "genderconfidence"))
    return word if isinstance(word, str) else None, _shares({"": score}).get("")


def _emotions(face: dict[str, Any]) -> list[tuple[str, float | None]] | None:
    """Emotions and how sure the back end is of each, as the pairs of a map; None where nothing is said."""
    said = face.get("emotions")
    said = face.get("emotion") if said is None else said
    found: dict[str, Any] = {}
    if isinstance(said, dict):
        found = dict(said)
    elif isinstance(said, str):
        found = {said: face.get("emotionscore")}
    elif isinstance(said, list):
        for one in said:
            inner = _folded(one)
            word = one if isinstance(one, str) else _first(inner, _NAMES)
            if isinstance(word, str):
                found[word] = _first(inner, _SCORES)
    for key, word in _LIKELIHOOD_EMOTIONS.items():
        if key in face:
            found.setdefault(word, face[key])
    return list(_shares(found).items()) or None


def _shares(said: dict[str, Any]) -> dict[str, float | None]:
    """Scores as shares of 1: per cent (where any is above 1, all are) divided by 100, likelihoods by their step."""
    scores = {name: number(value) for name, value in said.items()}
    in_per_cent = any(score is not None and score > 1 for score in scores.values())
    scale = _PER_CENT if in_per_cent else 1.0
    return {name: likelihood_score(said[name]) if score is None else score / scale for name, score in scores.items()}
