"""Reading and writing of one Parquet file of a table, called a *part*, with large row groups.

The footer of the file holds the schema version and the lineage: where the rows come from, including the runs whose rows
are in the file. Because the footer is part of the file, no crash can separate the rows from their description.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from lightmeter.errors import TablesError

LINEAGE_KEY: Final = b"lightmeter.lineage"
"""Key under which the footer of a Parquet file holds the lineage, which says where the rows of the file come from."""

_TYPES_KEY: Final = b"ARROW:schema"
"""Key under which the footer holds the Arrow schema in base64. Arrow's Parquet reader takes column types from it."""

ROW_GROUP_ROWS: Final = 128 * 1024
"""A row group is written when this number of rows is buffered.

Small row groups compress badly and are slow to scan; large ones cost memory.
"""

ROW_GROUP_BYTES: Final = 8 * 2**20
"""A row group is also written when the buffered rows take this number of bytes of memory.

With long texts, that happens before `ROW_GROUP_ROWS` rows are buffered.
"""


@dataclass(frozen=True, slots=True)
class PartInfo:
    """Facts about one Parquet file of a table, read from its footer.

    Attributes:
        path: The file.
        rows: Number of rows.
        groups: Number of Parquet row groups.
        size_bytes: Size of the file.
        lineage: Where the rows come from, as JSON values; empty if another program wrote the file. The package `tables`
            reads two entries: `runs`, the value of the property `runs`, and `shard`, a dict whose entry `after` is the
            second part of the property `key`. The writer may add any others, such as `manifest` and `options`.
    """

    path: Path
    rows: int
    groups: int
    size_bytes: int
    lineage: Mapping[str, Any]

    @property
    def runs(self) -> dict[str, str]:
        """Id of each run with rows in the file → a text that changes whenever the journal of that run changes."""
        return dict(self.lineage.get("runs", {}))

    @property
    def key(self) -> tuple[frozenset[str], int]:
        """Identity of the file among the files of its table: a new file replaces the file with the same key.

        The key has two parts: the ids of the runs with rows in the file, and a number. If the rows are from one run,
        each file has a range of its requests. The number is then the end of the previous range: a `submission_id` in
        the journal of the run, or 0 for the first range. If the rows are from several runs, the number is 0.

        A file that `merge_into` wrote is an exception: it has the number of the last of the merged files.
        """
        return frozenset(self.runs), self.lineage.get("shard", {}).get("after", 0)


def corrupt_file_error(out: Path | str, what: Path | str, error: Exception) -> TablesError:
    """Return the error for a table's file that cannot be read. Its hint is the command that writes the tables again.

    Args:
        out: The output folder, which the command in the hint names.
        what: The file, or the folder of all tables if it is not known which file is broken.
        error: The error of the library that read the file.
    """
    message = " ".join(str(error).split())
    return TablesError(
        f"{what} cannot be read: {message.rstrip('.')}.",
        hint=f"Write the tables again from the journal, with no request: lightmeter rebuild {out}",
    )


@contextmanager
def translate_read_errors(path: Path) -> Iterator[None]:
    """Convert errors of the Parquet reader inside the block to `TablesError`.

    Raises:
        FileNotFoundError: A writer replaced the file after the caller had listed the files of the table.
        TablesError: The file is truncated, or it is not a Parquet file.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise corrupt_file_error(path.parent.parent.parent, path, error) from error


def read_schema(path: Path) -> pa.Schema:
    """Return the Arrow schema of a Parquet file. Raises TablesError if the file is broken."""
    with translate_read_errors(path):
        return pq.read_schema(path)


def read_batches(path: Path) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a Parquet file, up to `ROW_GROUP_ROWS` at a time. Raises TablesError if the file is broken."""
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
    """Return what the footer of a Parquet file says about the file. Raises TablesError if the file is broken."""
    with translate_read_errors(path):
        found = path.stat()
        return _read_footer(path, (found.st_size, found.st_ino, found.st_mtime_ns))


@lru_cache(maxsize=1 << 14)  # a file never changes: during a run, each export reads only the footers of new files
def _read_footer(path: Path, version: tuple[int, int, int]) -> PartInfo:
    """Return `read_part_info` of a file; `version` is its size, inode and time of change, to tell two files apart."""
    with pq.ParquetFile(path) as file:
        footer = file.metadata
        stored = (footer.metadata or {}).get(LINEAGE_KEY)
        return PartInfo(path, footer.num_rows, footer.num_row_groups, version[0], json.loads(stored) if stored else {})


class PartWriter:
    """Writes Arrow tables of one schema to one Parquet file, in large row groups.

    Columns that are dictionary-encoded in the first table are dictionary-encoded in the file, which halves the time to
    write them. Arrow's reader still returns the types of `schema`, because it takes them from the footer.

    Args:
        path: The file to create.
        schema: Schema of all rows.
        lineage: Where the rows come from (`PartInfo.lineage`), to be stored in the footer.

    Attributes:
        rows: Number of rows added so far.
    """

    def __init__(self, path: Path, schema: pa.Schema, lineage: Mapping[str, Any]) -> None:
        self._path = path
        self._schema = schema
        self._footer = {**(schema.metadata or {}), LINEAGE_KEY: json.dumps(dict(lineage), sort_keys=True).encode()}
        self._file: pq.ParquetWriter | None = None
        self._stored_schema = schema
        self._buffer: list[pa.Table] = []
        self._buffered_rows = 0
        self._buffered_bytes = 0
        self.rows = 0

    def write(self, table: pa.Table) -> None:
        """Add the rows of an Arrow table to the file; columns of the file's schema that `table` lacks become null.

        Raises:
            ValueError: The schema lacks a column of `table`, or has another type for it.
        """
        unknown = set(table.column_names) - set(self._schema.names)
        if unknown:
            raise ValueError(f"the schema has no column {', '.join(sorted(unknown))}")
        self._open_file(table)
        rows = pa.Table.from_arrays(
            [_column(table, field) for field in self._stored_schema], schema=self._stored_schema
        )
        self._buffer.append(rows)
        self._buffered_rows += rows.num_rows
        self._buffered_bytes += rows.nbytes
        self.rows += rows.num_rows
        if self._buffered_rows >= ROW_GROUP_ROWS or self._buffered_bytes >= ROW_GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the buffered rows to the file as a Parquet row group."""
        if self._file is not None and self._buffered_rows:
            group: Any = pa.concat_tables(self._buffer)
            # Slightly more than ROW_GROUP_ROWS rows stay one group: the rest would be a tiny group.
            self._file.write_table(group.unify_dictionaries(), row_group_size=2 * ROW_GROUP_ROWS)
        self._buffer, self._buffered_rows, self._buffered_bytes = [], 0, 0

    def close(self) -> None:
        """Write the buffered rows and the footer, and close the file, which is then complete."""
        file = self._open_file(None)
        self.flush()
        types = base64.b64encode(self._schema.with_metadata(self._footer).serialize().to_pybytes())
        footer: Any = {**self._footer, _TYPES_KEY: types}
        file.add_key_value_metadata(footer)
        file.close()

    def abandon(self) -> None:
        """Close the file after an error, without writing the buffered rows. Do nothing after `close`.

        An abandoned file is incomplete and must not be used.
        """
        self._buffer = []
        with suppress(OSError):  # the disk may be full: the file is not needed
            if self._file is not None:
                self._file.close()

    def _open_file(self, first: pa.Table | None) -> pq.ParquetWriter:
        """Return the Parquet writer; the first call creates the file.

        `first` is the first table to be written: its dictionary-encoded columns will be dictionary-encoded in the file.
        None means that there is no such table. Later calls ignore it.
        """
        if self._file is None:
            dictionaries = (
                set() if first is None else {field.name for field in first.schema if _is_dictionary(field.type)}
            )
            self._stored_schema = pa.schema(
                [
                    field.with_type(pa.dictionary(pa.int32(), field.type)) if field.name in dictionaries else field
                    for field in self._schema
                ]
            )
            # Coordinates of vectors rarely repeat: as a dictionary they take four times as long and a third more space.
            flat = [field.name for field in self._stored_schema if not pa.types.is_list(field.type)]
            encoded: Any = flat if any(map(_is_vector, self._stored_schema.types)) else True
            self._file = pq.ParquetWriter(
                self._path, self._stored_schema, compression="zstd", store_schema=False, use_dictionary=encoded
            )
        return self._file


def _column(table: pa.Table, field: pa.Field[Any]) -> Any:
    if field.name not in table.column_names:
        return pa.nulls(table.num_rows, field.type)
    column: Any = table.column(field.name)
    if column.type == field.type:
        return column
    return column.dictionary_encode() if _is_dictionary(field.type) else column.cast(field.type)


def _is_dictionary(arrow_type: Any) -> bool:
    return pa.types.is_dictionary(arrow_type)


def _is_vector(arrow_type: Any) -> bool:
    return pa.types.is_list(arrow_type) and pa.types.is_float32(arrow_type.value_type)
