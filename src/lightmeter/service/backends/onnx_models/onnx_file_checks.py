"""Checks of ONNX files before loading: format, and location of external data."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import file_digest, sha256
from pathlib import Path

import onnx
from onnx.external_data_helper import ExternalDataInfo, uses_external_data

from lightmeter.errors import SettingsError


def check_model_file(path: Path) -> tuple[Path, ...]:
    """Check that a file is an ONNX model and that its external data are in its own folder.

    onnxruntime 1.20 reads any path that the model names; newer versions check it.

    Args:
        path: The ONNX file.

    Returns:
        The files with external data, sorted.

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
    """Yield every tensor that is stored in a graph and its subgraphs."""
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
    """Return the SHA-256 of a model with its external data, in hexadecimal digits."""
    digest = sha256()
    for part in (path, *external_files):
        with part.open("rb") as file:
            digest.update(file_digest(file, "sha256").digest())
    return digest.hexdigest()
