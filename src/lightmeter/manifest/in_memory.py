"""Reads rows from Python objects: lists of URLs, paths or dicts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from os import PathLike
from typing import Any

from lightmeter.errors import ManifestError
from lightmeter.manifest.row_parser import RawRow, plain_row


def sequence_rows(source: Iterable[Any]) -> Iterator[RawRow]:
    """Yield a manifest row for each element of `source`.

    A string is a URL, an object such as `Path` is a path, and a mapping holds the cells of a row. An element of another
    type gives a row whose `problem` says that it cannot be analyzed. A `RawRow` is yielded unchanged.
    """
    for entry in source:
        if isinstance(entry, RawRow):
            yield entry
        elif isinstance(entry, str):
            yield plain_row({"url": entry})
        elif isinstance(entry, PathLike):
            yield plain_row({"path": os.path.expanduser(entry)})  # noqa: PTH111 (as in `paths.local_path`)
        elif isinstance(entry, Mapping):
            yield plain_row(entry)
        else:
            yield RawRow({}, f"it is of type {type(entry).__name__}, not a URL, a path or a mapping")


def column_values(source: Any) -> Iterable[Any] | None:
    """Return the values of a pandas or Polars Series or an Arrow array; None for any other object.

    Raises:
        ManifestError: the object is a dict, or has no rows, such as a lazy frame.
    """
    if isinstance(source, Mapping):
        raise ManifestError(
            "A dict is no manifest.", hint="Give a list of dicts, one a row; `pandas.DataFrame(columns)` reads columns."
        )
    if not isinstance(source, Iterable) and not hasattr(source, "__arrow_c_stream__"):
        raise ManifestError(
            f"An object of type {type(source).__name__} has no rows to read.",
            hint="Give a path, a URI, a list or a DataFrame; the method `collect` of a lazy frame returns one.",
        )
    if hasattr(source, "columns") or hasattr(source, "schema"):  # a table
        return None
    listed = next((method for name in ("to_pylist", "to_list") if (method := getattr(source, name, None))), None)
    return None if listed is None else listed()
