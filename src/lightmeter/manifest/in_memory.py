"""Reads rows from Python objects (lists of URLs, paths or dicts), and converts their values to JSON values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from os import PathLike, fspath
from typing import Any

from lightmeter.errors import ManifestError
from lightmeter.manifest.item import JSON
from lightmeter.manifest.row_parser import RawRow, storable_row


def sequence_rows(source: Iterable[Any]) -> Iterator[RawRow]:
    """Yield a manifest row for each element of `source`.

    A string is a URL, an object such as `Path` is a path, and a mapping holds the cells of a row. An element of another
    type gives a row whose `problem` says that it cannot be analyzed. A `RawRow` is yielded unchanged.
    """
    for entry in source:
        if isinstance(entry, RawRow):
            yield entry
        elif isinstance(entry, str):
            yield RawRow({"url": _text(entry)})
        elif isinstance(entry, PathLike):
            yield RawRow({"path": _text(fspath(entry))})
        elif isinstance(entry, Mapping):
            yield plain_cells(entry)
        else:
            yield RawRow({}, f"it is of type {type(entry).__name__}, not a URL, a path or a mapping")


def plain_cells(cells: Mapping[Any, Any]) -> RawRow:
    """Return the row with these cells, converted to JSON; its `problem` says if one is nested too deeply."""
    try:
        return storable_row({_text(name): _plain_value(value) for name, value in cells.items()})
    except RecursionError:
        return RawRow({}, "one of its values is nested too deeply")


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


def _plain_value(value: Any) -> JSON:
    """Convert a Python value to JSON: NaN to None, numpy values to Python values, any unknown type to a string."""
    plain: JSON
    match value:  # the order matters: True is an int
        case None | bool():
            plain = value
        case int():
            plain = value if -(2**63) <= value < 2**64 else str(value)
        case float():
            plain = value if math.isfinite(value) else None
        case date():  # pandas' NaT is a date that differs from itself
            plain = value.isoformat() if value == value else None  # noqa: PLR0124
        case Mapping():
            plain = {_text(name): _plain_value(inner) for name, inner in value.items()}
        case list() | tuple():
            plain = [_plain_value(inner) for inner in value]
        case _ if not isinstance(value, str) and hasattr(value, "tolist"):  # numpy, without importing it
            plain = _plain_value(value.tolist())
        case _:
            plain = None if type(value).__name__ == "NAType" else _text(value)  # pandas.NA, without importing pandas
    return plain


def _text(value: Any) -> str:
    """Return `str(value)` with question marks for characters that UTF-8 cannot encode (lone surrogates)."""
    return str(value).encode("utf-8", "replace").decode()
