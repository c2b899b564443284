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
    """Base of types with fields in PascalCase; unknown fields are ignored."""


class _Label(_Pascal, frozen=True):
    name: str
    confidence: float


class _Labels(_Pascal, frozen=True):
    labels: tuple[_Label, ...]


class _ModerationLabel(_Pascal, frozen=True):
    name: str
    confidence: float
    parent_name: str = ""


class _ModerationLabels(_Pascal, frozen=True):
    moderation_labels: tuple[_ModerationLabel, ...]


class _Box(_Pascal, frozen=True):
    """Box in fractions of the picture's width and height; at the edge, it may reach beyond 0 to 1."""

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


class _FaceDetails(_Pascal, frozen=True):
    face_details: tuple[_FaceDetail, ...]


def _convert(answer: dict[str, Any], kind: type[T]) -> T:
    try:
        return msgspec.convert(answer, type=kind)
    except msgspec.ValidationError as error:
        raise CallFailed(FailureKind.MALFORMED, str(error)) from None


def read_labels(answer: dict[str, Any], picture: EncodedPicture, source: str) -> dict[str, list[Tag]]:  # noqa: ARG001
    """Return tags from an answer of DetectLabels.

    Args:
        answer: Decoded answer.
        picture: The picture that was sent.
        source: Name of the back end.

    Raises:
        CallFailed: the answer is invalid.
    """
    labels = _convert(answer, _Labels).labels
    return to_tags(((label.name, to_score(label.confidence, _PER_CENT)) for label in labels), source)


def read_moderation_labels(answer: dict[str, Any], picture: EncodedPicture, source: str) -> list[Nsfw]:  # noqa: ARG001
    """Return labels from an answer of DetectModerationLabels; `parent` is the more general label above it.

    Args:
        answer: Decoded answer.
        picture: The picture that was sent.
        source: Name of the back end.

    Raises:
        CallFailed: the answer is invalid.
    """
    entries = []
    for label in _convert(answer, _ModerationLabels).moderation_labels:
        entry = {"label": label.name, "score": to_score(label.confidence, _PER_CENT), "source": source}
        if label.parent_name:
            entry["parent"] = label.parent_name
        entries.append(Nsfw.model_validate(entry))
    return entries


def read_faces(answer: dict[str, Any], picture: EncodedPicture, source: str) -> list[Face]:
    """Return faces from an answer of DetectFaces, with boxes in pixels of the picture.

    Args:
        answer: Decoded answer.
        picture: The picture that was sent.
        source: Name of the back end.

    Raises:
        CallFailed: the answer is invalid.
    """
    details = _convert(answer, _FaceDetails).face_details
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
        face["age_range"] = {"low": detail.age_range.low, "high": detail.age_range.high}
    if detail.gender is not None:
        face["gender"] = {"value": detail.gender.value, "confidence": to_score(detail.gender.confidence, _PER_CENT)}
    if detail.emotions:
        face["emotions"] = [
            {"type": emotion.type, "confidence": to_score(emotion.confidence, _PER_CENT)} for emotion in detail.emotions
        ]
    for name in _FLAGS:
        flag = getattr(detail, name)
        if flag is not None:
            face[name] = {"value": flag.value, "confidence": to_score(flag.confidence, _PER_CENT)}
    return face


def _pixels(fraction: float, side: int) -> float:
    pixels = fraction * side
    if not math.isfinite(pixels):
        raise CallFailed(FailureKind.MALFORMED, "a box has no finite coordinates")
    return round(pixels, 2)
