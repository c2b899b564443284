"""Reads rows from Python objects (lists of URLs, paths or dicts), and converts their values to JSON values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date
from os import PathLike, fspath
from types import NoneType
from typing import Any, Final

from lightmeter.manifest.item import JSON
from lightmeter.manifest.row_parser import RawRow


def sequence_rows(source: Iterable[Any]) -> Iterator[RawRow]:
    """Yield a row for each entry of a list: a string is a URL, a `Path` a path, a mapping a row.

    An entry of another type is a row with a problem.
    """
    for entry in source:
        if isinstance(entry, str):
            yield RawRow({"url": _text(entry)})
        elif isinstance(entry, PathLike):
            yield RawRow({"path": _text(fspath(entry))})
        elif isinstance(entry, Mapping):
            yield RawRow({_text(name): plain_value(value) for name, value in entry.items()})
        else:
            yield RawRow({}, f"it is of type {type(entry).__name__}, not a URL, a path or a mapping")


def column_values(source: Any) -> Iterable[Any] | None:
    """Return the values of a pandas or Polars Series or an Arrow array; None for any other object."""
    if hasattr(source, "columns") or hasattr(source, "schema"):  # a table
        return None
    listed = next((method for name in ("to_pylist", "to_list") if (method := getattr(source, name, None))), None)
    return None if listed is None else listed()


def plain_value(value: Any) -> JSON:
    """Convert a Python value to JSON: NaN to None, numpy values to Python values, unknown types to strings."""
    for kinds, convert in _CONVERSIONS:
        if isinstance(value, kinds):
            return convert(value)
    if hasattr(value, "tolist"):  # scalars and arrays of numpy, without importing it
        return plain_value(value.tolist())
    return _text(value)


def _integer(value: int) -> JSON:
    return value if -(2**63) <= value < 2**64 else str(value)


def _number(value: float) -> JSON:
    return value if math.isfinite(value) else None


def _text(value: Any) -> str:
    """Return `str(value)`; characters that UTF-8 cannot encode (lone surrogates) become question marks."""
    return str(value).encode("utf-8", "replace").decode()


def _mapping(value: Mapping[Any, Any]) -> JSON:
    return {_text(name): plain_value(inner) for name, inner in value.items()}


def _list(value: Iterable[Any]) -> JSON:
    return [plain_value(inner) for inner in value]


def _iso_date(value: date) -> JSON:
    return value.isoformat() if value == value else None  # noqa: PLR0124 (pandas' NaT is a date that differs from itself)


# The first matching type converts; the order matters: True is an int, and a datetime is a date.
_CONVERSIONS: Final[tuple[tuple[Any, Callable[[Any], JSON]], ...]] = (
    ((bool, NoneType), lambda value: value),
    (int, _integer),
    (float, _number),
    (str, _text),
    (date, _iso_date),
    (Mapping, _mapping),
    ((list, tuple), _list),
)
