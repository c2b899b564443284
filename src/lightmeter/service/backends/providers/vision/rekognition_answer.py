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
    """Base class of the types of Rekognition's answers, whose fields have PascalCase names in JSON.

    Unknown fields are ignored.
    """


class _Label(_Pascal, frozen=True):
    name: str
    confidence: float
    parent_name: str = ""


class _Box(_Pascal, frozen=True):
    """Box around a face, as fractions of the picture's width and height.

    If the face is at the picture's edge, the box may reach beyond the picture (below 0 or above 1).
    """

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
    """Return the list `answer[field]` as instances of the type `kind`.

    Raises:
        CallFailed: `answer[field]` is missing, or does not fit the type.
    """
    try:
        return msgspec.convert(answer.get(field), type=list[kind])  # type: ignore[valid-type]  # the type is a variable
    except msgspec.ValidationError as error:
        raise CallFailed(FailureKind.MALFORMED, str(error)) from None


def read_labels(answer: dict[str, Any], picture: EncodedPicture, source: str) -> dict[str, list[Tag]]:  # noqa: ARG001
    """Return the tags in a decoded answer of DetectLabels, as `to_tags` does: tag name → list of one `Tag`.

    `source` is the name of the back end, which becomes the `source` of each tag. `picture` is not used.

    Raises:
        CallFailed: the answer is invalid.
    """
    labels = _convert(answer, "Labels", _Label)
    return to_tags(((label.name, to_score(label.confidence, _PER_CENT)) for label in labels), source)


def read_moderation_labels(answer: dict[str, Any], picture: EncodedPicture, source: str) -> list[Nsfw]:  # noqa: ARG001
    """Return labels of unsafe content from a decoded answer of DetectModerationLabels.

    If a label belongs to a more general label, its field `parent` names that label. `source` is the name of the back
    end, which becomes the `source` of each label. `picture` is not used.

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
    """Return the fields of a gender, an emotion or a flag (such as `smile`) as a dictionary.

    The field `confidence` is converted from percent to a fraction, 0 to 1.
    """
    return msgspec.structs.asdict(found) | {"confidence": to_score(found.confidence, _PER_CENT)}


def _pixels(fraction: float, side: int) -> float:
    pixels = fraction * side
    if not math.isfinite(pixels):
        raise CallFailed(FailureKind.MALFORMED, "a box has no finite coordinates")
    return round(pixels, 2)
