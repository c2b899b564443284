"""Small real ONNX models, made with `onnx.helper`, whose answers follow from the picture's pixels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SIDE = 32


def write_model(
    path: Path,
    nodes: Sequence[onnx.NodeProto],
    outputs: Sequence[str],
    *,
    constants: dict[str, np.ndarray] | None = None,
    shape: Sequence[int | str] = (1, 3, SIDE, SIDE),
    dtype: int = TensorProto.FLOAT,
) -> Path:
    """Write a model with the input `x`; return its path."""
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", dtype, shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    path.write_bytes(model.SerializeToString())
    return path


def mean_colours(path: Path, *, factor: float = 1.0, layout: str = "nchw", shape=None) -> Path:
    """A classifier: the mean of red, green and blue over the picture, times a factor."""
    axes, default = ([2, 3], (1, 3, SIDE, SIDE)) if layout == "nchw" else ([1, 2], (1, SIDE, SIDE, 3))
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=axes, keepdims=0),
        helper.make_node("Mul", ["mean", "factor"], ["scores"]),
    ]
    constants = {"factor": np.array(factor, np.float32)}
    return write_model(path, nodes, ["scores"], constants=constants, shape=shape or default)


def pooled_pixels(path: Path) -> Path:
    """An embedding: the mean colours of four quarters, and a second output that is no vector."""
    half = SIDE // 2
    nodes = [
        helper.make_node("AveragePool", ["x"], ["pooled"], kernel_shape=[half, half], strides=[half, half]),
        helper.make_node("Flatten", ["pooled"], ["vector"]),
    ]
    return write_model(path, nodes, ["vector", "pooled"])


def red_cells(path: Path, form: str, *, width: int = 64, height: int = 64, cell: int = 16) -> Path:
    """A detector of red cells of a grid, in one of the output formats; the second of its two classes is blue.

    A cell's score is the mean of its red (class 0) or blue (class 1) minus that of green.
    """
    columns, rows = width // cell, height // cell
    count = columns * rows
    x, y = np.meshgrid(np.arange(columns), np.arange(rows))
    left, top = (x.ravel() * cell).astype(np.float32), (y.ravel() * cell).astype(np.float32)
    size = np.full(count, cell, np.float32)
    weights = np.zeros((2, 3, cell, cell), np.float32)
    weights[0, 0], weights[1, 2], weights[:, 1] = 1, 1, -1
    nodes = [
        helper.make_node("Conv", ["x", "weights"], ["cells"], strides=[cell, cell]),
        helper.make_node("Reshape", ["cells", "flat"], ["raw"]),
        helper.make_node("Clip", ["raw", "zero", "one"], ["columns"]),  # [1, 2, count]
        helper.make_node("Transpose", ["columns"], ["rows"], perm=[0, 2, 1]),  # [1, count, 2]
    ]
    constants = {
        "weights": weights / cell**2,
        "flat": np.array([1, 2, count], np.int64),
        "zero": np.array(0, np.float32),
        "one": np.array(1, np.float32),
    }
    centred = np.stack([left + cell / 2, top + cell / 2, size, size])
    cornered = np.stack([left, top, left + cell, top + cell])
    outputs = ["out"]
    match form:
        case "yolov8":
            constants["boxes"] = centred[None]
            nodes.append(helper.make_node("Concat", ["boxes", "columns"], ["out"], axis=1))
        case "yolov5":
            constants["boxes"] = centred.T[None]
            constants["object"] = np.full((1, count, 1), 0.5, np.float32)
            nodes.append(helper.make_node("Concat", ["boxes", "object", "rows"], ["out"], axis=2))
        case "yolov10" | "ssd":
            nodes += [
                helper.make_node("ReduceMax", ["rows"], ["best"], axes=[2], keepdims=int(form == "yolov10")),
                helper.make_node("ArgMax", ["rows"], ["index"], axis=2, keepdims=int(form == "yolov10")),
                helper.make_node("Cast", ["index"], ["class"], to=TensorProto.FLOAT),
            ]
            if form == "yolov10":
                constants["boxes"] = cornered.T[None]
                nodes.append(helper.make_node("Concat", ["boxes", "best", "class"], ["out"], axis=2))
            else:
                shares = np.stack([top / height, left / width, (top + cell) / height, (left + cell) / width], axis=1)
                constants["shares"], constants["all"] = shares[None].astype(np.float32), np.array([count], np.float32)
                nodes += [
                    helper.make_node("Identity", ["all"], ["num_detections"]),
                    helper.make_node("Identity", ["best"], ["detection_scores"]),
                    helper.make_node("Identity", ["shares"], ["detection_boxes"]),
                    helper.make_node("Identity", ["class"], ["detection_classes"]),
                ]
                outputs = ["num_detections", "detection_scores", "detection_boxes", "detection_classes"]
        case "nanodet":
            # Half a stride on each side: the likelihoods of 0 and of 1 stride are even.
            even = np.full((1, count, 4, 8), -1e4, np.float32)
            even[..., :2] = 0
            constants["sides"] = even.reshape(1, count, 32)
            nodes += [
                helper.make_node("Identity", ["rows"], ["scores"]),
                helper.make_node("Identity", ["sides"], ["distances"]),
            ]
            outputs = ["distances", "scores"]
    return write_model(path, nodes, outputs, constants=constants, shape=(1, 3, height, width))


def add_metadata(path: Path, **entries: str) -> None:
    """Add entries to a model's metadata."""
    model = onnx.load(path)
    helper.set_model_props(model, entries)
    path.write_bytes(model.SerializeToString())


def external_weights(path: Path, place: str) -> Path:
    """Mean colours times three weights, which lie in another file: 12 bytes of single floats."""
    mean_colours(path)
    model = onnx.load(path)
    (factor,) = model.graph.initializer
    factor.ClearField("raw_data")
    factor.dims[:] = [3]
    factor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": place, "offset": "0", "length": "12"}.items():
        factor.external_data.add(key=key, value=value)
    path.write_bytes(model.SerializeToString())
    return path
