"""Conversion of rows of `assets`, `requests` and `prechecks` from columns of Python values to Arrow tables. Pure."""

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
    """A column whose rows all have the same value."""

    value: Any


ColumnValues: TypeAlias = "Sequence[Any] | pa.Array[Any] | ConstantColumn"
"""The values of a column: one for each row, or one for all rows."""

_MICROSECONDS: Final = 1e6  # in a second


def build_table(table_schema: pa.Schema, columns: Mapping[str, ColumnValues], count: int) -> pa.Table:
    """Return a table of `count` rows. Missing columns are null, and so are values of the wrong type.

    Args:
        table_schema: The schema of the table.
        columns: Column → its values; columns that the schema lacks are ignored.
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
    """Builds Arrow tables of `assets`, `requests` and `prechecks` from columns of Python values.

    Args:
        extra_types: Manifest column that lightmeter does not interpret → its type name, a key of `schema.EXTRA_TYPES`.
    """

    def __init__(self, extra_types: Mapping[str, str]) -> None:
        self._extra_types = extra_types
        self._extra_columns = manifest_columns(extra_types)
        self._schemas = {table: schema(table, extra_types) for table in ("assets", "requests", "prechecks")}

    def build(self, table: str, columns: Mapping[str, ColumnValues], count: int) -> pa.Table:
        """Return a table of `count` rows.

        Args:
            table: `assets`, `requests` or `prechecks`.
            columns: Column → its values. For `assets`, the column `extra` holds the manifest's own columns as one JSON
                object for each row.
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
    """Return seconds since the epoch as timestamps in UTC, rounded as Python's `datetime` rounds; shape (rows,)."""
    values = np.array(seconds, np.float64)
    fraction, whole = np.modf(values)
    is_missing = np.isnan(values)
    micros = np.where(is_missing, 0, whole * _MICROSECONDS + np.rint(fraction * _MICROSECONDS)).astype(np.int64)
    return pa.array(micros, pa.timestamp("us", tz="UTC"), mask=is_missing)


def _extra_value(value: Any, type_name: str) -> Any:
    """Return a value of a manifest column; in a column of texts, a value of another type becomes JSON text."""
    if value is None or type_name not in {"string", "json"}:
        return value
    return value if isinstance(value, str) and type_name == "string" else json_text(value)
