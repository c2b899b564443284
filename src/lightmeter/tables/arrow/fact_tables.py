"""Conversion of the columns of fact tables from Python lists to Arrow tables. Pure.

The fact tables, such as `tags` and `colors`, hold what the service answered about an image or video frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa

from lightmeter.facts.columns import CSS_NAME, KEY_COLUMNS, TABLE_COLUMNS
from lightmeter.facts.fact_columns import ENTRY_COLUMNS, ROW_KEY_COLUMNS, FactColumns, FactRows
from lightmeter.tables.arrow.color_names import css_names
from lightmeter.tables.arrow.schema import ARROW_TYPES
from lightmeter.tables.arrow.to_arrow import array_of

_COLUMN_NAMES: Final = {
    table: [column.name for column in (*KEY_COLUMNS, *TABLE_COLUMNS[table])] for table in ENTRY_COLUMNS
}


def fact_tables(rows: FactRows) -> dict[str, pa.Table]:
    """Return table name → Arrow table, for each table of results (`tags`, `colors`, …) that has rows."""
    if not rows.keys:
        return {}
    arrays = [
        _key_array(name, values) for name, values in zip(ROW_KEY_COLUMNS, zip(*rows.keys, strict=True), strict=True)
    ]
    keys = pa.RecordBatch.from_arrays(arrays, names=list(ROW_KEY_COLUMNS))
    return {table: _fact_table(columns, keys) for table, columns in rows.tables.items()}


def _fact_table(rows: FactColumns, keys: pa.RecordBatch) -> pa.Table:
    arrays: dict[str, Any] = {}
    for name, kind in ENTRY_COLUMNS[rows.table].items():
        arrays[name] = entry_array(kind, rows.values[name])
    if rows.table == "colors":
        arrays[CSS_NAME] = css_names(arrays["red"], arrays["green"], arrays["blue"])
    names = _COLUMN_NAMES[rows.table]
    key_names = [name for name in names if name not in arrays]
    key_of_row: Any = pa.array(np.repeat(np.array(rows.keys, np.int32), rows.counts))
    of_keys = keys.select(key_names).take(key_of_row)  # one call for all: each call costs more than its rows
    arrays |= zip(key_names, of_keys.columns, strict=True)
    return pa.Table.from_arrays([arrays[name] for name in names], names)


def _key_array(name: str, values: Sequence[Any]) -> Any:
    """Return `values`, the column `name` (such as `item_id`) of a results table, as an Arrow array.

    Texts are dictionary-encoded, unless all are null.
    """
    if name == "frame":
        return array_of(list(values), pa.int32())
    array = array_of(list(values), pa.string())
    return array.dictionary_encode() if array.null_count < len(array) else array


def entry_array(kind: str, values: list[Any]) -> Any:
    """Return a column of `FactColumns.values` as an Arrow array.

    `kind` is the type of the column: a key of `ARROW_TYPES`, such as `int32`, or `json`, whose values are JSON texts as
    UTF-8 bytes.
    """
    if kind == "json":
        return _json_texts(values)
    if kind == "polygon":
        return _polygons(values)
    array: Any = pa.array(values, ARROW_TYPES[kind])
    return array


def _json_texts(pieces: Sequence[Any]) -> Any:
    """Return `pieces`, JSON texts in UTF-8 as any bytes-like type, as an Arrow array of strings."""
    return pa.StringArray.from_buffers(len(pieces), pa.py_buffer(_offsets(pieces)), pa.py_buffer(b"".join(pieces)))


def _polygons(values: Sequence[Sequence[Any]]) -> Any:
    """Return polygons, each a sequence of corners, as an Arrow array of lists of (x, y); empty ones become null."""
    corners = list(chain.from_iterable(values))
    sides = [
        pa.array([corner.x for corner in corners], pa.float64()),
        pa.array([corner.y for corner in corners], pa.float64()),
    ]
    points = pa.StructArray.from_arrays(sides, names=["x", "y"])
    offsets = _offsets(values)
    return pa.ListArray.from_arrays(pa.array(offsets), points, mask=pa.array(np.diff(offsets) == 0))


def _offsets(values: Sequence[Any]) -> Any:
    """Return the offsets of an Arrow array that joins all values: the start of each value, then the total length."""
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, values), np.int32, len(values)), out=offsets[1:])
    return offsets
