"""Rows that come as rows (of `assets`, `requests`, `prechecks`): columns of values, not yet Arrow. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import orjson
import pyarrow as pa

from lightmeter.facts.lenient_decode import json_text
from lightmeter.tables.arrays import array_of
from lightmeter.tables.schema import manifest_columns, schema

__all__ = ["ColumnValues", "ConstantColumn", "DeferredRows", "DeferredRowsBuilder", "to_timestamps"]


class ConstantColumn(NamedTuple):
    """One value for all rows."""

    value: Any


ColumnValues: TypeAlias = "Sequence[Any] | pa.Array[Any] | ConstantColumn"
"""What a column holds: a value for each row, or one for all of them."""

_SECOND: Final = 1e6
"""In microseconds, as the tables keep moments."""


class DeferredRows:
    """Rows of one table, to be made Arrow where there is time for it; any thread may.

    Args:
        table: Its name.
        schema_: Of its rows.
        columns: Values by column; columns that are missing are null.
        count: How many rows.
    """

    def __init__(self, table: str, schema_: pa.Schema, columns: Mapping[str, ColumnValues], count: int) -> None:
        self.table: Final = table
        self.count: Final = count
        self._schema = schema_
        self._columns = columns

    def rows(self) -> pa.Table:
        """The rows, as Arrow has them."""
        return pa.Table.from_arrays([self._array(field) for field in self._schema], schema=self._schema)

    def _array(self, field: pa.Field[Any]) -> Any:
        values = self._columns.get(field.name)
        if values is None:
            return pa.nulls(self.count, field.type)
        if isinstance(values, ConstantColumn):
            return pa.repeat(pa.scalar(values.value, field.type), self.count)
        return values if isinstance(values, pa.Array) else array_of(list(values), field.type)


class DeferredRowsBuilder:
    """Makes records of tables whose manifest has columns of its own.

    Args:
        extra_types: Their names in the manifest → types, as its reader gives them.
    """

    def __init__(self, extra_types: Mapping[str, str]) -> None:
        self._extra_types = extra_types
        self._extra_columns = manifest_columns(extra_types)
        self._schemas = {table: schema(table, extra_types) for table in ("assets", "requests", "prechecks")}

    def records(self, table: str, columns: Mapping[str, ColumnValues], count: int) -> DeferredRows:
        """`count` rows; the column `extra` holds a JSON object of the manifest's own columns for each."""
        own = self._own(columns["extra"]) if table == "assets" and self._extra_types else {}
        return DeferredRows(table, self._schemas[table], {**columns, **own}, count)

    def _own(self, extras: Any) -> dict[str, ColumnValues]:
        rows = [orjson.loads(extra) for extra in extras]
        return {
            column: [_own_value(row.get(name), self._extra_types[name]) for row in rows]
            for name, column in self._extra_columns.items()
        }


def to_timestamps(seconds: Sequence[float | None]) -> pa.Array[Any]:
    """Seconds since the epoch as moments in UTC, shape (rows,); rounded as Python's `datetime` rounds them."""
    at = np.array(seconds, np.float64)
    rest, whole = np.modf(at)
    missing = np.isnan(at)
    micros = np.where(missing, 0, whole * _SECOND + np.rint(rest * _SECOND)).astype(np.int64)
    return pa.array(micros, pa.timestamp("us", tz="UTC"), mask=missing)


def _own_value(value: Any, type_name: str) -> Any:
    """A value of the manifest for a column of its type: text columns hold what is no text as JSON."""
    if value is None or type_name not in {"string", "json"}:
        return value
    return value if isinstance(value, str) and type_name == "string" else json_text(value)
