"""A loaded ONNX model that looks at one picture at a time."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lightmeter.errors import BackendError, SettingsError
from lightmeter.service.backends.base import RGB
from lightmeter.service.backends.onnx_models.boxes import Floats
from lightmeter.service.backends.onnx_models.model_file import check_model_file, digest_of
from lightmeter.service.backends.onnx_models.model_input import read_input
from lightmeter.service.backends.onnx_models.settings import OnnxModelSettings, read_labels_file
from lightmeter.service.backends.onnx_session import open_session

__all__ = ["ModelOutputs", "OnnxModel"]

ModelOutputs: TypeAlias = Sequence[NDArray[Any]]

DIGEST_DIGITS: Final = 12


class OnnxModel:
    """An ONNX model with one input for a picture.

    Args:
        settings: What the operator says of it.
        base_dir: Folder that relative paths start from.

    Attributes:
        name: Name of the file and the first digits of its SHA-256, such as `birds@0a1b2c3d4e5f`.
        input: How a picture becomes its input.
        output_names: In the order of the outputs.

    Raises:
        SettingsError: a file is missing or wrong, or the model takes no picture; the message starts with a setting.
        BackendError: onnxruntime cannot load it.
    """

    def __init__(self, settings: OnnxModelSettings, base_dir: Path) -> None:
        path = base_dir / settings.model
        self.name = f"{path.stem}@{digest_of(path, check_model_file(path))[:DIGEST_DIGITS]}"
        self._session = open_session(path)
        inputs = self._session.get_inputs()
        if len(inputs) != 1:
            names = ", ".join(each.name for each in inputs)
            raise SettingsError(f"model: it has {len(inputs)} inputs ({names}), and a picture fills one.")
        self.input = read_input(inputs[0].name, inputs[0].type, inputs[0].shape, settings)
        self.output_names = [each.name for each in self._session.get_outputs()]

    def run(self, canvas: RGB) -> ModelOutputs:
        """All outputs for a picture in the size of the input.

        Raises:
            BackendError: the model fails on it.
        """
        try:
            outputs: ModelOutputs = self._session.run(None, {self.input.name: self.input.tensor(canvas)})
        except Exception as error:  # onnxruntime's exceptions have no common base of their own
            raise BackendError(f"The model fails: {error}") from error
        return outputs

    def test_outputs(self) -> list[ModelOutputs]:
        """All outputs for a black, a grey and a noisy picture."""
        shape = (self.input.height, self.input.width, 3)
        noise = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
        return [self.run(canvas) for canvas in (np.zeros(shape, np.uint8), np.full(shape, 128, np.uint8), noise)]

    def output_index(self, wanted: str | None) -> int:
        """Which output has a name; the only one, if none is named.

        Raises:
            SettingsError: there is none of that name, or there are several.
        """
        names = self.output_names
        if wanted is None and len(names) == 1:
            return 0
        if wanted not in names:
            problem = f"the model has {len(names)} outputs" if wanted is None else f"there is no {wanted!r}"
            raise SettingsError(f"output: {problem}.", hint=f"Name one of: {', '.join(names)}.")
        return names.index(wanted)

    def vector(self, outputs: ModelOutputs, index: int) -> Floats:
        """The numbers of an output that has only one axis longer than 1.

        Raises:
            SettingsError: it has more.
        """
        values = outputs[index]
        if values.size != max(values.shape, default=1):
            raise SettingsError(
                f"output: {self.output_names[index]} has shape {list(values.shape)}, and one number a class, or one "
                "vector, is needed.",
                hint=f"The model's outputs: {', '.join(self.output_names)}.",
            )
        return values.reshape(-1).astype(np.float32)

    def labels(self, given: tuple[str, ...] | Path | None, base_dir: Path) -> dict[int, str]:
        """Names of classes by index: those given, else those in the model's metadata.

        Raises:
            SettingsError: there are none, or one has no name.
        """
        if isinstance(given, Path):
            named = read_labels_file(base_dir / given)
        else:
            named = dict(enumerate(given)) if given else self._metadata_labels()
        if not named:
            raise SettingsError("labels: none are given, and the model carries none.", hint="Set labels = a file.")
        for index, label in named.items():
            if index < 0 or not label.strip():
                raise SettingsError(f"labels: index {index} is below 0, or has an empty name.")
        return named

    def _metadata_labels(self) -> dict[int, str]:
        """The entry `names` of the metadata, as Ultralytics writes it: a Python dict or list as text."""
        try:
            names = ast.literal_eval(self._session.get_modelmeta().custom_metadata_map.get("names", ""))
            by_index = names if isinstance(names, Mapping) else dict(enumerate(names))
            return {int(index): str(label) for index, label in by_index.items()}
        except (ValueError, TypeError, SyntaxError):
            return {}
