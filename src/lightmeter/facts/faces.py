"""Conversion of the faces in an answer of any known provider to columns of the table `faces`. Pure.

The specification of the service's answers leaves the fields of a face open. This module reads the fields that the known
providers use, whatever their case and underscores (`BoundingBox`, `bounding_box`). The column `raw` has all fields.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, cast

from msgspec import UNSET, UnsetType

from lightmeter.facts.fast_decode import FastFace
from lightmeter.facts.lenient_decode import read_polygon, to_float
from lightmeter.facts.severity import likelihood_score

FACE_COLUMNS: Final = (
    *("left", "top", "width", "height", "age_low", "age_high", "gender", "gender_score", "emotions"),
)

_BOXES: Final = ("boundingbox", "box", "bbox", "facerectangle")
_SIDES: Final = (("left", "x"), ("top", "y"), ("width", "w"), ("height", "h"))
_BOX_KEYS: Final = frozenset(_BOXES).union(*_SIDES)
_NAMES: Final = ("type", "name", "emotion", "label", "value")
_SCORES: Final = ("confidence", "score", "probability")
_LIKELIHOOD_EMOTIONS: Final = {f"{word}likelihood": word for word in ("joy", "sorrow", "anger", "surprise")}
_AGE_SPAN: Final = re.compile(r"\D*(\d{1,3})(?:\D+(\d{1,3}))?\D*")
_PER_CENT: Final = 100.0


def read_faces(faces: Sequence[FastFace] | Sequence[dict[str, Any]]) -> dict[str, Sequence[Any]]:
    """Return column → one value for each face, for all `FACE_COLUMNS`. A value that the answer does not state is None.

    The faces are either all `FastFace`, or all JSON objects as in the answer.
    """
    if faces and isinstance(faces[0], FastFace):
        return _fast_face_columns(cast("Sequence[FastFace]", faces))
    rows = [_values(fields) for fields in cast("Sequence[dict[str, Any]]", faces)]
    return {column: [values[place] for values in rows] for place, column in enumerate(FACE_COLUMNS)}


def _fast_face_columns(faces: Sequence[FastFace]) -> dict[str, Sequence[Any]]:
    outlines = [face.bounding_poly.vertices for face in faces]
    boxes = [_box_around([corner.x for corner in corners], [corner.y for corner in corners]) for corners in outlines]
    columns: dict[str, Sequence[Any]] = dict.fromkeys(FACE_COLUMNS, [None] * len(faces))
    columns |= zip(FACE_COLUMNS[:4], zip(*boxes, strict=True), strict=True)
    joy, sorrow = [face.joy_likelihood for face in faces], [face.sorrow_likelihood for face in faces]
    anger, surprise = [face.anger_likelihood for face in faces], [face.surprise_likelihood for face in faces]
    return columns | {"emotions": list(map(_emotion_scores, joy, sorrow, anger, surprise))}


def _box_around(across: Sequence[float], down: Sequence[float]) -> tuple[float, ...]:
    """Return left, top, width and height of the smallest box around corners with the given x and y coordinates.

    `across` has the x coordinate of each corner, `down` the y coordinate.
    """
    left, top = min(across), min(down)
    return left, top, max(across) - left, max(down) - top


@lru_cache(maxsize=4096)
def _emotion_scores(*likelihoods: str | UnsetType) -> list[tuple[str, float | None]] | None:
    """Return (emotion, score) for each likelihood that is given; None if none is. Cached.

    The arguments are the likelihoods of joy, sorrow, anger and surprise; UNSET means not given.
    """
    answered = zip(_LIKELIHOOD_EMOTIONS.values(), likelihoods, strict=True)
    return [(emotion, likelihood_score(word)) for emotion, word in answered if word is not UNSET] or None


def _values(fields: dict[str, Any]) -> tuple[Any, ...]:
    names, topics = _normalized_keys(tuple(fields))
    face = dict(zip(names, fields.values(), strict=True))
    box = _box(face, fields, boxed="box" in topics)
    age = _age(face) if "age" in topics else (None, None)
    gender = _gender(face) if "gender" in topics else (None, None)
    return *box, *age, *gender, _emotions(face) if "emotion" in topics else None


@lru_cache(maxsize=1024)
def _normalized_keys(keys: tuple[str, ...]) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return the field names of a face in lower case without underscores, and what these fields are about. Cached.

    The second value has `age`, `gender`, `emotion` or `box` if at least one name shows that its field is about that.
    """
    names = tuple(key.replace("_", "").casefold() for key in keys)
    topics = {topic for topic in ("age", "gender", "emotion") for name in names if name.startswith(topic)}
    topics |= {"emotion" for name in names if name in _LIKELIHOOD_EMOTIONS}
    return names, frozenset(topics | {"box" for name in names if name in _BOX_KEYS})


def _with_normalized_keys(value: Any) -> dict[str, Any]:
    """Return the JSON object `value` with its keys in lower case without underscores.

    If `value` is not an object, return an empty one.
    """
    if not isinstance(value, dict):
        return {}
    return {key.replace("_", "").casefold(): inner for key, inner in value.items()}


def _first(face: dict[str, Any], names: tuple[str, ...]) -> Any:
    for name in names:
        if (value := face.get(name)) is not None:
            return value
    return None


def _box(face: dict[str, Any], fields: dict[str, Any], *, boxed: bool) -> tuple[float | None, ...]:
    """Return left, top, width and height of a face, in the unit of the answer (pixels, or 0 to 1).

    They are read from the fields of a box, such as `width`. If one of the four is missing, all four are computed from
    the corners of the face. Without corners, the missing ones are None.

    Args:
        face: The fields of the face, with names in lower case without underscores. The box is read from them.
        fields: The same fields with their names as in the answer. The corners are read from them first, then from
            `face`.
        boxed: Whether the face has fields of a box; if false, only the corners are read.
    """
    found: tuple[float | None, ...] = (None,) * len(_SIDES)
    if boxed:
        box = _with_normalized_keys(_first(face, _BOXES)) or face
        found = tuple([to_float(_first(box, names)) for names in _SIDES])
        if None not in found:
            return found
    around = read_polygon(fields) or read_polygon({"bounding_poly": _first(face, ("boundingpoly", "fdboundingpoly"))})
    return _box_around(*zip(*around, strict=True)) if around else found


def _age(face: dict[str, Any]) -> tuple[float | None, float | None]:
    """Return the lower and the upper end of a face's age in years; None for an end that is unknown.

    If the answer states a single age, both ends are equal.
    """
    answered = _first(face, ("agerange", "age"))
    span = _with_normalized_keys(answered)
    if span:
        return to_float(_first(span, ("low", "min"))), to_float(_first(span, ("high", "max")))
    exact = to_float(answered)
    if exact is not None:
        return exact, exact
    if isinstance(answered, str) and (found := _AGE_SPAN.fullmatch(answered)):
        low, high = found.group(1), found.group(2) or found.group(1)
        return float(low), float(high)
    return to_float(_first(face, ("agelow", "agemin"))), to_float(_first(face, ("agehigh", "agemax")))


def _gender(face: dict[str, Any]) -> tuple[str | None, float | None]:
    answered = face.get("gender")
    inner = _with_normalized_keys(answered)
    word = _first(inner, ("value", "name", "label")) if inner else answered
    score = _first(inner, _SCORES) if inner else _first(face, ("genderscore", "genderconfidence"))
    return word if isinstance(word, str) else None, _scores({"": score}).get("")


def _emotions(face: dict[str, Any]) -> list[tuple[str, float | None]] | None:
    """Return (emotion, score from 0 to 1) for each emotion of a face; None if the answer states no emotion."""
    answered = face.get("emotions")
    answered = face.get("emotion") if answered is None else answered
    found: dict[str, Any] = {}
    if isinstance(answered, dict):
        found = dict(answered)
    elif isinstance(answered, str):
        found = {answered: face.get("emotionscore")}
    elif isinstance(answered, list):
        for one in answered:
            inner = _with_normalized_keys(one)
            word = one if isinstance(one, str) else _first(inner, _NAMES)
            if isinstance(word, str):
                found[word] = _first(inner, _SCORES)
    for key, word in _LIKELIHOOD_EMOTIONS.items():
        if key in face:
            found.setdefault(word, face[key])
    return list(_scores(found).items()) or None


def _scores(answered: dict[str, Any]) -> dict[str, float | None]:
    """Convert `answered`, a mapping from names to numbers or likelihood words (`VERY_LIKELY`), to name → score, 0 to 1.

    If any number exceeds 1, all numbers are taken as per cent. A value that is neither a number nor a known word gives
    None.
    """
    scores = {name: to_float(value) for name, value in answered.items()}
    in_per_cent = any(score is not None and score > 1 for score in scores.values())
    scale = _PER_CENT if in_per_cent else 1.0
    return {
        name: likelihood_score(answered[name]) if score is None else score / scale for name, score in scores.items()
    }
