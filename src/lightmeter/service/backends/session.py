"""How every ONNX model is run here: on the processor, as many threads as it has, none of them spinning."""

from __future__ import annotations

import os
from typing import Final

import onnxruntime

from lightmeter.errors import BackendError

__all__ = ["open_session"]

_MOST_THREADS: Final = 4
"""More threads than this gain little on models of this size."""
_ERRORS_ONLY: Final = 3
"""onnxruntime's log level."""


def _threads() -> int:
    """Cores this process may use, at most `_MOST_THREADS`."""
    # Containers and schedulers narrow the affinity; cpu_count would still count the whole machine.
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return min(cores, _MOST_THREADS)


def open_session(model: bytes) -> onnxruntime.InferenceSession:
    """Load a serialised ONNX model.

    Raises:
        BackendError: it is no model that onnxruntime can run.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = _threads()
    options.log_severity_level = _ERRORS_ONLY
    # Spinning threads win microseconds between operators and burn whole cores that decoders could use.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's exceptions have no common base of their own
        raise BackendError(f"The model cannot be loaded: {error}.") from error
