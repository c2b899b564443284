"""How every ONNX model is run here: on the processor, on the thread that calls, by as many callers as there are cores.

One session serves all callers. Two callers with a thread each did more than one caller with two threads, and a
result that one thread has added up does not depend on how many cores there are (figures in `service.inference`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import onnxruntime

from lightmeter.errors import BackendError

__all__ = ["PICTURES_A_CALL", "open_session"]

PICTURES_A_CALL: Final = 4
"""Taken by one thread when they wait, and run through the model one by one. The model gains nothing by it, but the
service does: it hears of four pictures at once, and writes four results to disk in one go."""

_ERRORS_ONLY: Final = 3
"""onnxruntime's log level."""


def open_session(model: bytes | Path) -> onnxruntime.InferenceSession:
    """Load a serialised ONNX model, or the file of one; only a file can have weights in further files beside it.

    Raises:
        BackendError: it is no model that onnxruntime can run.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = _ERRORS_ONLY
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's exceptions have no common base of their own
        raise BackendError(f"The model cannot be loaded: {error}.") from error
