"""Rows from Arrow: Parquet files by batches, and anything that hands out an Arrow stream, such as a DataFrame.

Values become what JSON can hold; their Arrow types are remembered by name so that they come back as they were.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow import fs
from pyarrow import types as kinds

from lightmeter.errors import ManifestError
from lightmeter.manifest.folders import FileSet
from lightmeter.manifest.item import JSON
from lightmeter.manifest.row_parser import ColumnRoles, RawRow, ReadOptions, missing_column

__all__ = ["Columns", "open_stream", "parquet_rows", "parquet_set_rows", "stream_rows"]

_BATCH_ROWS: Final = 4096

# The first that fits names the type and says what it is cast to on the way; the rest is text or JSON.
_NAMES: Final[tuple[tuple[Callable[[Any], bool], str, Any], ...]] = (
    (kinds.is_boolean, "bool", None),
    (kinds.is_uint64, "uint64", None),
    (kinds.is_integer, "int64", None),
    (kinds.is_floating, "double", pa.float64()),
    (kinds.is_date, "date", pa.date32()),
    (kinds.is_nested, "json", None),
)


def parquet_rows(opened: Any, name: str, types: dict[str, str], options: ReadOptions) -> Iterator[RawRow]:
    """Rows of an opened Parquet file, a batch at a time; `types` receives the extra columns first.

    Args:
        opened: The file, from its start.
        name: What messages call it.
        types: Filled with the types of the extra columns.
        options: Which columns mean something.

    Raises:
        ManifestError: It is no Parquet file, is damaged, or lacks the column of URLs or paths.
    """
    try:
        with pq.ParquetFile(opened) as file:
            columns = Columns(file.schema_arrow, name, options)
            yield from columns.rows(file.iter_batches(batch_size=_BATCH_ROWS), types)
    except (pa.ArrowException, OSError) as error:
        raise ManifestError(f"{name}: it cannot be read as Parquet: {error}") from error


def parquet_set_rows(files: FileSet, name: str, types: dict[str, str], options: ReadOptions) -> Iterator[RawRow]:
    """Rows of Parquet files, one file after the other, a batch at a time; keys of hive partitions are columns.

    A column has the type that holds the values of all files; where a file lacks it, it is null.

    Args:
        files: Which files.
        name: What messages call them.
        types: Filled with the types of the extra columns.
        options: Which columns mean something.

    Raises:
        ManifestError: A file is no Parquet, two files disagree on a column's type, or the column of URLs or paths is
            missing.
    """
    names = list(files.list_names())
    schema = pa.schema([])
    for part in names:
        try:
            with files.open(part) as opened:
                schema = pa.unify_schemas([schema, pq.read_schema(opened)], promote_options="permissive")
        except (pa.ArrowException, OSError) as error:
            raise ManifestError(f"{name}: {part} cannot be read as Parquet with the others: {error}") from error
    try:
        dataset = _dataset(files, names, schema)
        fragments = dataset.get_fragments()
        batches = (
            batch
            for fragment in fragments
            for batch in fragment.to_batches(
                schema=dataset.schema, batch_size=_BATCH_ROWS, batch_readahead=1, fragment_readahead=1
            )
        )
        yield from Columns(dataset.schema, name, options).rows(batches, types)
    except (pa.ArrowException, OSError) as error:
        raise ManifestError(f"{name}: it cannot be read as Parquet: {error}") from error


def _dataset(files: FileSet, names: list[str], schema: pa.Schema) -> ds.Dataset:
    """The files as one table, with the keys of their folders as further columns."""
    shared: dict[str, Any] = {
        "source": [f"{files.base}/{name}" for name in names],
        "filesystem": files.filesystem or fs.LocalFileSystem(),
        "format": "parquet",
        "partition_base_dir": files.base,
    }
    found: Any = ds.dataset(partitioning=ds.partitioning(flavor="hive"), **shared).partitioning
    keys = found.schema if found is not None else pa.schema([])
    whole = pa.unify_schemas([schema, keys], promote_options="permissive")
    dataset: ds.Dataset = ds.dataset(schema=whole, partitioning=ds.partitioning(keys, flavor="hive"), **shared)
    return dataset


def open_stream(source: Any) -> pa.RecordBatchReader | None:
    """The Arrow stream of whatever has `__arrow_c_stream__`.

    None where there is none to be had, such as of a DataFrame with a column that mixes Python types.
    """
    try:
        return pa.RecordBatchReader.from_stream(source)
    except (pa.ArrowException, TypeError, OverflowError):
        return None


def stream_rows(
    stream: pa.RecordBatchReader, name: str, types: dict[str, str], options: ReadOptions
) -> Iterator[RawRow]:
    """Rows of an Arrow stream; `types` receives the extra columns first.

    Args:
        stream: The stream; it is closed at the end.
        name: What messages call it.
        types: Filled with the types of the extra columns.
        options: Which columns mean something.

    Raises:
        ManifestError: It lacks the column of URLs or paths.
    """
    with stream:
        yield from Columns(stream.schema, name, options).rows(stream, types)


class Columns:
    """The columns of a table of Arrow, and its rows.

    Raises:
        ManifestError: The column of URLs or paths, or one that the user named, is missing, or two share a name.
    """

    def __init__(self, schema: pa.Schema, name: str, options: ReadOptions) -> None:
        # pandas hands out its row labels as columns of this name; they are no data of the user's.
        self._kept = [place for place, column in enumerate(schema.names) if not column.startswith("__index_level_")]
        self._names = names = [schema.names[place] for place in self._kept]
        self._schema = schema
        self._layout = ColumnRoles.of(names, options)
        if missing := options.missing(names):
            raise missing_column(name, missing, names)
        if not self._layout.usable:
            raise ManifestError(
                f"{name}: no column is named `url` or `path`",
                hint=f"Its columns are: {', '.join(names)}. Say which one it is: --url-column NAME",
            )
        if len(set(names)) < len(names):
            raise ManifestError(f"{name}: two columns share a name", hint="Rename one of the two.")

    def rows(self, batches: Iterable[pa.RecordBatch], types: dict[str, str]) -> Iterator[RawRow]:
        """The rows of batches of this schema; `types` receives the extra columns first."""
        types.update({column: _type_name(self._schema.field(column).type) for column in self._layout.extra})
        for batch in batches:
            for part in range(0, batch.num_rows, _BATCH_ROWS):
                columns = [_json_column(batch.column(place).slice(part, _BATCH_ROWS)) for place in self._kept]
                for cells in zip(*columns, strict=True):
                    yield RawRow(dict(zip(self._names, cells, strict=True)))


def _type_name(arrow_type: pa.DataType) -> str:
    if kinds.is_dictionary(arrow_type):
        return _type_name(arrow_type.value_type)
    if kinds.is_timestamp(arrow_type):
        return "timestamp" if arrow_type.tz is None else "timestamp_utc"
    return next((name for fits, name, _ in _NAMES if fits(arrow_type)), "string")


def _json_column(column: Any) -> list[JSON]:
    """The values of a column as JSON values: moments and dates in ISO 8601, bytes in base64."""
    if kinds.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if kinds.is_timestamp(column.type):
        # Microseconds are what both Python and our tables hold; finer digits are cut.
        column = column.cast(pa.timestamp("us", "UTC" if column.type.tz else None), safe=False)
        return [None if moment is None else moment.isoformat() for moment in column.to_pylist()]
    target = next((target for fits, _, target in _NAMES if target and fits(column.type)), None)
    values: list[Any] = (column if target is None else column.cast(target, safe=False)).to_pylist()
    if kinds.is_boolean(column.type) or kinds.is_integer(column.type) or kinds.is_floating(column.type):
        return values
    return [value if value is None or isinstance(value, str) else _json_value(value) for value in values]


def _json_value(value: Any) -> JSON:
    """A single value as JSON holds it: nested ones whole, others as text."""
    if isinstance(value, (list, dict, tuple)):
        held: JSON = orjson.loads(orjson.dumps(value, default=_json_value, option=orjson.OPT_NON_STR_KEYS))
        return held
    if isinstance(value, (date, datetime)):
        return value.isoformat()
    return base64.b64encode(value).decode("ascii") if isinstance(value, bytes) else str(value)
