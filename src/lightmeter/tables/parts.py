"""One part of a table: a Parquet file with large row groups, whose footer says what it holds.

The footer holds the schema's version, the lineage, and the runs whose rows are in the part. A file and its description
are renamed into place together, so no crash can separate them.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from lightmeter.errors import TablesError

__all__ = [
    "LINEAGE_KEY",
    "ROW_GROUP_ROWS",
    "PartInfo",
    "PartWriter",
    "corrupt_file_error",
    "read_batches",
    "read_part_info",
    "read_schema",
    "translate_read_errors",
]

LINEAGE_KEY: Final = b"lightmeter.lineage"

_TYPES_KEY: Final = b"ARROW:schema"
"""Where Arrow's readers look for a column's own type, base64 of Arrow's serialized schema: see "Parquet data types" in
Arrow's documentation of its Parquet reader."""

ROW_GROUP_ROWS: Final = 128 * 1024
"""Rows of a group, at most: small groups compress badly and are slow to scan, large ones cost memory."""

ROW_GROUP_BYTES: Final = 8 * 2**20
"""Bytes of a group in memory, at most: rows with long texts fill a group before they are many."""


@dataclass(frozen=True, slots=True)
class PartInfo:
    """What the footer of a part says.

    Attributes:
        path: The file.
        rows: Rows in it.
        groups: Row groups they are in.
        size_bytes: Of the file.
        lineage: Where the rows come from; empty where another program wrote the file.
    """

    path: Path
    rows: int
    groups: int
    size_bytes: int
    lineage: Mapping[str, Any]

    @property
    def runs(self) -> dict[str, str]:
        """The runs whose rows are in the part, each with the mark of its journal when the part was written."""
        return dict(self.lineage.get("runs", {}))

    @property
    def key(self) -> tuple[frozenset[str], int]:
        """Identity of the part: its runs, and where its shard begins. A new part replaces the one with the same key."""
        return frozenset(self.runs), self.lineage.get("shard", {}).get("after", 0)


def corrupt_file_error(out: Path | str, what: Path | str, error: Exception) -> TablesError:
    """Return the error for a broken file of the tables.

    Args:
        out: The output folder.
        what: The file, or the tables if it is not known which.
        error: What the reader said.
    """
    said = " ".join(str(error).split())
    return TablesError(
        f"{what} cannot be read: {said.rstrip('.')}.",
        hint=f"Write the tables again from the journal, with no request: lightmeter rebuild {out}",
    )


@contextmanager
def translate_read_errors(path: Path) -> Iterator[None]:
    """Raise the errors of a reader that meets a broken part as `TablesError`.

    Raises:
        FileNotFoundError: The part was replaced meanwhile.
        TablesError: It is cut short, or no Parquet file.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise corrupt_file_error(path.parent.parent.parent, path, error) from error


def read_schema(path: Path) -> pa.Schema:
    """Return the schema of a part.

    Raises:
        As `translate_read_errors`.
    """
    with translate_read_errors(path):
        return pq.read_schema(path)


def read_batches(path: Path) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a part, about a row group at a time.

    Raises:
        As `translate_read_errors`.
    """
    with translate_read_errors(path):
        file = pq.ParquetFile(path)
    with file:
        rows = file.iter_batches(batch_size=ROW_GROUP_ROWS)
        while True:
            with translate_read_errors(path):
                batch = next(rows, None)
            if batch is None:
                return
            yield batch


def read_part_info(path: Path) -> PartInfo:
    """Return what the footer of a part says.

    Raises:
        As `translate_read_errors`.
    """
    with translate_read_errors(path), pq.ParquetFile(path) as file:
        footer = file.metadata
        stored = (footer.metadata or {}).get(LINEAGE_KEY)
        return PartInfo(
            path, footer.num_rows, footer.num_row_groups, path.stat().st_size, json.loads(stored) if stored else {}
        )


class PartWriter:
    """Writes tables of one schema to one Parquet file, in large row groups.

    Columns may come as dictionaries of their types: they are written as they are, which takes half the time, because
    Parquet stores texts as dictionaries anyway. Readers see the schema's own types all the same, because the footer
    names them: in the entry `ARROW:schema`, where Arrow looks for types.

    Args:
        path: The file to create.
        schema: Schema of all rows.
        lineage: Goes into the footer as JSON.
    """

    def __init__(self, path: Path, schema: pa.Schema, lineage: Mapping[str, Any]) -> None:
        self._path = path
        self._schema = schema
        self._footer = {**(schema.metadata or {}), LINEAGE_KEY: json.dumps(dict(lineage), sort_keys=True).encode()}
        self._file: pq.ParquetWriter | None = None
        self._stored = schema
        self._waiting: list[pa.Table] = []
        self._waiting_rows = 0
        self._waiting_bytes = 0
        self.rows = 0

    def write(self, table: pa.Table) -> None:
        """Add rows; columns of the schema that `table` lacks are null.

        Raises:
            ValueError: A column that the schema does not have, or whose type does not fit.
        """
        unknown = set(table.column_names) - set(self._schema.names)
        if unknown:
            raise ValueError(f"the schema has no column {', '.join(sorted(unknown))}")
        self._opened(table)
        rows = pa.Table.from_arrays([_column(table, field) for field in self._stored], schema=self._stored)
        self._waiting.append(rows)
        self._waiting_rows += rows.num_rows
        self._waiting_bytes += rows.nbytes
        self.rows += rows.num_rows
        if self._waiting_rows >= ROW_GROUP_ROWS or self._waiting_bytes >= ROW_GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the rows that wait as a row group."""
        if self._file is not None and self._waiting_rows:
            group: Any = pa.concat_tables(self._waiting)
            # A little more than a group stays one: a tail of a few rows would be a group of its own.
            self._file.write_table(group.unify_dictionaries(), row_group_size=2 * ROW_GROUP_ROWS)
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0

    def close(self) -> None:
        """Write the rows that wait, and the footer."""
        file = self._opened(None)
        self.flush()
        types = base64.b64encode(self._schema.with_metadata(self._footer).serialize().to_pybytes())
        footer: Any = {**self._footer, _TYPES_KEY: types}
        file.add_key_value_metadata(footer)
        file.close()

    def abandon(self) -> None:
        """Close the file as it is: it is not a part."""
        self._waiting = []
        with suppress(OSError):  # the disk may be full: the file is not needed
            if self._file is not None:
                self._file.close()

    def _opened(self, first: pa.Table | None) -> pq.ParquetWriter:
        """Return the file; its columns are dictionaries where those of the first rows are."""
        if self._file is None:
            dictionaries = (
                set() if first is None else {field.name for field in first.schema if _is_dictionary(field.type)}
            )
            self._stored = pa.schema(
                [
                    field.with_type(pa.dictionary(pa.int32(), field.type)) if field.name in dictionaries else field
                    for field in self._schema
                ]
            )
            # No two vectors are alike: a dictionary of coordinates takes four times as long and a third more room.
            flat = [field.name for field in self._stored if not pa.types.is_list(field.type)]
            encoded: Any = flat if any(map(_holds_vectors, self._stored.types)) else True
            self._file = pq.ParquetWriter(
                self._path, self._stored, compression="zstd", store_schema=False, use_dictionary=encoded
            )
        return self._file


def _column(table: pa.Table, field: pa.Field[Any]) -> Any:
    """Return a column of the table in the type of the field; a column that is missing is null."""
    if field.name not in table.column_names:
        return pa.nulls(table.num_rows, field.type)
    column: Any = table.column(field.name)
    if column.type == field.type:
        return column
    return column.dictionary_encode() if _is_dictionary(field.type) else column.cast(field.type)


def _is_dictionary(of: Any) -> bool:
    return pa.types.is_dictionary(of)


def _holds_vectors(of: Any) -> bool:
    return pa.types.is_list(of) and pa.types.is_float32(of.value_type)
