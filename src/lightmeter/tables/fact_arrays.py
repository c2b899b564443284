"""Rows of the fact tables, as lists, become Arrow tables: one array for each column. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa

from lightmeter.facts.columns import CSS_NAME
from lightmeter.facts.fact_columns import ENTRY_COLUMNS, ROW_KEY_COLUMNS, FactColumns
from lightmeter.tables.arrays import array_of
from lightmeter.tables.color_names import css_names
from lightmeter.tables.schema import ARROW_TYPES, schema

__all__ = ["entry_array", "fact_table"]


def fact_table(rows: FactColumns) -> pa.Table:
    """Return the rows under the columns of their table; texts of the row keys are dictionaries."""
    names = schema(rows.table).names
    key_of_row = pa.array(np.repeat(np.arange(len(rows.counts), dtype=np.int32), rows.counts))
    key_columns = dict(zip(ROW_KEY_COLUMNS, zip(*rows.keys, strict=True), strict=True))
    columns: dict[str, Any] = {}
    for name in names:
        if name in rows.values:
            columns[name] = entry_array(ENTRY_COLUMNS[rows.table][name], rows.values[name])
        elif name in key_columns:
            columns[name] = _key_array(key_columns[name], _KEY_TYPES[name], key_of_row)
    if CSS_NAME in names:
        columns[CSS_NAME] = css_names(columns["red"], columns["green"], columns["blue"])
    return pa.Table.from_arrays([columns[name] for name in names], names)


_KEY_TYPES: Final = {name: pa.int32() if name == "frame" else pa.string() for name in ROW_KEY_COLUMNS}


def entry_array(kind: str, values: list[Any]) -> Any:
    """Return the values of a column of this kind, as `FactColumns` has them, as an array."""
    if kind == "json":
        return _json_texts(values)
    if kind == "polygon":
        return _polygons(values)
    array: Any = pa.array(values, ARROW_TYPES[kind])
    return array


def _json_texts(pieces: Sequence[Any]) -> Any:
    """Return pieces of UTF-8, in any type that holds bytes, as texts."""
    return pa.StringArray.from_buffers(len(pieces), pa.py_buffer(_offsets(pieces)), pa.py_buffer(b"".join(pieces)))


def _polygons(values: Sequence[Sequence[Any]]) -> Any:
    """Return lists of corners; a polygon without corners is null."""
    corners = list(chain.from_iterable(values))
    sides = [
        pa.array([corner.x for corner in corners], pa.float64()),
        pa.array([corner.y for corner in corners], pa.float64()),
    ]
    points = pa.StructArray.from_arrays(sides, names=["x", "y"])
    offsets = _offsets(values)
    return pa.ListArray.from_arrays(pa.array(offsets), points, mask=pa.array(np.diff(offsets) == 0))


def _offsets(values: Sequence[Any]) -> Any:
    """Return where each value begins and the last one ends, shape (n + 1,)."""
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, values), np.int32, len(values)), out=offsets[1:])
    return offsets


def _key_array(values: Sequence[Any], arrow_type: pa.DataType, key_of_row: Any) -> Any:
    """Return the value of each row's key; a text as a dictionary, since it stands in many rows."""
    array = array_of(list(values), arrow_type)
    if array.null_count == len(array):
        nulls: Any = pa.nulls(len(key_of_row), arrow_type)
        return nulls
    if not pa.types.is_string(arrow_type):
        return array.take(key_of_row)
    encoded: Any = array.dictionary_encode()
    return pa.DictionaryArray.from_arrays(encoded.indices.take(key_of_row), encoded.dictionary, safe=False)
