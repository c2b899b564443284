"""Dimensions of the EfficientNet-Lite networks, such as the input size, and names of their input and outputs.

`efficientnet_lite_graph` builds the networks; it needs the package `onnx`, which loads slowly.

Source of the numbers: the EfficientNet-Lite code that TensorFlow published in 2020 (`efficientnet_lite_builder.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

GRAPH_VERSION: Final = 2
"""Version in the name of cached graphs; increase it whenever `build_graph` changes."""
CLASS_COUNT: Final = 1000
INPUT: Final = "pictures"
"""Name of the graph's input."""
PROBABILITIES: Final = "probabilities"
POOLED: Final = "pooled"
"""Name of the output with the pooled features of the last convolution."""
POOLED_WIDTH: Final = 1280

_STAGE_STRIDES: Final = (1, 2, 2, 2, 1, 2, 1)
"""Stride of the first block of each stage; all other blocks have stride 1."""


@dataclass(frozen=True, slots=True)
class EfficientNetVariant:
    """One network of the EfficientNet-Lite family; kernel sizes and numbers of channels are read from its weights.

    Attributes:
        name: Name of the network, for messages and file names.
        side: Width and height of the input, in pixels.
        blocks: Number of blocks of each of the seven stages.
    """

    name: str
    side: int
    blocks: tuple[int, ...]

    def strides(self) -> Iterator[int]:
        """Yield the stride (1 or 2) of each block of the network, in the order of the layers."""
        for first, count in zip(_STAGE_STRIDES, self.blocks, strict=True):
            yield first
            yield from [1] * (count - 1)


LITE2: Final = EfficientNetVariant("EfficientNet-Lite2", 260, (1, 3, 3, 4, 4, 5, 1))
