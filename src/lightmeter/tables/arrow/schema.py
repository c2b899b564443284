"""Versioned Arrow schemas of the tables. `assets` and `items` include the manifest's own columns.

These are the columns that lightmeter does not interpret. Such a column keeps its name, unless the table already has a
column of that name, ignoring case as SQL does. Then it is called `<name>_manifest`, or `<name>_manifest_2`, and so on.
The metadata `manifest_column` of the field holds the original name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa

from lightmeter.errors import UsageError
from lightmeter.facts.columns import ITEMS, KEY_COLUMNS, OPTIONAL_TABLES, REVIEWS, TABLE_COLUMNS, ColumnSpec

SCHEMA_VERSION: Final = 4
"""Version of the schemas. Increase it when a column's name, type or meaning changes, not for a new column."""

TABLES: Final = tuple(table for table in TABLE_COLUMNS if table not in (*OPTIONAL_TABLES, REVIEWS, ITEMS))
"""The tables that every export writes, `assets` first."""

JOURNAL_TABLES: Final = (*TABLES, *OPTIONAL_TABLES)
"""The tables with a fixed schema whose rows come from journals."""

ALL_TABLES: Final = (*JOURNAL_TABLES, REVIEWS, ITEMS)
"""All tables with a fixed schema: all but the tables of answers to a user's question."""

MANIFEST_COLUMN: Final = b"manifest_column"
"""Key of a column's original name in a field's metadata."""

POSITION_COLUMN: Final = "lm_position"
"""Name of a column that queries of the gallery add to `assets`; no column of a manifest has it there."""

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
"""`ColumnSpec.kind` → Arrow type."""

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
"""Type name from the manifest reader → Arrow type of a manifest column. Unknown type names are stored as text."""


def schema(table: str, extra_types: Mapping[str, str] = MappingProxyType({})) -> pa.Schema:
    """Return the Arrow schema of a table. Each field has metadata: its description, its unit, and when it is null.

    Args:
        table: Name of the table, one of `ALL_TABLES`.
        extra_types: Name of each manifest column that lightmeter does not interpret → its type name, a key of
            `EXTRA_TYPES`. These columns are the last ones of `assets`; for other tables, the argument has no effect.

    Raises:
        UsageError: There is no table of this name.
    """
    if table not in TABLE_COLUMNS:
        raise UsageError(f"there is no table {table!r}", hint=f"The tables are {', '.join(ALL_TABLES)}.")
    fields = [field_of(column) for column in (*KEY_COLUMNS, *TABLE_COLUMNS[table])]
    if table == "assets":
        fields += [
            pa.field(column, EXTRA_TYPES.get(extra_types[name], pa.string()), metadata=_manifest_metadata(name))
            for name, column in manifest_columns(extra_types).items()
        ]
    return pa.schema(fields, metadata=schema_metadata(table))


def schema_metadata(table: str) -> dict[bytes | str, bytes | str]:
    """Return the metadata of the schema of a table: the schema version and the name of the table."""
    return {b"lightmeter.schema_version": str(SCHEMA_VERSION).encode(), b"lightmeter.table": table.encode()}


def manifest_columns(names: Iterable[str], table: str = "assets") -> dict[str, str]:
    """Return a mapping from manifest columns to their names in `table`, which is `assets` or `items`.

    `names` are the manifest columns that lightmeter does not interpret. If the table already has a column of that name,
    or it is `POSITION_COLUMN`, the name gets the suffix `_manifest`.
    """
    taken = {POSITION_COLUMN, *(column.name for column in (*KEY_COLUMNS, *TABLE_COLUMNS[table]))}
    new_names: dict[str, str] = {}
    for name in names:
        column, number = name, 1
        while column.casefold() in taken:
            column = f"{name}_manifest" if number == 1 else f"{name}_manifest_{number}"
            number += 1
        taken.add(column.casefold())
        new_names[name] = column
    return new_names


def field_of(column: ColumnSpec) -> pa.Field[Any]:
    """Return the Arrow field of a table column, with metadata: its description, its unit, and when it is null."""
    metadata = {"description": column.description, "unit": column.unit, "null": column.null}
    return pa.field(column.name, ARROW_TYPES[column.kind], metadata=metadata)


def _manifest_metadata(name: str) -> dict[bytes, bytes]:
    return {
        b"description": b"The manifest's own column, unchanged.",
        b"unit": b"-",
        b"null": b"empty in the manifest",
        MANIFEST_COLUMN: name.encode("utf-8", "replace"),
    }
