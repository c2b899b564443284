"""Builds an EfficientNet-Lite network as an ONNX graph from the weights of a checkpoint.

Source of the architecture: Mingxing Tan and Quoc V. Le, "EfficientNet: Rethinking Model Scaling for
Convolutional Neural Networks", 2019, in the Lite variant that TensorFlow published in 2020: no
squeeze-and-excitation, ReLU6, first and last convolution of fixed width. Kernel sizes and widths (numbers of channels)
are read from the weights; the strides are not in them and come from the `EfficientNetVariant`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from lightmeter.errors import BackendError
from lightmeter.service.backends.imagenet.efficientnet_lite_dimensions import (
    CLASS_COUNT,
    INPUT,
    POOLED,
    POOLED_WIDTH,
    PROBABILITIES,
    EfficientNetVariant,
)

_EPSILON: Final = 1e-3
"""Epsilon of the batch normalization, as in training."""
_MEAN: Final = 127.0
"""Number that the network subtracts from each pixel value (0 to 255), as in training."""
_DIVISOR: Final = 128.0
"""Number by which the network divides each pixel value after the subtraction of `_MEAN`, as in training."""
_BUILD_ERRORS: Final = (
    KeyError,
    ValueError,
    IndexError,
    onnx.checker.ValidationError,
    onnx.shape_inference.InferenceError,
)
"""Exceptions that building and checking a graph raise if a weight is missing or has the wrong shape."""
_OPSET: Final = 17
_IR_VERSION: Final = 8


class _Graph:
    """Builder of an ONNX graph that appends one node after another.

    The first input of each node is the output of the node before. `weights` maps the names in the checkpoint to arrays.
    `last` is the name of the last node's output, and `width` is the number of its channels.
    """

    def __init__(self, weights: Mapping[str, NDArray[Any]]) -> None:
        self.weights = weights
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.last = INPUT
        self.width = 3

    def constant(self, name: str, value: NDArray[Any]) -> str:
        """Add the array `value` to the graph as a constant and return its name."""
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def add(self, kind: str, *others: str, **attributes: Any) -> None:
        """Append a node of ONNX type `kind`, whose inputs are the previous node's output and the tensors `others`."""
        output = f"{len(self.nodes)}.{kind}"
        self.nodes.append(helper.make_node(kind, [self.last, *others], [output], **attributes))
        self.last = output

    def rename_last(self, name: str) -> None:
        """Rename the output of the node that was appended last, to make it an output of the whole graph."""
        self.nodes[-1].output[0] = self.last = name

    def convolve(self, convolution: str, normalization: str, *, stride: int = 1) -> None:
        """Append one node for a convolution and the batch normalization after it, which is folded into the kernel.

        Args:
            convolution: Name of the convolution in the checkpoint.
            normalization: Name of the batch normalization in the checkpoint.
            stride: Stride of the convolution.
        """
        kernel = self.weights[f"{convolution}.weight"]
        width, group_width = kernel.shape[:2]
        if group_width not in (1, self.width) or (group_width == 1 and width != self.width):
            raise ValueError(f"{convolution} does not take {self.width} channels")
        parts = ("weight", "bias", "running_mean", "running_var")
        scale, shift, mean, variance = (self.weights[f"{normalization}.{part}"] for part in parts)
        gain = scale / np.sqrt(variance + _EPSILON)
        folded = (kernel * gain[:, None, None, None]).astype(np.float32)
        self.add(
            "Conv",
            self.constant(f"{convolution}.weight", folded),
            self.constant(f"{convolution}.bias", (shift - mean * gain).astype(np.float32)),
            kernel_shape=kernel.shape[2:],
            strides=[stride, stride],
            group=self.width // group_width,
            # TensorFlow's padding: the odd pixel is added below and to the right.
            auto_pad="SAME_UPPER",
        )
        self.width = width

    def relu6(self) -> None:
        """Append a ReLU6 activation, which clips values to the range 0 to 6."""
        self.add("Clip", "zero", "six")

    def block(self, index: int, stride: int) -> None:
        """Append the layers of inverted residual block `index` of the network; block 0 has no expansion layer.

        `stride` is the stride of the block's depthwise convolution.
        """
        name, start, start_width = f"_blocks.{index}", self.last, self.width
        if f"{name}._expand_conv.weight" in self.weights:
            self.convolve(f"{name}._expand_conv", f"{name}._bn0")
            self.relu6()
        self.convolve(f"{name}._depthwise_conv", f"{name}._bn1", stride=stride)
        self.relu6()
        self.convolve(f"{name}._project_conv", f"{name}._bn2")
        if stride == 1 and self.width == start_width:
            self.add("Add", start)


def _add_layers(graph: _Graph, variant: EfficientNetVariant) -> None:
    """Append all layers of the network `variant` to `graph`, from pixels to class probabilities."""
    graph.constant("zero", np.array(0, np.float32))
    graph.constant("six", np.array(6, np.float32))
    graph.add("Transpose", perm=[0, 3, 1, 2])
    graph.add("Cast", to=TensorProto.FLOAT)
    graph.add("Sub", graph.constant("mean", np.array(_MEAN, np.float32)))
    graph.add("Mul", graph.constant("scale", np.array(1 / _DIVISOR, np.float32)))
    graph.convolve("_conv_stem", "_bn0", stride=2)
    graph.relu6()
    for index, stride in enumerate(variant.strides()):
        graph.block(index, stride)
    graph.convolve("_conv_head", "_bn1")
    graph.relu6()
    graph.add("GlobalAveragePool")
    graph.add("Flatten")
    graph.rename_last(POOLED)
    matrix, bias = (graph.constant(name, graph.weights[name]) for name in ("_fc.weight", "_fc.bias"))
    graph.add("Gemm", matrix, bias, transB=1)
    graph.add("Softmax", axis=1)
    graph.rename_last(PROBABILITIES)


def build_graph(weights: Mapping[str, NDArray[Any]], variant: EfficientNetVariant) -> bytes:
    """Build the ONNX model of a network.

    Input: pictures, uint8 (n, side, side, 3). Outputs: class probabilities, float32 (n, 1000), and pooled features,
    float32 (n, 1280). A run computes only the outputs that its caller requests.

    Args:
        weights: Arrays by their names in the checkpoint (`_conv_stem.weight`, `_blocks.0._bn1.bias`, …).
        variant: The network that the weights belong to.

    Returns:
        The serialized ONNX model, which passed the checker of `onnx`.

    Raises:
        BackendError: a weight is missing or its shape does not fit.
    """
    graph = _Graph(weights)
    pictures: list[str | int | None] = ["n", variant.side, variant.side, 3]
    try:
        _add_layers(graph, variant)
        model = helper.make_model(
            helper.make_graph(
                graph.nodes,
                variant.name.lower(),
                [helper.make_tensor_value_info(INPUT, TensorProto.UINT8, pictures)],
                [
                    helper.make_tensor_value_info(PROBABILITIES, TensorProto.FLOAT, ["n", CLASS_COUNT]),
                    helper.make_tensor_value_info(POOLED, TensorProto.FLOAT, ["n", POOLED_WIDTH]),
                ],
                graph.constants,
            ),
            producer_name="lightmeter",
            ir_version=_IR_VERSION,
            opset_imports=[helper.make_opsetid("", _OPSET)],
        )
        onnx.checker.check_model(model, full_check=True)
    except _BUILD_ERRORS as error:
        raise BackendError(f"The weights are not those of {variant.name}: {error!r}.") from error
    content: bytes = model.SerializeToString()
    return content
