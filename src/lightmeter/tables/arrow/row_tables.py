"""Conversion of columns of Python values to the Arrow tables `assets`, `requests` and `prechecks`. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import orjson
import pyarrow as pa

from lightmeter.facts.lenient_decode import json_text
from lightmeter.tables.arrow.schema import manifest_columns, schema
from lightmeter.tables.arrow.to_arrow import array_of


class ConstantColumn(NamedTuple):
    """A table column that has the same value in all rows; `build_table` repeats the value."""

    value: Any


ColumnValues: TypeAlias = "Sequence[Any] | pa.Array[Any] | ConstantColumn"
"""The values of a column: a sequence or array with one value for each row, or a `ConstantColumn`."""

_MICROSECONDS: Final = 1e6  # in a second


def build_table(table_schema: pa.Schema, columns: Mapping[str, ColumnValues], count: int) -> pa.Table:
    """Return an Arrow table of `count` rows with the columns of `table_schema`.

    A column of the schema that is missing in `columns` is null in all rows. A value of the wrong type becomes null.

    Args:
        table_schema: The schema of the table.
        columns: Column name → values of the column. Columns that the schema lacks are ignored.
        count: Number of rows.
    """
    return pa.Table.from_arrays([_array(field, columns, count) for field in table_schema], schema=table_schema)


def _array(field: pa.Field[Any], columns: Mapping[str, ColumnValues], count: int) -> Any:
    values = columns.get(field.name)
    if values is None:
        return pa.nulls(count, field.type)
    if isinstance(values, ConstantColumn):
        return pa.repeat(pa.scalar(values.value, field.type), count)
    return values if isinstance(values, pa.Array) else array_of(list(values), field.type)


class RowTables:
    """Builds the Arrow tables `assets`, `requests` and `prechecks` from columns of Python values.

    Args:
        extra_types: Name of each manifest column that lightmeter does not interpret → its type name, a key of
            `schema.EXTRA_TYPES`. `assets` repeats these columns.
    """

    def __init__(self, extra_types: Mapping[str, str]) -> None:
        self._extra_types = extra_types
        self._extra_columns = manifest_columns(extra_types)
        self._schemas = {table: schema(table, extra_types) for table in ("assets", "requests", "prechecks")}

    def build(self, table: str, columns: Mapping[str, ColumnValues], count: int) -> pa.Table:
        """Return an Arrow table of `count` rows.

        Args:
            table: `assets`, `requests` or `prechecks`.
            columns: Column name → values of the column. For `assets`, the column `extra` holds one JSON object for each
                row, with the values of the manifest columns that lightmeter does not interpret.
            count: Number of rows.
        """
        extra = self._extra_values(columns["extra"]) if table == "assets" and self._extra_types else {}
        return build_table(self._schemas[table], {**columns, **extra}, count)

    def _extra_values(self, extras: Any) -> dict[str, ColumnValues]:
        rows = [orjson.loads(extra) for extra in extras]
        return {
            column: [_extra_value(row.get(name), self._extra_types[name]) for row in rows]
            for name, column in self._extra_columns.items()
        }


def to_timestamps(seconds: Sequence[float | None]) -> pa.Array[Any]:
    """Return seconds since the epoch as an Arrow array of UTC timestamps, rounded to microseconds; None is null."""
    values = np.array(seconds, np.float64)
    fraction, whole = np.modf(values)
    is_missing = np.isnan(values)
    micros = np.where(is_missing, 0, whole * _MICROSECONDS + np.rint(fraction * _MICROSECONDS)).astype(np.int64)
    return pa.array(micros, pa.timestamp("us", tz="UTC"), mask=is_missing)


def _extra_value(value: Any, type_name: str) -> Any:
    """Convert a manifest value to the form that a column of the type `type_name` stores.

    A column of type `json` stores every value as JSON text. A column of type `string` stores texts unchanged and all
    other values as JSON text. Columns of other types store values unchanged. None stays None in every column.
    """
    if value is None or type_name not in {"string", "json"}:
        return value
    return value if isinstance(value, str) and type_name == "string" else json_text(value)
