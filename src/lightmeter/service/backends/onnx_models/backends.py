"""Back ends for the operator's ONNX models: classifier, detector and embedding."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lightmeter.cpu_count import process_cpu_count
from lightmeter.errors import BackendError, SettingsError
from lightmeter.media.image_transforms import LetterboxedImage
from lightmeter.service.backends.base import RGB, Backend, BackendTraits, PictureBackend
from lightmeter.service.backends.onnx_models.boxes import Floats, boxes_to_fractions, non_maximum_suppression
from lightmeter.service.backends.onnx_models.detections import Candidates, decoder_for, detect_format
from lightmeter.service.backends.onnx_models.model import OnnxModel
from lightmeter.service.backends.onnx_models.settings import OnnxModelSettings
from lightmeter.service.backends.onnx_session import PICTURES_A_CALL
from lightmeter.wire.constants import DEFAULT_TAG_SCORE
from lightmeter.wire.response import Embedding, Entries, Nsfw, Tag

DETECTOR_THRESHOLD: Final = 0.25
"""Detectors return no box with a lower score than this, if the setting `threshold` is not set. Ultralytics has the
same default."""

CLASSIFIER_THRESHOLD: Final = 0.01
"""Classifiers return no tag with a lower score than this, if the setting `threshold` is not set."""

DIGITS: Final = 4
"""Decimal places to which returned scores and boxes are rounded."""

VECTOR_DIGITS: Final = 7
"""Decimal places to which returned vectors are rounded: the precision of a 32-bit float."""

MAX_BOXES: Final = 100
"""Maximum number of boxes of one class in one picture."""

TOLERANCE: Final = 1e-3
"""Outputs this far below 0 or above 1 still count as probabilities, because half-precision numbers have only three
digits."""

Activation: TypeAlias = Literal["softmax", "sigmoid", "none"]


def are_scores(outputs: NDArray[np.floating]) -> bool:
    """Return whether all outputs of a model are from 0 to 1, so that no softmax or sigmoid is needed."""
    return bool(np.all((outputs >= -TOLERANCE) & (outputs <= 1 + TOLERANCE)))


def apply_activation(outputs: Floats, activation: Activation) -> Floats:
    """Convert a model's `outputs` to scores, 0 to 1.

    `softmax` applies the softmax function over the last axis, `sigmoid` the sigmoid function; `none` clips the outputs.
    """
    match activation:
        case "softmax":
            exponentials = np.exp(outputs - outputs.max(axis=-1, keepdims=True))
            scores: Floats = exponentials / exponentials.sum(axis=-1, keepdims=True)
        case "sigmoid":
            # tanh does not overflow, as exp would
            scores = np.float32(0.5) * (1 + np.tanh(outputs / 2))
        case "none":
            scores = np.clip(outputs, 0, 1)
    return scores


def rescale_score(score: float, decision_threshold: float) -> float:
    """Rescale a score, 0 to 1, so that `decision_threshold` becomes 0.9, the default minimum score of returned tags.

    The odds score / (1 - score) are multiplied by a constant. Scores of 0 and 1 do not change, nor does the order of
    several scores.
    """
    if decision_threshold == DEFAULT_TAG_SCORE:
        return score
    odds = (DEFAULT_TAG_SCORE / (1 - DEFAULT_TAG_SCORE)) / (decision_threshold / (1 - decision_threshold))
    return odds * score / (1 + (odds - 1) * score)


def make_onnx_backend(name: str, settings: OnnxModelSettings, base_dir: Path) -> Backend:
    """Create a back end for an ONNX file: load the model and run it on test pictures.

    Args:
        name: Name in requests, lowercase.
        settings: The operator's settings of the model.
        base_dir: Folder of the settings file, from which relative paths start.

    Raises:
        SettingsError: a file is missing, or the model does not fit the settings; the message starts with the names of
            the back end and of the setting.
        BackendError: onnxruntime cannot run the model.
    """
    kinds: Mapping[str, type[_OnnxBackend]] = {
        "onnx-classifier": OnnxClassifier,
        "onnx-detector": OnnxDetector,
        "onnx-embedding": OnnxEmbedding,
    }
    missing = settings.missing_file(base_dir)
    if missing:
        raise SettingsError(f"backends.{name}: {missing}", hint=f"Relative paths start from {base_dir}.")
    try:
        return kinds[settings.kind](name, settings, base_dir)
    except (SettingsError, BackendError) as error:
        raise type(error)(f"backends.{name}: {error}", hint=error.hint) from error


class _OnnxBackend(PictureBackend):
    """Base class of the back ends that run an ONNX model; the constructor loads it.

    Attributes:
        model: Name of the model's file with the first digits of its SHA-256, such as `birds@0a1b2c3d4e5f`.
    """

    def __init__(self, name: str, settings: OnnxModelSettings, base_dir: Path) -> None:
        super().__init__()
        self.name = name
        self.features = frozenset({settings.offered_feature})
        self._settings = settings
        self._model = OnnxModel(settings, base_dir)
        self.model = self._model.name
        self.traits = BackendTraits(
            calls_at_once=process_cpu_count(), pictures_a_call=PICTURES_A_CALL, transform=self._model.input.transform
        )

    def _analyze_picture(self, picture: RGB, features: frozenset[str]) -> Entries:  # noqa: ARG002 (there is one feature)
        return self._entries(self._model.input.fit(picture))

    @abstractmethod
    def _entries(self, letterboxed: LetterboxedImage) -> Entries:
        """Run the model on a picture resized to the model's input, and return the entries (tags, embeddings, …).

        `letterboxed` is the resized picture.
        """

    def _tag(self, label: str, score: float, **fields: Any) -> Tag:
        shown = round(rescale_score(score, self._settings.decision_threshold), DIGITS)
        return Tag(name=label, score=shown, source=self.name, **fields)


class OnnxClassifier(_OnnxBackend):
    """Back end for the operator's own ONNX classifier: feature `tags`, or `nsfw` with numeric scores.

    Classes of the same name become one tag, with the highest of their scores.
    """

    def __init__(self, name: str, settings: OnnxModelSettings, base_dir: Path) -> None:
        super().__init__(name, settings, base_dir)
        self._output = self._model.output_index(settings.output)
        outputs = np.stack([self._model.vector(each, self._output) for each in self._model.test_outputs()])
        labels, count = self._model.labels(settings.labels, base_dir), outputs.shape[1]
        if max(labels) >= count or (len(labels) < count and not _may_skip_indices(settings)):
            raise SettingsError(
                f"labels: {len(labels)} names, the last for index {max(labels)}, and the model has {count} outputs.",
                hint="Check that the labels are those of the model.",
            )
        self._labels = sorted(labels.items())
        self._activation = settings.activation or _activation_of(outputs)
        self._threshold = CLASSIFIER_THRESHOLD if settings.threshold is None else settings.threshold

    def _entries(self, letterboxed: LetterboxedImage) -> Entries:
        scores = apply_activation(
            self._model.vector(self._model.run(letterboxed.canvas), self._output), self._activation
        )
        if not np.isfinite(scores).all():
            raise BackendError(f"The model {self.model} gives a score that is not a number.")
        best: dict[str, float] = {}
        for index, label in self._labels:
            best[label] = max(best.get(label, 0.0), float(scores[index]))
        ranked = sorted(best.items(), key=lambda item: -item[1])
        if self._settings.feature == "nsfw":
            entries = [Nsfw(label=label, score=round(score, DIGITS), source=self.name) for label, score in ranked]
            return Entries(nsfw=entries)
        shown = [(label, score) for label, score in ranked if score >= self._threshold]
        return Entries(tags={label: [self._tag(label, score)] for label, score in shown[: self._settings.top]})


def _may_skip_indices(settings: OnnxModelSettings) -> bool:
    """Return whether some class indices may have no label: true only if the labels come from a JSON file."""
    return isinstance(settings.labels, Path) and settings.labels.suffix.lower() == ".json"


def _activation_of(outputs: Floats) -> Activation:
    """Return the function (`none`, `softmax`, `sigmoid`) that converts a classifier's outputs to scores.

    It is chosen by the `outputs` for test pictures.
    """
    if are_scores(outputs):
        return "none"
    return "softmax" if outputs.shape[1] > 1 else "sigmoid"


class OnnxDetector(_OnnxBackend):
    """Back end for the operator's own ONNX detector: feature `tags`, one tag for each label that has a box.

    The score of a tag is the highest score of its boxes.

    Each tag has a field `boxes`, sorted by falling score: `left`, `top`, `width` and `height` as fractions of the
    picture, 0 to 1, and `score`.
    """

    def __init__(self, name: str, settings: OnnxModelSettings, base_dir: Path) -> None:
        super().__init__(name, settings, base_dir)
        model = self._model
        self._labels = model.labels(settings.labels, base_dir)
        test_runs, classes = model.test_outputs(), max(self._labels) + 1
        format_ = settings.format or detect_format(model.output_names, test_runs[0], classes)
        size = (model.input.width, model.input.height)
        self._decode = decoder_for(format_, model.output_names, test_runs[0], classes, size)
        raw = [self._decode(each).scores for each in test_runs]
        self._activation = settings.activation or ("none" if all(map(are_scores, raw)) else "sigmoid")
        self._threshold = DETECTOR_THRESHOLD if settings.threshold is None else settings.threshold

    def _entries(self, letterboxed: LetterboxedImage) -> Entries:
        candidates = self._decode(self._model.run(letterboxed.canvas))
        candidates = Candidates(
            candidates.boxes, apply_activation(candidates.scores, self._activation), candidates.classes
        )
        by_label: dict[str, tuple[list[list[float]], list[float]]] = {}
        for index, label in self._labels.items():
            boxes, scores = self._boxes_of_class(candidates, index)
            if len(boxes):
                all_boxes, all_scores = by_label.setdefault(label, ([], []))
                all_boxes.extend(boxes_to_fractions(boxes, letterboxed).tolist())
                all_scores.extend(scores.tolist())
        ranked = sorted(((label, *each) for label, each in by_label.items()), key=lambda item: -max(item[2]))
        return Entries(
            tags={
                label: [self._tag_with_boxes(label, boxes, scores)]
                for label, boxes, scores in ranked[: self._settings.top]
            }
        )

    def _boxes_of_class(self, candidates: Candidates, index: int) -> tuple[Floats, Floats]:
        """Return boxes `(n, 4)` and scores `(n,)` of class `index` among `candidates`; at most `MAX_BOXES` of them.

        A box is left, top, right, bottom, in pixels of the model's input. Boxes that score below the setting
        `threshold` are left out. Of two boxes whose intersection over union is above the setting `iou`, the one with
        the lower score is left out; this step is skipped if the model has already done it.
        """
        scores = candidates.scores if candidates.classes is not None else candidates.scores[:, index]
        wanted = (scores >= self._threshold) & np.isfinite(candidates.boxes).all(axis=1)
        if candidates.classes is not None:  # the model has already dropped overlapping boxes
            wanted &= candidates.classes == index
            return candidates.boxes[wanted][:MAX_BOXES], scores[wanted][:MAX_BOXES]
        boxes, scores = candidates.boxes[wanted], scores[wanted]
        selected = non_maximum_suppression(boxes, scores, self._settings.iou)[:MAX_BOXES]
        return boxes[selected], scores[selected]

    def _tag_with_boxes(self, label: str, boxes: Sequence[Sequence[float]], scores: Sequence[float]) -> Tag:
        best_first = sorted(zip(scores, boxes, strict=True), key=lambda pair: -pair[0])
        box_fields = [
            {
                "left": round(left, DIGITS),
                "top": round(top, DIGITS),
                "width": round(right - left, DIGITS),
                "height": round(bottom - top, DIGITS),
                "score": round(rescale_score(score, self._settings.decision_threshold), DIGITS),
            }
            for score, (left, top, right, bottom) in best_first
        ]
        return self._tag(label, best_first[0][0], boxes=box_fields)


class OnnxEmbedding(_OnnxBackend):
    """Back end for the operator's own ONNX embedding model: feature `embeddings`, a vector of unit length."""

    def __init__(self, name: str, settings: OnnxModelSettings, base_dir: Path) -> None:
        super().__init__(name, settings, base_dir)
        self._output = self._model.output_index(settings.output)
        for outputs in self._model.test_outputs():
            self._model.vector(outputs, self._output)

    def _entries(self, letterboxed: LetterboxedImage) -> Entries:
        vector = self._model.vector(self._model.run(letterboxed.canvas), self._output).astype(np.float64)
        length = float(np.linalg.norm(vector))
        if not np.isfinite(length) or length == 0:
            raise BackendError(f"The vector of {self.model} has length {length}: it cannot be scaled.")
        unit = [round(float(each), VECTOR_DIGITS) for each in vector / length]
        return Entries(embeddings=[Embedding(model=self.model, vector=unit, source=self.name)])
