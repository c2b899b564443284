"""The tables on disk: `tables/<table>/part-*.parquet`, each replaced whole.

An export streams a table into one part under a name that no `*.parquet` glob meets, and then renames it: a reader
sees the old part or the new one. Row counts, schema version and lineage stand in the footer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from lightmeter import atomic
from lightmeter.tables.schema import schema as schema_of

__all__ = ["LINEAGE_KEY", "ROW_GROUP_ROWS", "Dataset", "PartWriter"]

LINEAGE_KEY: Final = b"lightmeter.lineage"

ROW_GROUP_ROWS: Final = 128 * 1024
"""Rows gathered before they are written: small groups compress badly and are slow to scan, large ones cost memory."""

_FIRST_PART: Final = "part-00000.parquet"


class PartWriter:
    """Streams tables of one schema into one Parquet file."""

    def __init__(self, file: pq.ParquetWriter, schema: pa.Schema) -> None:
        self._file = file
        self._schema = schema
        self._waiting: list[pa.Table] = []
        self._waiting_rows = 0
        self.rows = 0

    def write(self, table: pa.Table) -> None:
        """Add rows; columns of the schema that `table` lacks are null.

        Raises:
            ValueError: A column that the schema does not have, or whose type does not fit.
        """
        conformed = self._conform(table)
        self._waiting.append(conformed)
        self._waiting_rows += conformed.num_rows
        self.rows += conformed.num_rows
        if self._waiting_rows >= ROW_GROUP_ROWS:
            self.flush()

    def flush(self) -> None:
        """Write what waits as row groups."""
        if self._waiting_rows:
            # A little more than a group stays one: a tail of a few rows would be a group of its own.
            self._file.write_table(pa.concat_tables(self._waiting), row_group_size=2 * ROW_GROUP_ROWS)
        self._waiting, self._waiting_rows = [], 0

    def _conform(self, table: pa.Table) -> pa.Table:
        unknown = set(table.column_names) - set(self._schema.names)
        if unknown:
            raise ValueError(f"the schema has no column {', '.join(sorted(unknown))}")
        if table.schema.equals(self._schema):
            return table.replace_schema_metadata(None)
        columns: list[Any] = [
            table.column(field.name) if field.name in table.column_names else pa.nulls(table.num_rows, field.type)
            for field in self._schema
        ]
        arrays = zip(columns, self._schema.types, strict=True)
        return pa.Table.from_arrays([column.cast(of) for column, of in arrays], names=self._schema.names)


class Dataset:
    """The tables of one output folder.

    Attributes:
        out: The output folder; `tables/` is below it.
    """

    def __init__(self, out: Path) -> None:
        self.out = out

    def table_folder(self, table: str) -> Path:
        """Where a table's parts are."""
        return self.out / "tables" / table

    def parts(self, table: str) -> list[Path]:
        """The parts of a table as a reader's glob finds them, in order."""
        return sorted(self.table_folder(table).glob("*.parquet"))

    @contextmanager
    def writer(
        self, table: str, schema: pa.Schema, metadata: Mapping[str, Any] = MappingProxyType({})
    ) -> Iterator[PartWriter]:
        """Write a table anew; when the block ends well its one part replaces all parts there are.

        When the block raises, nothing has changed. `metadata` is the lineage: it goes into the footer as JSON.
        """
        folder = self.table_folder(table)
        folder.mkdir(parents=True, exist_ok=True)
        _sweep(folder)
        footer = {**(schema.metadata or {}), LINEAGE_KEY: json.dumps(dict(metadata), sort_keys=True).encode()}
        with atomic.replacing(folder / _FIRST_PART) as temporary:
            with pq.ParquetWriter(temporary, schema.with_metadata(footer), compression="zstd") as file:
                part = PartWriter(file, schema)
                yield part
                part.flush()
            # Before the rename: a reader in between misses rows that can be made again, and never counts one twice.
            for older in self.parts(table):
                if older.name != _FIRST_PART:
                    older.unlink(missing_ok=True)

    def read(self, table: str) -> pa.Table:
        """A whole table; empty, with the right columns, where nothing was written yet.

        Raises:
            UsageError: There is no such table.
        """
        empty = schema_of(table).empty_table()
        parts = [pq.ParquetFile(part).read() for part in self.parts(table)]
        return pa.concat_tables(parts, promote_options="permissive") if parts else empty

    def lineage(self, table: str) -> dict[str, Any] | None:
        """What the footer of the table's first part says about its origin; None where there is no part."""
        parts = self.parts(table)
        if not parts:
            return None
        stored = (pq.read_schema(parts[0]).metadata or {}).get(LINEAGE_KEY)
        lineage: dict[str, Any] = json.loads(stored) if stored else {}
        return lineage


def _sweep(folder: Path) -> None:
    """Remove what a writer that was killed left behind; the journal's lock keeps two writers apart."""
    for left in folder.glob(".*.parquet.*.tmp"):
        left.unlink(missing_ok=True)
