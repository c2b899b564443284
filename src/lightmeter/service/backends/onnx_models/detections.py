"""Decoding of detector outputs to candidate boxes, for each export format.

N is the number of candidate boxes, C the number of classes. Boxes are in pixels of the model's input unless stated
otherwise. Scores are raw model outputs. A stride is the width, in input pixels, of each cell of an output grid;
n is the number of its cells. R is the longest distance, in strides, that a nanodet model can state.

========  =======================================  ==================================================================
format    outputs                                  meaning
========  =======================================  ==================================================================
yolov8    one, [1, 4+C, N] or [1, N, 4+C]          center x, center y, width, height, then a score for each class;
                                                   YOLOv8 to v12 of Ultralytics without non-maximum suppression
yolov5    one, [1, N, 5+C] or [1, 5+C, N]          as yolov8, but a score that the box shows any object precedes the
                                                   class scores. The product of the two is the score of a class;
                                                   YOLOv5 and YOLOv7
yolov10   one, [1, N, 6]                           left, top, right, bottom, score, class: YOLOv10, YOLO26, and
                                                   Ultralytics exports with `nms=True`
ssd       four: boxes [1, N, 4], classes [1, N],   boxes are top, left, bottom, right as shares of the input;
          scores [1, N], count [1]                 TensorFlow's detection models and TFLite's post-processing.
                                                   Outputs are told apart by `box`, `class`, `score`, and `num` or
                                                   `count` in their names. Without such names, they have this order
nanodet   for each stride [1, n, C] and            class scores, and a distribution of the distances from a
          [1, n, 4*(R+1)]; or both side by side    reference point to each side (left, top, right, bottom): the
          in one [1, N, C+4*(R+1)]                 logits of 0 to R strides. The point is the center of the cell
                                                   (NanoDet) or, in one output, its corner (NanoDet-Plus)
========  =======================================  ==================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lightmeter.errors import SettingsError
from lightmeter.service.backends.onnx_models.boxes import Floats, corners
from lightmeter.service.backends.onnx_models.model import ModelOutputs
from lightmeter.service.backends.onnx_models.settings import DetectorFormat

BOX_VALUES: Final = 4
YOLOV10_VALUES: Final = 6
"""Number of values for each box in the format `yolov10`: left, top, right, bottom, score, class."""

SSD_OUTPUTS: Final = 4
SSD_WORDS: Final = (("box",), ("class",), ("score",), ("num", "count"))

NANODET_PLUS_STRIDES: Final = (8, 16, 32, 64)
NANODET_STEPS: Final = range(2, 34)
"""Allowed values of R + 1: how many distances, 0 to R strides, NanoDet distinguishes between a cell's reference
point and a side of its box. Published models have 8 or 11."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """Candidate boxes that a detector found in one picture.

    Attributes:
        boxes: Array `(n, 4)`: left, top, right, bottom, in pixels of the model's input.
        scores: Raw scores, `(n, classes)`; `(n,)` if the model returns a single class for each box.
        classes: Array `(n,)`, class index of each box; None if `scores` has a column for each class.
    """

    boxes: Floats
    scores: Floats
    classes: NDArray[np.intp] | None = None


DetectionDecoder: TypeAlias = Callable[[ModelOutputs], Candidates]


def detect_format(names: Sequence[str], outputs: ModelOutputs, classes: int) -> DetectorFormat:
    """Return the format of a detector's outputs, recognized by their shapes.

    Args:
        names: Names of the outputs.
        outputs: Outputs for a test picture.
        classes: Number of class names.

    Raises:
        SettingsError: no supported format fits, or more than one.
    """
    shapes = [output.shape for output in outputs]
    formats: list[DetectorFormat] = []
    if len(outputs) == 1 and len(shapes[0]) == 3:  # noqa: PLR2004 (one picture, boxes, values)
        lengths = shapes[0][1:]
        if 4 + classes in lengths:
            formats.append("yolov8")
        if 5 + classes in lengths:
            formats.append("yolov5")
        if lengths[1] == YOLOV10_VALUES:
            formats.append("yolov10")
        if (lengths[1] - classes) / BOX_VALUES in NANODET_STEPS:
            formats.append("nanodet")
    elif len(outputs) == SSD_OUTPUTS and any(shape[-1:] == (BOX_VALUES,) for shape in shapes):
        formats.append("ssd")
    elif len(outputs) % 2 == 0 and _score_distance_pairs(outputs, classes) is not None:
        formats.append("nanodet")
    if len(formats) == 1:
        return formats[0]
    listed_outputs = ", ".join(f"{name} {list(shape)}" for name, shape in zip(names, shapes, strict=True))
    conclusion = f"could be {' or '.join(formats)}" if formats else "are of no supported format"
    raise SettingsError(
        f"labels, format: with {classes} labels, the detector's outputs ({listed_outputs}) {conclusion}.",
        hint="Check that the labels are those of the model, or set format.",
    )


def decoder_for(
    format_: DetectorFormat, names: Sequence[str], outputs: ModelOutputs, classes: int, size: tuple[int, int]
) -> DetectionDecoder:
    """Return the function that decodes a detector's outputs to candidate boxes.

    Args:
        format_: Export format of the detector, such as `yolov8`.
        names: Names of the outputs.
        outputs: Outputs for a test picture.
        classes: Number of class names.
        size: Width and height of the input, in pixels.

    Raises:
        SettingsError: the outputs do not fit the format and the number of classes.
    """
    decoder: DetectionDecoder | None = None
    match format_:
        case "yolov8" | "yolov5":
            leading = BOX_VALUES if format_ == "yolov8" else BOX_VALUES + 1
            if len(outputs) == 1 and outputs[0].ndim == 3 and leading + classes in outputs[0].shape[1:]:  # noqa: PLR2004
                decoder = partial(_yolo, width=leading + classes, leading=leading)
        case "yolov10":
            if len(outputs) == 1 and outputs[0].shape[-1] == YOLOV10_VALUES:
                decoder = _yolov10
        case "ssd":
            if len(outputs) == SSD_OUTPUTS:
                decoder = partial(_ssd, order=_ssd_order(names, outputs), size=size)
        case "nanodet":
            strides = _nanodet_strides(outputs, classes, size)
            if strides is not None:
                decoder = partial(_nanodet, classes=classes, size=size, strides=strides)
    if decoder is None:
        shapes = ", ".join(f"{name} {list(output.shape)}" for name, output in zip(names, outputs, strict=True))
        raise SettingsError(f"format: the detector's outputs ({shapes}) are not of {format_} with {classes} labels.")
    return decoder


def _yolo(outputs: ModelOutputs, *, width: int, leading: int) -> Candidates:
    """Decode the output of a detector of format `yolov8` or `yolov5` to candidate boxes.

    Each box has `width` numbers. The first `leading` of them are the position and, in `yolov5`, the score that the
    box shows an object of any class. The others are the class scores.
    """
    rows = outputs[0][0].astype(np.float32)
    if rows.shape[1] != width:
        rows = rows.T
    scores = rows[:, leading:]
    if leading > BOX_VALUES:
        scores = scores * rows[:, BOX_VALUES:leading]
    return Candidates(corners(rows[:, :BOX_VALUES]), scores)


def _yolov10(outputs: ModelOutputs) -> Candidates:
    rows = outputs[0].reshape(-1, YOLOV10_VALUES).astype(np.float32)
    return Candidates(rows[:, :BOX_VALUES], rows[:, BOX_VALUES], rows[:, BOX_VALUES + 1].astype(np.intp))


def _ssd_order(names: Sequence[str], outputs: ModelOutputs) -> tuple[int, ...]:
    """Return the positions in `outputs` of an SSD detector's boxes, classes, scores and count, in this order.

    The outputs are recognized by words in their `names`. If this fails, the positions are 0, 1, 2 and 3.
    """
    order = tuple(
        next((index for index, name in enumerate(names) if any(word in name.lower() for word in words)), -1)
        for words in SSD_WORDS
    )
    return order if len(set(order) - {-1}) == SSD_OUTPUTS else tuple(range(len(outputs)))


def _ssd(outputs: ModelOutputs, *, order: tuple[int, ...], size: tuple[int, int]) -> Candidates:
    boxes, classes, scores, count = (outputs[index] for index in order)
    box_count = int(np.ravel(count)[0])
    shares = boxes.reshape(-1, BOX_VALUES)[:box_count].astype(np.float32)
    pixels = shares[:, [1, 0, 3, 2]] * np.array([*size, *size], np.float32)
    return Candidates(
        pixels, np.ravel(scores)[:box_count].astype(np.float32), np.rint(np.ravel(classes)[:box_count]).astype(np.intp)
    )


def _score_distance_pairs(outputs: ModelOutputs, classes: int) -> list[tuple[NDArray[Any], NDArray[Any]]] | None:
    """Return a pair of arrays for each output grid of a NanoDet detector, finest grid first.

    A grid has n cells. The first array has the scores of the C classes in each cell, `[1, n, C]`. The second array,
    `[1, n, 4*(R+1)]`, says how far the sides of a box (left, top, right, bottom) are from the cell's reference point:
    for each side, it has the logits of the distances 0, 1, … R cell widths. R depends on the model.

    Return None if the outputs do not have the format of NanoDet. `outputs` are all outputs of a detector for one
    picture; `classes` is the number C of class names.
    """
    by_cells: dict[int, list[NDArray[Any]]] = {}
    for output in outputs:
        if output.ndim != 3:  # noqa: PLR2004 (one picture, cells, values)
            return None
        by_cells.setdefault(output.shape[1], []).append(output)
    pairs = []
    for cells in sorted(by_cells, reverse=True):
        scores = [each for each in by_cells[cells] if each.shape[2] == classes]
        distances = [each for each in by_cells[cells] if each.shape[2] != classes and each.shape[2] % BOX_VALUES == 0]
        if len(scores) != 1 or len(distances) != 1:
            return None
        pairs.append((scores[0], distances[0]))
    return pairs


def _nanodet_strides(outputs: ModelOutputs, classes: int, size: tuple[int, int]) -> tuple[int, ...] | None:
    """Return the cell width, in input pixels, of each output grid of a NanoDet detector, finest grid first.

    Return None if the outputs do not have the format of NanoDet.

    Args:
        outputs: Outputs for a test picture.
        classes: Number of class names.
        size: Width and height of the input, in pixels.
    """
    if len(outputs) == 1:
        if outputs[0].ndim != 3 or (outputs[0].shape[2] - classes) / BOX_VALUES not in NANODET_STEPS:  # noqa: PLR2004
            return None
        strides, cells = NANODET_PLUS_STRIDES, [outputs[0].shape[1]]
    else:
        pairs = _score_distance_pairs(outputs, classes) or []
        cells = [each.shape[1] for each, _ in pairs]
        strides = tuple(max(1, round((size[0] * size[1] / count) ** 0.5)) for count in cells)
    expected = sum(-(-size[0] // stride) * -(-size[1] // stride) for stride in strides)
    return strides if strides and expected == sum(cells) else None


def _nanodet(outputs: ModelOutputs, *, classes: int, size: tuple[int, int], strides: tuple[int, ...]) -> Candidates:
    if len(outputs) == 1:
        scores, distances = outputs[0][0, :, :classes], outputs[0][0, :, classes:]
    else:
        pairs = _score_distance_pairs(outputs, classes) or []
        scores = np.concatenate([each[0] for each, _ in pairs])
        distances = np.concatenate([each[0] for _, each in pairs])
    grids = [_cell_points(*size, stride, 0.0 if len(outputs) == 1 else 0.5) for stride in strides]
    points = np.concatenate(grids)
    steps = np.concatenate(
        [np.full((len(cells), 1), stride, np.float32) for stride, cells in zip(strides, grids, strict=True)]
    )
    likelihoods = distances.astype(np.float32).reshape(len(distances), BOX_VALUES, -1)
    likelihoods = np.exp(likelihoods - likelihoods.max(axis=2, keepdims=True))
    likelihoods /= likelihoods.sum(axis=2, keepdims=True)
    # Not a matrix product: BLAS would start threads.
    distances_px = (likelihoods * np.arange(likelihoods.shape[2], dtype=np.float32)).sum(axis=2) * steps
    boxes = np.concatenate([points - distances_px[:, :2], points + distances_px[:, 2:]], axis=1)
    return Candidates(boxes, scores.astype(np.float32))


def _cell_points(width: int, height: int, stride: int, offset: float) -> Floats:
    """Return a reference point for each cell of an output grid, as x and y in pixels of the input, `(n, 2)`.

    The point is the upper left corner of the cell if `offset` is 0, and its center if `offset` is 0.5. `width` and
    `height` are the size of the input; a cell is `stride` pixels wide and high.
    """
    columns, rows = -(-width // stride), -(-height // stride)
    x, y = np.meshgrid(np.arange(columns), np.arange(rows))
    points: Floats = ((np.stack([x.ravel(), y.ravel()], axis=1) + offset) * stride).astype(np.float32)
    return points
