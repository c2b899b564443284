"""What is said about a face, found in the words of any back end. Pure.

The contract leaves the fields of a face open. Those of the known providers are found whatever their case and
underscores (`BoundingBox`, `bounding_box`); everything else stays in the column `raw`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import repeat
from typing import Any, Final

import numpy as np

from lightmeter.tables.severity import likelihood_score
from lightmeter.tables.shapes import corners, number

__all__ = ["FACE_COLUMNS", "read_faces"]

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


def read_faces(faces: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    """The values of `FACE_COLUMNS` of many faces, by column; None for what is not said."""
    alike: dict[tuple[str, ...], list[int]] = {}
    for place, fields in enumerate(faces):
        alike.setdefault(tuple(fields), []).append(place)
    told: list[tuple[Any, ...]] = [()] * len(faces)
    for keys, places in alike.items():
        group = [faces[place] for place in places]
        for place, values in zip(places, _together(keys, group) or map(_values, group), strict=True):
            told[place] = values
    return {column: [values[place] for values in told] for place, column in enumerate(FACE_COLUMNS)}


def _together(keys: tuple[str, ...], faces: list[dict[str, Any]]) -> list[tuple[Any, ...]] | None:
    """As `_values` of each face, where all say corners and likelihoods as Google does and nothing else; or None."""
    felt = _likelihoods(keys)
    if felt is None:
        return None
    words = {emotion: [face[key] for face in faces] for emotion, key in felt}
    boxes = _boxes(faces)
    if boxes is None or any(set(map(type, said)) != {str} for said in words.values()):
        return None
    steps = {word: likelihood_score(word) for said in words.values() for word in set(said)}
    pairs = [[(emotion, steps[word]) for word in said] for emotion, said in words.items()]
    emotions = map(list, zip(*pairs, strict=True)) if pairs else repeat(None, len(faces))
    return [(*box, None, None, None, None, emotion) for box, emotion in zip(boxes, emotions, strict=True)]


def _boxes(faces: list[dict[str, Any]]) -> Iterator[tuple[float, ...]] | None:
    """Left, top, width and height of each face by its corners, or None where any has them otherwise or none."""
    try:
        vertices = [face["bounding_poly"]["vertices"] for face in faces]
        sides = [[corner[side] for around in vertices for corner in around] for side in "xy"]
        counts = [len(around) for around in vertices]
        if 0 in counts or not {kind for side in sides for kind in map(type, side)} <= {int, float}:
            return None
        across, down = np.array(sides, np.float64)
    except (TypeError, KeyError, OverflowError):
        return None
    if not (np.isfinite(across).all() and np.isfinite(down).all()):
        return None
    starts = np.cumsum([0, *counts[:-1]])
    left, top = (np.minimum.reduceat(side, starts) for side in (across, down))
    right, bottom = (np.maximum.reduceat(side, starts) for side in (across, down))
    return zip(*(side.tolist() for side in (left, top, right - left, bottom - top)), strict=True)


@lru_cache(maxsize=1024)
def _likelihoods(keys: tuple[str, ...]) -> tuple[tuple[str, str], ...] | None:
    """Emotion and key of each likelihood, where keys speak of these and of corners at most, each once; else None."""
    names, speaks_of = _spoken_of(keys)
    plain = speaks_of <= {"emotion"} and not any(name.startswith("emotion") for name in names)
    if not plain or len(set(names)) < len(names) or "bounding_poly" not in keys:
        return None
    return tuple((word, keys[names.index(name)]) for name, word in _LIKELIHOOD_EMOTIONS.items() if name in names)


def _values(fields: dict[str, Any]) -> tuple[Any, ...]:
    names, speaks_of = _spoken_of(tuple(fields))
    face = dict(zip(names, fields.values(), strict=True))
    box = _box(face, fields, boxed="box" in speaks_of)
    age = _age(face) if "age" in speaks_of else (None, None)
    gender = _gender(face) if "gender" in speaks_of else (None, None)
    return *box, *age, *gender, _emotions(face) if "emotion" in speaks_of else None


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
    around = corners(fields) or corners({"bounding_poly": _first(face, ("boundingpoly", "fdboundingpoly"))})
    if not around:
        return found
    across, down = zip(*around, strict=True)
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
    if set(map(type, said.values())) == {str}:
        return {name: likelihood_score(value) for name, value in said.items()}
    scores = {name: number(value) for name, value in said.items()}
    in_per_cent = any(score is not None and score > 1 for score in scores.values())
    scale = _PER_CENT if in_per_cent else 1.0
    return {name: likelihood_score(said[name]) if score is None else score / scale for name, score in scores.items()}
