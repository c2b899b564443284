"""Inputs, outputs and sizes of the EfficientNet-Lite networks, for code that runs a graph that is built already.

Building a graph needs the package `onnx`, which takes as long to load as a tenth of all the rest of the service.

Source of the numbers: the EfficientNet-Lite code that TensorFlow published in 2020 (`efficientnet_lite_builder.py`):
width, depth and resolution of each variant.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

__all__ = [
    "CLASS_COUNT",
    "GRAPH_VERSION",
    "INPUT",
    "LITE2",
    "POOLED",
    "POOLED_WIDTH",
    "PROBABILITIES",
    "EfficientNetVariant",
]

GRAPH_VERSION: Final = 2
"""Raised when the graph that is built changes, so that cached graphs of earlier versions are built anew."""
CLASS_COUNT: Final = 1000
INPUT: Final = "pictures"
PROBABILITIES: Final = "probabilities"
POOLED: Final = "pooled"
"""Output with the averaged features of the last convolution, which the classes are computed from."""
POOLED_WIDTH: Final = 1280

_STAGE_STRIDES: Final = (1, 2, 2, 2, 1, 2, 1)
"""Stride of the first block of each stage; all other blocks have stride 1."""


@dataclass(frozen=True, slots=True)
class EfficientNetVariant:
    """One network of the family; kernel sizes and widths are read from its weights.

    Attributes:
        name: For messages and file names.
        side: Width and height of the input, in pixels.
        blocks: Number of blocks of each of the seven stages.
    """

    name: str
    side: int
    blocks: tuple[int, ...]

    def strides(self) -> Iterator[int]:
        """Give the stride of each block, in order."""
        for first, count in zip(_STAGE_STRIDES, self.blocks, strict=True):
            yield first
            yield from [1] * (count - 1)


LITE2: Final = EfficientNetVariant("EfficientNet-Lite2", 260, (1, 3, 3, 4, 4, 5, 1))
