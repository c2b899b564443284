"""An ONNX file: what it holds beside the graph, and whether it may be loaded."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import file_digest, sha256
from pathlib import Path

import onnx
from onnx.external_data_helper import ExternalDataInfo, uses_external_data

from lightmeter.errors import SettingsError

__all__ = ["check_model_file", "digest_of"]


def check_model_file(path: Path) -> tuple[Path, ...]:
    """Check that a file is an ONNX model whose external data, if any, lie in its own folder.

    onnxruntime checks this from some version on, and 1.20 read any path that the model names.

    Args:
        path: The ONNX file.

    Returns:
        The files with external data, sorted.

    Raises:
        SettingsError: it is missing, is no ONNX model, or names external data that are missing or elsewhere.
    """
    try:
        model = onnx.load(path, load_external_data=False)
    except OSError as error:
        raise SettingsError(f"model: {path}: {error.strerror or error}.") from error
    except Exception as error:  # they come from protobuf, which we do not depend on
        raise SettingsError(f"model: {path} is not an ONNX file.", hint="Export the model to ONNX first.") from error
    if not model.graph.node or not model.opset_import:  # protobuf reads many files that are something else
        raise SettingsError(f"model: {path} is not an ONNX file.", hint="Export the model to ONNX first.")
    folder = path.parent.resolve()
    graphs = [model.graph, *model.functions]
    places = {
        ExternalDataInfo(each).location for graph in graphs for each in _tensors(graph) if uses_external_data(each)
    }
    beside = []
    for place in sorted(places):
        resolved = (folder / place).resolve()
        if not resolved.is_relative_to(folder):
            raise SettingsError(f"model: {path} names weights outside of its folder: {place!r}.")
        if not resolved.is_file():
            raise SettingsError(f"model: {path} names weights in {place!r}, and there is no such file beside it.")
        beside.append(resolved)
    return tuple(beside)


def _tensors(graph: onnx.GraphProto | onnx.FunctionProto) -> Iterator[onnx.TensorProto]:
    """Every tensor that is stored in a graph, also in the graphs inside it."""
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


def digest_of(path: Path, beside: tuple[Path, ...]) -> str:
    """SHA-256 of a model with its external data, as hexadecimal digits."""
    whole = sha256()
    for part in (path, *beside):
        with part.open("rb") as file:
            whole.update(file_digest(file, "sha256").digest())
    return whole.hexdigest()
