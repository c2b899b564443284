"""Back end `centerface`: faces with age and gender, and the tag `person`.

CenterFace (Xu and others, "CenterFace: Joint Face Detection and Alignment Using Face as Point", 2019, MIT) finds
boxes and five landmarks; its file is `weights/centerface.onnx`. `face_attributes` estimates age and gender.

A picture is shrunk to at most 640 pixels a side, without a change of its proportions, and padded to a multiple of 32.
Each box with a low score gets a new score from an enlarged crop around the box. This second pass removes most boxes
that show no face (towers, hens, electronics).

Measured by `tests/bench/quality/test_faces_quality.py`: it found 136 of the 137 faces in 56 pictures. In 322
photographs without human faces, it reported one face, that of a monkey.

Limits:

- It misses faces narrower than about 8 pixels in a picture whose longer side has 640, faces turned beyond profile, and
  heads upside down.
- It reports painted faces, masks, statues and dolls as faces. The tag `person` depends on faces: a picture of people
  seen only from behind or from far away does not get it.
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
"""Longer side of the network's input, in pixels, if a request wants faces."""
TAG_SIDE: Final = 384
"""Longer side of the network's input, in pixels, if a request wants only the tag `person`."""
MIN_SCORE: Final = 0.6
"""Faces with a lower score are not returned."""
PERSON: Final = "person"
"""Name of the only tag that this back end returns."""
LANDMARK_NAMES: Final = ("left_eye", "right_eye", "nose", "left_mouth_corner", "right_mouth_corner")
"""Names of the five landmarks, in the network's order; left and right as seen by the viewer."""

_TRANSFORM: Final = FitWithin(FACE_SIDE)
_INPUT: Final = "input.1"
_CANDIDATE: Final = 0.5
"""A box is a candidate for a face only if the network's score for it is above this."""
_ACCEPTED: Final = 0.8
"""Candidates with at least this score are accepted at once. Candidates with a lower score get a new score in a
second pass, which runs the network on an enlarged crop."""
_MAX_SECOND_PASSES: Final = 32
"""Maximum number of second passes for one picture. Each takes a sixteenth of the time of the first pass. If more
candidates need a second pass, none gets one, and all keep the scores of the first pass."""
_CROP_SIDE: Final = 128
"""Width and height, in pixels, to which the crop for a second pass is resized. The crop is centered on the candidate
and twice as large."""
_STRIDE: Final = 4
"""One cell of the network's output maps stands for a square of the input with sides of this many pixels."""
_BLOCK: Final = 32
"""Width and height of the network's input must be multiples of this, in pixels."""
_MAX_OVERLAP: Final = 0.3
"""Intersection over union above which two boxes count as one face (the value of CenterFace's authors)."""


def person_score(score: float) -> float:
    """Return the probability that a picture shows a person.

    `score` is the highest score of a face in the picture. Both numbers are from 0 to 1.

    The logistic curve was fitted on faces found in 58 photographs. Of the faces with a score below .8, half belonged to
    people; of those with .85 and more, nearly all did. The rest were statues, masks, a doll, a mannequin and a monkey.
    Paintings and drawings were excluded: a painted face can score as high as a real one.

    ======  =====  =====  =====  =====  =====
    face    0.70   0.80   0.85   0.90   0.95
    person  0.109  0.668  0.891  0.971  0.993
    ======  =====  =====  =====  =====  =====
    """
    return round(1 / (1 + math.exp(-(2.1 + 28 * (score - 0.85)))), 4)


@dataclass(frozen=True, slots=True)
class FaceDetections:
    """Faces in one picture, highest score first, with positions in pixels of the picture.

    Attributes:
        boxes: Array `(n, 4)`: left, top, right, bottom, inside the picture.
        points: Array `(n, 5, 2)`: x and y of five landmarks: left eye, right eye, nose, left and right corner of the
            mouth. Left and right are as the viewer sees them. Landmarks of a face at the edge may lie outside the
            picture.
        scores: Array `(n,)`, 0 to 1.
    """

    boxes: Floats
    points: Floats
    scores: Floats


def decode_faces(outputs: Sequence[Floats], width: int, height: int) -> FaceDetections:
    """Convert the four output maps of the network CenterFace to face candidates, highest score first.

    A cell of a map stands for 4 x 4 pixels of the picture. Left out are boxes with a score up to 0.5, boxes with a side
    under 1 pixel, and boxes whose intersection over union with a box of a higher score is above 0.3.

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
    """Back end `centerface`: features `faces` and `tags` (only the tag `person`).

    A face has `score`, `bounding_box`, five `landmarks` (eyes, nose, corners of the mouth), `age_range` and `gender`.
    The last two are missing if the eyes are too close together to estimate them. The service shrinks pictures to a
    longer side of at most 640 pixels before the call; boxes and landmarks are in pixels of the shrunk picture.
    """

    name = "centerface"
    features = frozenset({"faces", "tags"})
    traits = BackendTraits(calls_at_once=process_cpu_count(), pictures_a_call=PICTURES_A_CALL, transform=_TRANSFORM)

    def _load(self) -> None:
        self._session: InferenceSession = open_session(
            packaged_file("lightmeter/service/backends/local/weights/centerface.onnx")
        )
        self._attributes = FaceAttributes()

    def detect(self, picture: RGB, side: int = FACE_SIDE) -> FaceDetections:
        """Find the faces of a picture. The models must be loaded.

        Args:
            picture: Height x width x 3, neither side longer than `FACE_SIDE`.
            side: Longer side, in pixels, to which a copy of the picture is shrunk before the search. A smaller picture
                is not enlarged.

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

        `resized` is the picture, already shrunk or enlarged for the search. Black pixels are added to its right and
        below it, because the network's input must have a multiple of `_BLOCK` pixels a side.
        """
        height, width = resized.shape[:2]
        canvas = np.zeros((1, 3, height + -height % _BLOCK, width + -width % _BLOCK), np.float32)
        canvas[0, :, :height, :width] = resized.transpose(2, 0, 1)
        maps: list[Floats] = self._session.run(None, {_INPUT: canvas})
        return maps

    def _second_pass_score(self, whole: Image.Image, box: Floats) -> float:
        """Return the score, 0 to 1, of the candidate face `box` in an enlarged crop of the picture `whole` around it.

        `box` is left, top, right, bottom, in pixels of `whole`. Return 0 if the network finds no face at the center of
        the crop.
        """
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
        attributes = self._attributes.estimate(resized, found.points, found.boxes[:, 2] - found.boxes[:, 0])
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
