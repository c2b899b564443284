"""Conversion of fact rows, held as one Python list for each column, to Arrow tables. Pure.

Fact tables hold what the service answered about a picture, such as `tags` and `colors`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa

from lightmeter.facts.columns import CSS_NAME, KEY_COLUMNS, TABLE_COLUMNS
from lightmeter.facts.fact_columns import ENTRY_COLUMNS, ROW_KEY_COLUMNS, FactColumns, FactRows
from lightmeter.tables.arrays import array_of
from lightmeter.tables.color_names import css_names
from lightmeter.tables.schema import ARROW_TYPES

__all__ = ["entry_array", "fact_tables"]


_COLUMN_NAMES: Final = {
    table: [column.name for column in (*KEY_COLUMNS, *TABLE_COLUMNS[table])] for table in ENTRY_COLUMNS
}


def fact_tables(rows: FactRows) -> dict[str, pa.Table]:
    """Return an Arrow table for each fact table. Texts of the row keys become Arrow dictionaries."""
    key_values = dict(zip(ROW_KEY_COLUMNS, zip(*rows.keys, strict=True), strict=True)) if rows.keys else {}
    keys = {name: _key_array(name, values) for name, values in key_values.items()}
    return {table: _fact_table(columns, keys) for table, columns in rows.tables.items()}


def _fact_table(rows: FactColumns, keys: Mapping[str, Any]) -> pa.Table:
    key_of_row = pa.array(np.repeat(np.array(rows.keys, np.int32), rows.counts))
    arrays: dict[str, Any] = {}
    for name, kind in ENTRY_COLUMNS[rows.table].items():
        arrays[name] = entry_array(kind, rows.values[name])
    names = _COLUMN_NAMES[rows.table]
    for name in names:
        if name == CSS_NAME:
            arrays[name] = css_names(arrays["red"], arrays["green"], arrays["blue"])
        elif name not in arrays:
            arrays[name] = keys[name].take(key_of_row)
    return pa.Table.from_arrays([arrays[name] for name in names], names)


def _key_array(name: str, values: Sequence[Any]) -> Any:
    """Return one column of the row keys. Texts are dictionary-encoded, since each is repeated in many rows."""
    if name == "frame":
        return array_of(list(values), pa.int32())
    array = array_of(list(values), pa.string())
    return array.dictionary_encode() if array.null_count < len(array) else array


def entry_array(kind: str, values: list[Any]) -> Any:
    """Return the values of a column of `FactColumns` as an array of its kind."""
    if kind == "json":
        return _json_texts(values)
    if kind == "polygon":
        return _polygons(values)
    array: Any = pa.array(values, ARROW_TYPES[kind])
    return array


def _json_texts(pieces: Sequence[Any]) -> Any:
    """Return UTF-8 byte strings of any bytes-like type as an array of texts."""
    return pa.StringArray.from_buffers(len(pieces), pa.py_buffer(_offsets(pieces)), pa.py_buffer(b"".join(pieces)))


def _polygons(values: Sequence[Sequence[Any]]) -> Any:
    """Return an array of lists of corners; a polygon without corners becomes null."""
    corners = list(chain.from_iterable(values))
    sides = [
        pa.array([corner.x for corner in corners], pa.float64()),
        pa.array([corner.y for corner in corners], pa.float64()),
    ]
    points = pa.StructArray.from_arrays(sides, names=["x", "y"])
    offsets = _offsets(values)
    return pa.ListArray.from_arrays(pa.array(offsets), points, mask=pa.array(np.diff(offsets) == 0))


def _offsets(values: Sequence[Any]) -> Any:
    """Return the start offset of each value and the end of the last one, shape (n + 1,)."""
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, values), np.int32, len(values)), out=offsets[1:])
    return offsets
