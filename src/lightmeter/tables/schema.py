"""Versioned Arrow schemas of the tables, with the manifest's own columns.

A manifest's column keeps its name. Where a table has a column of that name (`status`, or `Name` beside `name`, which
SQL does not distinguish), it is called `<name>_manifest`, then `<name>_manifest_2`, and so on. The field's metadata
`manifest_column` holds the original name.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa

from lightmeter.errors import UsageError
from lightmeter.facts.columns import KEY_COLUMNS, OPTIONAL_TABLES, TABLE_COLUMNS, ColumnSpec

__all__ = [
    "ALL_TABLES",
    "ARROW_TYPES",
    "EXTRA_TYPES",
    "MANIFEST_COLUMN",
    "OPTIONAL_TABLES",
    "SCHEMA_VERSION",
    "TABLES",
    "VERSION_KEY",
    "manifest_columns",
    "schema",
]

SCHEMA_VERSION: Final = 2
"""Increased with every change of a column's name, type or meaning, not for a new column; part of each file's footer."""

TABLES: Final = tuple(table for table in TABLE_COLUMNS if table not in OPTIONAL_TABLES)
"""The tables that every export writes, `assets` first."""

ALL_TABLES: Final = (*TABLES, *OPTIONAL_TABLES)

VERSION_KEY: Final = b"lightmeter.schema_version"
MANIFEST_COLUMN: Final = b"manifest_column"

ARROW_TYPES: Final[Mapping[str, pa.DataType]] = MappingProxyType(
    {
        "string": pa.string(),
        "double": pa.float64(),
        "int32": pa.int32(),
        "int64": pa.int64(),
        "uint8": pa.uint8(),
        "bool": pa.bool_(),
        "moment": pa.timestamp("us", tz="UTC"),
        "names": pa.list_(pa.string()),
        "polygon": pa.list_(pa.struct([("x", pa.float64()), ("y", pa.float64())])),
        "emotions": pa.map_(pa.string(), pa.float64()),
        "vector": pa.list_(pa.float32()),
    }
)
"""Arrow types of our own columns, by their kind."""

EXTRA_TYPES: Final[Mapping[str, pa.DataType]] = MappingProxyType(
    {
        "string": pa.string(),
        "int64": pa.int64(),
        "uint64": pa.uint64(),
        "double": pa.float64(),
        "bool": pa.bool_(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us"),
        "timestamp_utc": pa.timestamp("us", tz="UTC"),
        "json": pa.string(),
    }
)
"""Arrow types of the manifest's own columns, by the names that its reader gives; an unknown name is text."""


def schema(table: str, extra_types: Mapping[str, str] = MappingProxyType({})) -> pa.Schema:
    """Return the schema of a table; that of `assets` ends with the manifest's own columns.

    Each field's metadata holds `description`, `unit` and `null` (when it is null).

    Raises:
        UsageError: There is no such table.
    """
    if table not in TABLE_COLUMNS:
        raise UsageError(f"there is no table {table!r}", hint=f"The tables are {', '.join(ALL_TABLES)}.")
    fields = [_field(column) for column in (*KEY_COLUMNS, *TABLE_COLUMNS[table])]
    if table == "assets":
        fields += [
            pa.field(column, EXTRA_TYPES.get(extra_types[name], pa.string()), metadata=_manifest_metadata(name))
            for name, column in manifest_columns(extra_types).items()
        ]
    metadata: dict[bytes | str, bytes | str] = {
        VERSION_KEY: str(SCHEMA_VERSION).encode(),
        b"lightmeter.table": table.encode(),
    }
    return pa.schema(fields, metadata=metadata)


def manifest_columns(extra_types: Mapping[str, str]) -> dict[str, str]:
    """Return the manifest's own columns → their names in `assets`; see the top of this module."""
    taken = {column.name for column in (*KEY_COLUMNS, *TABLE_COLUMNS["assets"])}
    named: dict[str, str] = {}
    for name in extra_types:
        column, number = name, 1
        while column.casefold() in taken:
            column = f"{name}_manifest" if number == 1 else f"{name}_manifest_{number}"
            number += 1
        taken.add(column.casefold())
        named[name] = column
    return named


def _field(column: ColumnSpec) -> pa.Field[Any]:
    metadata = {"description": column.description, "unit": column.unit, "null": column.null}
    return pa.field(column.name, ARROW_TYPES[column.kind], metadata=metadata)


def _manifest_metadata(name: str) -> dict[bytes, bytes]:
    described = {
        b"description": b"The manifest's own column, unchanged.",
        b"unit": b"-",
        b"null": b"empty in the manifest",
    }
    return {**described, MANIFEST_COLUMN: name.encode("utf-8", "replace")}
