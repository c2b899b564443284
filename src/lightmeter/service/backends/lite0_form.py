"""What goes into EfficientNet-Lite0 and comes out of it: for whoever runs a graph that is built already.

Building one needs the package `onnx`, which takes as long to load as a tenth of all the rest of the service.
"""

from __future__ import annotations

from typing import Final

__all__ = ["CLASSES", "CONVERTER", "INPUT", "OUTPUT", "SIDE"]

CONVERTER: Final = 1
"""Raised when the graph that is built changes, so that graphs kept from before are built anew."""
SIDE: Final = 224
"""Width and height of the input, in pixels."""
CLASSES: Final = 1000
INPUT: Final = "pictures"
OUTPUT: Final = "probabilities"
