"""Back end `centerface`: faces with age and gender, and the tag `person`.

CenterFace (Xu and others, "CenterFace: Joint Face Detection and Alignment Using Face as Point", 2019, MIT) finds
boxes and five landmarks; its file is `weights/centerface.onnx`. `face_attributes` estimates age and gender.

A picture is shrunk to at most 640 pixels a side, with its proportions, and padded to a multiple of 32. A box with a
low score is scored again in an enlarged crop, which removes most boxes without a face (towers, hens, electronics).

Measured by `tests/bench/quality/test_faces_quality.py`: it found 136 of the 137 faces in 56 pictures, and one face, a
monkey's, in 322 photographs without faces.

Limits:

- It misses faces narrower than about 8 pixels if the longer side has 640, faces turned beyond profile, and heads
  upside down.
- It reports painted faces, masks, statues and dolls as faces. The tag `person` depends on faces: people seen from
  behind or far away get none.
- Age is estimated within 12 years either way, gender as one of two words. Neither was checked for skin tones or age
  groups: do not base decisions about people on them.
- Emotions are not estimated, because no available network was reliable beyond "happy". Race is never estimated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from onnxruntime import InferenceSession
from PIL import Image

from lightmeter.cpu_count import process_cpu_count
from lightmeter.media.image_transforms import FitWithin, transform_array
from lightmeter.service.backends.base import RGB, BackendTraits, PictureBackend
from lightmeter.service.backends.local.face_attributes import FaceAttributes
from lightmeter.service.backends.onnx_models.boxes import non_maximum_suppression
from lightmeter.service.backends.onnx_session import PICTURES_A_CALL, open_session, packaged_file
from lightmeter.wire.response import Entries, Face, Tag

Floats: TypeAlias = NDArray[np.float32]

FACE_SIDE: Final = 640
"""Longer side of the network's input for faces, in pixels."""
TAG_SIDE: Final = 384
"""Longer side of the network's input if only the tag is requested, in pixels."""
MIN_SCORE: Final = 0.6
"""Lowest score of a returned face."""
PERSON: Final = "person"
"""Name of the only tag."""
LANDMARK_NAMES: Final = ("left_eye", "right_eye", "nose", "left_mouth_corner", "right_mouth_corner")
"""Names of the five landmarks, in the network's order; left and right as seen by the viewer."""

_TRANSFORM: Final = FitWithin(FACE_SIDE)
_INPUT: Final = "input.1"
_CANDIDATE: Final = 0.5
"""Lowest score of a candidate in the first pass."""
_ACCEPTED: Final = 0.8
"""Score from which a candidate is accepted at once; one with a lower score is scored again in a second pass."""
_MAX_SECOND_PASSES: Final = 32
"""Maximum number of second passes for one picture; each takes a sixteenth of the time of the first. If more candidates
need one, no second pass runs, and the scores of the first count."""
_CROP_SIDE: Final = 128
"""Width and height of the crop in a second pass, in pixels. The crop is twice as large as the candidate."""
_STRIDE: Final = 4
"""Input pixels for each cell of the output."""
_BLOCK: Final = 32
"""Width and height of the input are multiples of this."""
_MAX_OVERLAP: Final = 0.3
"""Intersection over union above which two boxes count as one face (the value of CenterFace's authors)."""


def person_score(score: float) -> float:
    """Return the probability that a picture shows a person, from the highest score of its faces; both 0 to 1.

    The logistic curve was fitted on faces found in 58 photographs: of faces with a score below .8, half were people,
    of those from .85 on nearly all (the others: statues, masks, a doll, a mannequin and a monkey).
    Paintings and drawings were excluded: a painted face can score as high as a real one.

    ======  =====  =====  =====  =====  =====
    face    0.70   0.80   0.85   0.90   0.95
    person  0.109  0.668  0.891  0.971  0.993
    ======  =====  =====  =====  =====  =====
    """
    return round(1 / (1 + math.exp(-(2.1 + 28 * (score - 0.85)))), 4)


@dataclass(frozen=True, slots=True)
class FaceDetections:
    """Faces in one picture, by falling score, in pixels of the picture.

    Attributes:
        boxes: Array `(n, 4)`: left, top, right, bottom, inside the picture.
        points: Array `(n, 5, 2)`: x and y of left eye, right eye, nose, left and right corner of the mouth, as the
            viewer sees them; landmarks of a face at the edge may lie outside the picture.
        scores: Array `(n,)`, 0 to 1.
    """

    boxes: Floats
    points: Floats
    scores: Floats


def decode_faces(outputs: Sequence[Floats], width: int, height: int) -> FaceDetections:
    """Decode the four output maps of the network CenterFace, whose cells are 4 x 4 pixels, to face candidates.

    Left out are scores up to 0.5, boxes with a side under 1 pixel, and boxes whose intersection over union with a box
    of a higher score is above 0.3.

    Args:
        outputs: Four arrays: score `(1, 1, h, w)`; logarithm of height and width in cells `(1, 2, h, w)`; offset of the
            center in cells, down and across `(1, 2, h, w)`; landmarks as fractions of the box, y before x
            `(1, 10, h, w)`.
        width: Width of the picture without padding, in pixels.
        height: Height of the picture without padding, in pixels.
    """
    score, size, offset, landmarks = (output[0] for output in outputs)
    rows, columns = np.nonzero(score[0] > _CANDIDATE)
    scores = score[0, rows, columns]
    spans = np.exp(size[:, rows, columns]) * _STRIDE
    middles = (np.stack([rows, columns]) + offset[:, rows, columns] + 0.5) * _STRIDE
    starts = middles - spans / 2
    points = landmarks[:, rows, columns].reshape(len(LANDMARK_NAMES), 2, -1) * spans + starts
    boxes = np.concatenate([starts[::-1], (starts + spans)[::-1]]).T
    boxes = np.clip(boxes, 0, [width, height, width, height]).astype(np.float32)
    not_empty = np.flatnonzero((boxes[:, 2:] - boxes[:, :2]).min(axis=1, initial=np.inf) >= 1)
    selected = not_empty[non_maximum_suppression(boxes[not_empty], scores[not_empty], _MAX_OVERLAP)]
    return FaceDetections(boxes[selected], points[:, ::-1].transpose(2, 0, 1)[selected], scores[selected])


class CenterFace(PictureBackend):
    """Back end `centerface`: features `faces` and `tags` (the one tag `person`).

    A face has `score`, `bounding_box`, five `landmarks` (eyes, nose, corners of the mouth) and, unless the eyes are too
    close together to estimate them, `age_range` and `gender`. The service shrinks pictures to a longer side of at most
    640 pixels before the call; boxes and landmarks are in pixels of the shrunk picture.
    """

    name = "centerface"
    features = frozenset({"faces", "tags"})
    traits = BackendTraits(calls_at_once=process_cpu_count(), pictures_a_call=PICTURES_A_CALL, view=_TRANSFORM)

    def _load(self) -> None:
        self._session: InferenceSession = open_session(
            packaged_file("lightmeter/service/backends/local/weights/centerface.onnx")
        )
        self._attributes = FaceAttributes()

    def detect(self, picture: RGB, side: int = FACE_SIDE) -> FaceDetections:
        """Find the faces of a picture. The models must be loaded.

        Args:
            picture: Height x width x 3, neither side longer than `FACE_SIDE`.
            side: Longer side, in pixels, to which the picture is shrunk to find faces; a smaller one is not enlarged.

        Returns:
            Faces with a score of at least `MIN_SCORE`, in pixels of `picture`.
        """
        resized = transform_array(picture, FitWithin(side))
        height, width = picture.shape[:2]
        found = decode_faces(self._run(resized), resized.shape[1], resized.shape[0])
        scale = np.array([width / resized.shape[1], height / resized.shape[0]], np.float32)
        boxes, points, scores = found.boxes * np.tile(scale, 2), found.points * scale, found.scores.copy()
        uncertain = np.flatnonzero(scores < _ACCEPTED)
        if 0 < uncertain.size <= _MAX_SECOND_PASSES:
            whole = Image.fromarray(np.ascontiguousarray(picture))
            scores[uncertain] = [self._second_pass_score(whole, boxes[index]) for index in uncertain]
        order = np.argsort(-scores, kind="stable")
        order = order[scores[order] >= MIN_SCORE]
        return FaceDetections(boxes[order], points[order], scores[order])

    def _run(self, resized: RGB) -> list[Floats]:
        """Run CenterFace on a picture, and return its four output maps, which `decode_faces` decodes.

        `resized` is the picture in the size in which faces are searched; black is added to the right and below.
        """
        height, width = resized.shape[:2]
        canvas = np.zeros((1, 3, height + -height % _BLOCK, width + -width % _BLOCK), np.float32)
        canvas[0, :, :height, :width] = resized.transpose(2, 0, 1)
        maps: list[Floats] = self._session.run(None, {_INPUT: canvas})
        return maps

    def _second_pass_score(self, whole: Image.Image, box: Floats) -> float:
        """Return the score, 0 to 1, of the face in an enlarged crop around `box` of the picture `whole`; 0: no face."""
        left, top, right, bottom = (float(edge) for edge in box)
        middle_x, middle_y, half_side = (left + right) / 2, (top + bottom) / 2, max(right - left, bottom - top)
        crop = (middle_x - half_side, middle_y - half_side, middle_x + half_side, middle_y + half_side)
        square = (_CROP_SIDE, _CROP_SIDE)
        enlarged = whole.transform(square, Image.Transform.EXTENT, crop, Image.Resampling.BILINEAR)
        found = decode_faces(self._run(np.asarray(enlarged)), *square)
        middle = _CROP_SIDE / 2
        covers_center = (found.boxes[:, :2] < middle).all(axis=1) & (found.boxes[:, 2:] > middle).all(axis=1)
        return float(found.scores[covers_center].max(initial=0.0))

    def _analyze_picture(self, picture: RGB, features: frozenset[str]) -> Entries:
        resized = transform_array(picture, _TRANSFORM)
        if "faces" not in features:
            return Entries(tags=self._tags(self.detect(resized, TAG_SIDE)))
        found = self.detect(resized)
        attributes = self._attributes.read(resized, found.points, found.boxes[:, 2] - found.boxes[:, 0])
        faces = [self._face(*parts) for parts in zip(found.boxes, found.points, found.scores, attributes, strict=True)]
        return Entries(faces=faces, tags=self._tags(found) if "tags" in features else {})

    def _tags(self, found: FaceDetections) -> dict[str, list[Tag]]:
        if not found.scores.size:
            return {}
        return {PERSON: [Tag(name=PERSON, score=person_score(float(found.scores[0])), source=self.name)]}

    def _face(self, box: Floats, points: Floats, score: np.float32, attributes: dict[str, Any]) -> Face:
        left, top, right, bottom = (round(float(edge), 1) for edge in box)
        fields = {
            "score": round(min(float(score), 1.0), 4),
            "bounding_box": {
                "left": left,
                "top": top,
                "width": round(right - left, 1),
                "height": round(bottom - top, 1),
            },
            "landmarks": [
                {"type": name, "x": round(float(x), 1), "y": round(float(y), 1)}
                for name, (x, y) in zip(LANDMARK_NAMES, points, strict=True)
            ],
            **attributes,
        }
        return Face(source=self.name, **fields)
