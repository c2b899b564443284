"""Reads manifest rows from Parquet files, DataFrames and other Arrow data, and converts their values to JSON values."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Final

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from pyarrow import types as kinds

from lightmeter.errors import ManifestError
from lightmeter.manifest.folders import FileSet
from lightmeter.manifest.item import JSON
from lightmeter.manifest.row_parser import RawRow, ReadOptions, column_roles, missing_column, named_columns

if TYPE_CHECKING:
    import pyarrow.dataset as ds

_BATCH_ROWS: Final = 4096

# (test, type name, Arrow type to cast to); the first matching test counts. Other types become strings.
_TYPE_RULES: Final[tuple[tuple[Callable[[Any], bool], str, Any], ...]] = (
    (kinds.is_boolean, "bool", None),
    (kinds.is_uint64, "uint64", None),
    (kinds.is_integer, "int64", None),
    (kinds.is_floating, "double", pa.float64()),
    (kinds.is_date, "date", None),
    (kinds.is_nested, "json", None),
)


def parquet_rows(opened: Any, name: str, types: dict[str, str], options: ReadOptions) -> Iterator[RawRow]:
    """Yield the manifest rows of a Parquet file.

    Args:
        opened: The file, open for reading.
        name: The manifest's name for messages.
        types: Filled before the first row: column → type, such as `int64`, for all columns but those of URLs, paths,
            ids and kinds.
        options: Names of the columns of URLs, ids and kinds (image or video).

    Raises:
        ManifestError: the file is not Parquet, is damaged, lacks a needed column, or has two columns of the same name.
    """
    try:
        with pq.ParquetFile(opened) as file:
            yield from batch_rows(file.iter_batches(batch_size=_BATCH_ROWS), file.schema_arrow, name, types, options)
    except (pa.ArrowException, OSError) as error:
        raise ManifestError(f"{name}: it cannot be read as Parquet: {error}") from error


def parquet_set_rows(files: FileSet, name: str, types: dict[str, str], options: ReadOptions) -> Iterator[RawRow]:
    """Yield the manifest rows of several Parquet files; a folder such as `year=2024` adds the column `year`.

    Each column gets a type that can hold the values of all files. If a file lacks a column, its rows have null there.

    Args:
        files: The Parquet files.
        name: The manifest's name for messages.
        types: Filled before the first row: column → type, such as `int64`, for all columns but those of URLs, paths,
            ids and kinds.
        options: Names of the columns of URLs, ids and kinds (image or video).

    Raises:
        ManifestError: a file is not Parquet, two files disagree on a column's type, or a needed column is missing.
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
        batches = (
            batch
            for fragment in dataset.get_fragments()
            for batch in fragment.to_batches(
                schema=dataset.schema, batch_size=_BATCH_ROWS, batch_readahead=1, fragment_readahead=1
            )
        )
        yield from batch_rows(batches, dataset.schema, name, types, options)
    except (pa.ArrowException, OSError) as error:
        raise ManifestError(f"{name}: it cannot be read as Parquet: {error}") from error


def _dataset(files: FileSet, names: list[str], schema: pa.Schema) -> ds.Dataset:
    """Open the Parquet files `names` of `files` as one data set.

    Its columns are those of `schema`, and the keys of folders, such as `year` for the folder `year=2024`.
    """
    import pyarrow.dataset as ds  # noqa: PLC0415 (imports pandas, which a single file does not need)

    shared: dict[str, Any] = {
        "source": [f"{files.base}/{name}" for name in names],
        "filesystem": files.filesystem or fs.LocalFileSystem(),
        "format": "parquet",
        "partition_base_dir": files.base,
    }
    partitioning: Any = ds.dataset(partitioning=ds.partitioning(flavor="hive"), **shared).partitioning
    keys = partitioning.schema if partitioning is not None else pa.schema([])
    whole = pa.unify_schemas([schema, keys], promote_options="permissive")
    dataset: ds.Dataset = ds.dataset(schema=whole, partitioning=ds.partitioning(keys, flavor="hive"), **shared)
    return dataset


def open_stream(source: Any) -> pa.RecordBatchReader | None:
    """Return an Arrow reader of `source`, a DataFrame or other table; None if Arrow cannot pass it on.

    That is so if a column has Python values of mixed types, is nested in more than 64 levels, or has a name twice.
    """
    if "Object" in map(str, getattr(source, "dtypes", ())):
        return None  # Polars passes on the addresses of such Python values
    try:
        return pa.RecordBatchReader.from_stream(source)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return None


def batch_rows(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, name: str, types: dict[str, str], options: ReadOptions
) -> Iterator[RawRow]:
    """Yield the rows of a manifest that is given as Arrow record batches.

    Args:
        batches: The batches.
        schema: Schema of the batches.
        name: Name of the manifest for messages.
        types: Filled before the first row: column → type, such as `int64`, for all columns but those of URLs, paths,
            ids and kinds.
        options: Names of the columns of URLs, ids and kinds (image or video).

    Raises:
        ManifestError: the column of URLs or paths is missing, a column in `options` is missing, two columns have the
            same name, or a value cannot be read, such as a date after the year 9999.
    """
    # pandas exports its row labels as columns of this name; they are not data.
    indices = [index for index, column in enumerate(schema.names) if not column.startswith("__index_level_")]
    names = named_columns(schema.names[index] for index in indices)
    roles = column_roles(tuple(names), options)
    if missing := options.first_missing_column(names):
        raise missing_column(name, missing, names)
    if not roles.usable:
        raise ManifestError(
            f"{name}: no column is named `url` or `path`",
            hint=f"Its columns are: {', '.join(names)}. Say which one it is: --url-column NAME",
        )
    if len(set(names)) < len(names):
        raise duplicate_columns(name)
    kind_of = dict(zip(names, (schema.field(index).type for index in indices), strict=True))
    types.update({column: _type_name(kind_of[column]) for column in roles.extra})
    for batch in batches:
        for start in range(0, batch.num_rows, _BATCH_ROWS):
            columns = [
                _read_column(batch.column(index).slice(start, _BATCH_ROWS), schema.names[index], name)
                for index in indices
            ]
            for cells in zip(*columns, strict=True):
                yield RawRow(dict(zip(names, cells, strict=True)))


def duplicate_columns(name: str) -> ManifestError:
    """Return the error for a table with two columns of the same name; `name` is the manifest's name for messages."""
    return ManifestError(f"{name}: two columns share a name", hint="Rename one of the two.")


def _type_name(arrow_type: pa.DataType) -> str:
    if kinds.is_dictionary(arrow_type):
        return _type_name(arrow_type.value_type)
    if kinds.is_timestamp(arrow_type):
        return "timestamp" if arrow_type.tz is None else "timestamp_utc"
    return next((name for fits, name, _ in _TYPE_RULES if fits(arrow_type)), "string")


def _read_column(values: Any, column: str, name: str) -> list[JSON]:
    """Return the values of the column `column` as JSON values; `name` is the manifest's name for messages.

    Raises:
        ManifestError: a value has no JSON value: a text is not UTF-8, or a date is before the year 1 or after 9999.
    """
    try:
        return _json_column(values)
    except (ValueError, OverflowError) as error:
        raise ManifestError(
            f"{name}: the column {column!r} has a value that cannot be read: {error}.",
            hint="Write the column as text, or leave it out.",
        ) from error


def _json_column(column: Any) -> list[JSON]:
    """Return the values of an Arrow column as JSON values: dates and times in ISO 8601, bytes in base64."""
    if kinds.is_dictionary(column.type):
        column = _with_texts(column.dictionary).take(column.indices)
    column = _with_texts(column)
    if kinds.is_timestamp(column.type):
        # Python and our tables hold microseconds; finer digits are dropped. Coarser units can overflow.
        moments: Any = pa.timestamp("us", "UTC" if column.type.tz else None)
        column = column.cast(moments, safe=column.type.unit != "ns")
        return [None if moment is None else moment.isoformat() for moment in column.to_pylist()]
    target = next((target for fits, _, target in _TYPE_RULES if target and fits(column.type)), None)
    values: list[Any] = (column if target is None else column.cast(target, safe=False)).to_pylist()
    if kinds.is_boolean(column.type) or kinds.is_integer(column.type) or kinds.is_floating(column.type):
        return values
    return [value if value is None or isinstance(value, str) else _json_value(value) for value in values]


def _with_texts(values: Any) -> Any:
    """Convert an Arrow array of pandas periods, pandas intervals or string views to strings; return others as given."""
    if getattr(values.type, "extension_name", "").startswith("pandas."):  # their numbers say too little
        pairs = zip(values.to_pandas(), values.is_valid().to_pylist(), strict=True)
        return pa.array([str(value) if is_valid else None for value, is_valid in pairs], pa.string())
    return values.cast(pa.large_string()) if kinds.is_string_view(values.type) else values  # views have no `take`


def _json_value(value: Any) -> JSON:
    """Convert a nested value, or a value of a type that JSON lacks, to JSON.

    A nested value becomes an array or an object; integers, floats and booleans inside it stay as they are. A date
    becomes text in ISO 8601, bytes become base64. Any other value, such as a decimal, becomes its text.
    """
    if isinstance(value, (list, dict)) or type(value) is tuple:  # an interval is a subclass of tuple
        converted: JSON = orjson.loads(orjson.dumps(value, default=_json_value, option=orjson.OPT_NON_STR_KEYS))
        return converted
    if isinstance(value, (date, datetime)):
        return value.isoformat()
    return base64.b64encode(value).decode("ascii") if isinstance(value, bytes) else str(value)
