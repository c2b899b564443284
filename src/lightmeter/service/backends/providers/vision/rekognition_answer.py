"""Types of Amazon Rekognition's answers, and their conversion to entries.

Source: the reference of the operations DetectFaces, DetectLabels and DetectModerationLabels. Confidences are
percentages; boxes are fractions of the picture's sides.
"""

from __future__ import annotations

import math
from typing import Any, Final, TypeVar

import msgspec

from lightmeter.service.backends.providers.failures import CallFailed, FailureKind
from lightmeter.service.backends.providers.vision.adapter import EncodedPicture, to_score, to_tags
from lightmeter.wire.response import Face, Nsfw, Tag

T = TypeVar("T")

_PER_CENT: Final = 100.0

_FLAGS: Final = (
    *("smile", "eyeglasses", "sunglasses", "beard", "mustache", "eyes_open", "mouth_open", "face_occluded"),
)


class _Pascal(msgspec.Struct, rename="pascal", frozen=True):
    """Base of the types of Rekognition's answers, which have names in PascalCase; unknown fields are ignored."""


class _Label(_Pascal, frozen=True):
    name: str
    confidence: float
    parent_name: str = ""


class _Box(_Pascal, frozen=True):
    """Box around a face, in fractions of the picture's width and height; at the edge, it may reach beyond 0 to 1."""

    left: float
    top: float
    width: float
    height: float


class _AgeRange(_Pascal, frozen=True):
    low: int
    high: int


class _Gender(_Pascal, frozen=True):
    value: str
    confidence: float


class _Emotion(_Pascal, frozen=True):
    type: str
    confidence: float


class _Flag(_Pascal, frozen=True):
    value: bool
    confidence: float


class _FaceDetail(_Pascal, frozen=True):
    bounding_box: _Box
    confidence: float = 0.0
    age_range: _AgeRange | None = None
    gender: _Gender | None = None
    emotions: tuple[_Emotion, ...] = ()
    smile: _Flag | None = None
    eyeglasses: _Flag | None = None
    sunglasses: _Flag | None = None
    beard: _Flag | None = None
    mustache: _Flag | None = None
    eyes_open: _Flag | None = None
    mouth_open: _Flag | None = None
    face_occluded: _Flag | None = None


def _convert(answer: dict[str, Any], field: str, kind: type[T]) -> list[T]:
    """Return the list `answer[field]` as instances of the type `kind`; raise `CallFailed` if the list does not fit."""
    try:
        return msgspec.convert(answer.get(field), type=list[kind])  # type: ignore[valid-type]  # the type is a variable
    except msgspec.ValidationError as error:
        raise CallFailed(FailureKind.MALFORMED, str(error)) from None


def read_labels(answer: dict[str, Any], picture: EncodedPicture, source: str) -> dict[str, list[Tag]]:  # noqa: ARG001
    """Return tags from a decoded answer of DetectLabels; `source` is the name of the back end, `picture` is not used.

    Raises:
        CallFailed: the answer is invalid.
    """
    labels = _convert(answer, "Labels", _Label)
    return to_tags(((label.name, to_score(label.confidence, _PER_CENT)) for label in labels), source)


def read_moderation_labels(answer: dict[str, Any], picture: EncodedPicture, source: str) -> list[Nsfw]:  # noqa: ARG001
    """Return labels of unsafe content from a decoded answer of DetectModerationLabels.

    A label's `parent` is the more general label, if any; `source` is the name of the back end; `picture` is not used.

    Raises:
        CallFailed: the answer is invalid.
    """
    entries = []
    for label in _convert(answer, "ModerationLabels", _Label):
        entry = {"label": label.name, "score": to_score(label.confidence, _PER_CENT), "source": source}
        if label.parent_name:
            entry["parent"] = label.parent_name
        entries.append(Nsfw.model_validate(entry))
    return entries


def read_faces(answer: dict[str, Any], picture: EncodedPicture, source: str) -> list[Face]:
    """Return faces from a decoded answer of DetectFaces, with boxes in pixels of `picture`.

    `source` is the name of the back end, which becomes the `source` of each face.

    Raises:
        CallFailed: the answer is invalid.
    """
    details = _convert(answer, "FaceDetails", _FaceDetail)
    return [Face.model_validate(_face(detail, picture) | {"source": source}) for detail in details]


def _face(detail: _FaceDetail, picture: EncodedPicture) -> dict[str, Any]:
    box = detail.bounding_box
    face: dict[str, Any] = {
        "bounding_box": {
            "left": _pixels(box.left, picture.width),
            "top": _pixels(box.top, picture.height),
            "width": _pixels(box.width, picture.width),
            "height": _pixels(box.height, picture.height),
        },
        "confidence": to_score(detail.confidence, _PER_CENT),
    }
    if detail.age_range is not None:
        face["age_range"] = msgspec.structs.asdict(detail.age_range)
    for name in ("gender", *_FLAGS):
        if (found := getattr(detail, name)) is not None:
            face[name] = _with_score(found)
    if detail.emotions:
        face["emotions"] = [_with_score(emotion) for emotion in detail.emotions]
    return face


def _with_score(found: _Gender | _Emotion | _Flag) -> dict[str, Any]:
    """Return the fields of a gender, emotion or flag (such as `smile`); `confidence`, in percent, becomes 0 to 1."""
    return msgspec.structs.asdict(found) | {"confidence": to_score(found.confidence, _PER_CENT)}


def _pixels(fraction: float, side: int) -> float:
    pixels = fraction * side
    if not math.isfinite(pixels):
        raise CallFailed(FailureKind.MALFORMED, "a box has no finite coordinates")
    return round(pixels, 2)
