"""ONNX model whose input is one picture: checks of its file, loading, test runs, outputs and labels."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx.external_data_helper import ExternalDataInfo, uses_external_data

from lightmeter.errors import BackendError, SettingsError
from lightmeter.service.backends.base import RGB
from lightmeter.service.backends.onnx_models.boxes import Floats
from lightmeter.service.backends.onnx_models.model_input import read_input
from lightmeter.service.backends.onnx_models.settings import OnnxModelSettings, read_labels_file
from lightmeter.service.backends.onnx_session import open_session

ModelOutputs: TypeAlias = Sequence[NDArray[Any]]

DIGEST_DIGITS: Final = 12
"""Number of hexadecimal digits of the SHA-256 in the name of a model."""


def check_model_file(path: Path) -> tuple[Path, ...]:
    """Check an ONNX file; return the sorted paths of the other files that hold the model's weights (external data).

    These files must be in the folder of the model. Without this rule, onnxruntime 1.20 would read any path that the
    model names.

    Raises:
        SettingsError: the file is missing or not an ONNX model, or its external data are missing or in another folder.
    """
    try:
        model = onnx.load(path, load_external_data=False)
    except OSError as error:
        raise SettingsError(f"model: {path}: {error.strerror or error}.") from error
    except Exception as error:  # exceptions of protobuf, which is not a dependency
        raise SettingsError(f"model: {path} is not an ONNX file.", hint="Export the model to ONNX first.") from error
    if not model.graph.node or not model.opset_import:  # protobuf parses many files of other formats
        raise SettingsError(f"model: {path} is not an ONNX file.", hint="Export the model to ONNX first.")
    folder = path.parent.resolve()
    graphs = [model.graph, *model.functions]
    locations = {
        ExternalDataInfo(each).location for graph in graphs for each in _tensors(graph) if uses_external_data(each)
    }
    external_files = []
    for location in sorted(locations):
        resolved = (folder / location).resolve()
        if not resolved.is_relative_to(folder):
            raise SettingsError(f"model: {path} names weights outside of its folder: {location!r}.")
        if not resolved.is_file():
            raise SettingsError(f"model: {path} names weights in {location!r}, and there is no such file beside it.")
        external_files.append(resolved)
    return tuple(external_files)


def _tensors(graph: onnx.GraphProto | onnx.FunctionProto) -> Iterator[onnx.TensorProto]:
    """Yield every tensor that is stored in an ONNX graph and its subgraphs."""
    if isinstance(graph, onnx.GraphProto):
        yield from graph.initializer
        for sparse in graph.sparse_initializer:
            yield from (sparse.values, sparse.indices)
    for node in graph.node:
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors)
            for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
                yield from (sparse.values, sparse.indices)
            for inner in (attribute.g, *attribute.graphs):
                yield from _tensors(inner)


def digest_of(path: Path, external_files: tuple[Path, ...]) -> str:
    """Return the SHA-256, in hexadecimal digits, of an ONNX file and the further files that hold its weights."""
    digest = sha256()
    for part in (path, *external_files):
        with part.open("rb") as file:
            digest.update(file_digest(file, "sha256").digest())
    return digest.hexdigest()


class OnnxModel:
    """An ONNX model with one input for a picture.

    Args:
        settings: The operator's settings of the model.
        base_dir: Folder of the settings file, from which relative paths start.

    Attributes:
        name: Name of the file and the first digits of its SHA-256, such as `birds@0a1b2c3d4e5f`.
        input: Converter of a picture to the model's input.
        output_names: Names of the outputs, in order.

    Raises:
        SettingsError: a file is missing or invalid, or the model does not take a picture; the message starts with the
            name of a setting.
        BackendError: onnxruntime cannot load the model.
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
        """Run the model on `canvas`, a picture of the size of the model's input; return all outputs.

        Raises:
            BackendError: the model fails.
        """
        try:
            outputs: ModelOutputs = self._session.run(None, {self.input.name: self.input.tensor(canvas)})
        except Exception as error:  # onnxruntime's exceptions have no common base of their own
            raise BackendError(f"The model fails: {error}") from error
        return outputs

    def test_outputs(self) -> list[ModelOutputs]:
        """Run the model on a black, a grey and a noisy picture; return all outputs of each run."""
        shape = (self.input.height, self.input.width, 3)
        noise = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
        return [self.run(canvas) for canvas in (np.zeros(shape, np.uint8), np.full(shape, 128, np.uint8), noise)]

    def output_index(self, name: str | None) -> int:
        """Return the index of the output `name`; None means the model's only output.

        Raises:
            SettingsError: there is no output of that name, or `name` is None and there are several outputs.
        """
        names = self.output_names
        if name is None and len(names) == 1:
            return 0
        if name not in names:
            problem = f"the model has {len(names)} outputs" if name is None else f"there is no {name!r}"
            raise SettingsError(f"output: {problem}.", hint=f"Name one of: {', '.join(names)}.")
        return names.index(name)

    def vector(self, outputs: ModelOutputs, index: int) -> Floats:
        """Return output `index` of the model, from the `outputs` of one run, as a vector.

        Raises:
            SettingsError: the output is not a vector: several of its axes are longer than 1.
        """
        values = outputs[index]
        if values.size != max(values.shape, default=1):
            raise SettingsError(
                f"output: {self.output_names[index]} has shape {list(values.shape)}, and one number a class, or one "
                "vector, is needed.",
                hint=f"The model's outputs: {', '.join(self.output_names)}.",
            )
        return values.reshape(-1).astype(np.float32)

    def labels(self, configured: tuple[str, ...] | Path | None, base_dir: Path) -> dict[int, str]:
        """Return class index → class name, from the settings or, if they name no classes, from the model's metadata.

        Args:
            configured: The setting `labels`: names, the path of a file with names, or None if it is not set.
            base_dir: Folder that relative paths start from.

        Raises:
            SettingsError: there are no names, a name is empty, or an index is below 0.
        """
        if isinstance(configured, Path):
            labels = read_labels_file(base_dir / configured)
        else:
            labels = dict(enumerate(configured)) if configured else self._metadata_labels()
        if not labels:
            raise SettingsError(
                "labels: neither the settings nor the model name the classes.", hint="Set labels = a file."
            )
        for index, label in labels.items():
            if index < 0 or not label.strip():
                raise SettingsError(f"labels: index {index} is below 0, or has an empty name.")
        return labels

    def _metadata_labels(self) -> dict[int, str]:
        """Return class index → class name, from the entry `names` of the model's metadata.

        The result is empty if this entry is missing or invalid.
        """
        try:
            names = ast.literal_eval(self._session.get_modelmeta().custom_metadata_map.get("names", ""))
            by_index = names if isinstance(names, Mapping) else dict(enumerate(names))
            return {int(index): str(label) for index, label in by_index.items()}
        except (ValueError, TypeError, SyntaxError):
            return {}
