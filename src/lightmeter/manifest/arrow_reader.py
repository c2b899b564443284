"""Reads manifest rows from Parquet files, DataFrames and other Arrow data, and converts their values to JSON values."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import date, datetime
from typing import Any, Final
from urllib.parse import unquote

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types as kinds

from lightmeter.errors import ManifestError
from lightmeter.manifest.folders import FileSet
from lightmeter.manifest.item import JSON
from lightmeter.manifest.json_values import NOT_FINITE, NOT_TEXT, plain_text, text_of_bytes
from lightmeter.manifest.row_parser import (
    LARGEST_EXACT,
    ColumnRoles,
    RawRow,
    ReadOptions,
    column_roles,
    missing_column,
    named_columns,
    observe_types,
)

_BATCH_ROWS: Final = 4096
_HIVE_KEY: Final = re.compile("([^=]+)=(.*)", re.DOTALL)
_HIVE_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_CANONICAL_INTEGER: Final = re.compile("0|-?[1-9][0-9]{0,17}")  # the text of the number is the key again

# (test, type name, Arrow type to cast to); the first matching test counts. Other types become strings.
_TYPE_RULES: Final[tuple[tuple[Callable[[Any], bool], str, Any], ...]] = (
    (kinds.is_boolean, "bool", None),
    (kinds.is_uint64, "uint64", None),
    (kinds.is_integer, "int64", None),
    (kinds.is_floating, "double", pa.float64()),
    (kinds.is_date, "date", None),
    (kinds.is_nested, "json", None),
    (lambda arrow_type: kinds.is_duration(arrow_type) and arrow_type.unit == "ns", "string", pa.duration("us")),
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
        with _parquet_file(opened) as file:
            yield from batch_rows(file.iter_batches(batch_size=_BATCH_ROWS), file.schema_arrow, name, types, options)
    except (pa.ArrowException, OSError) as error:
        raise ManifestError(f"{name}: it cannot be read as Parquet: {error}") from error


def _parquet_file(opened: Any) -> pq.ParquetFile:
    # Nanoseconds, the default for the deprecated type INT96, silently turn the year 9999 into 1816.
    return pq.ParquetFile(opened, coerce_int96_timestamp_unit="us")


def parquet_set_rows(files: FileSet, name: str, types: dict[str, str], options: ReadOptions) -> Iterator[RawRow]:
    """Yield the manifest rows of several Parquet files; a folder such as `year=2024` adds the column `year`.

    Each column gets a type that can hold the values of all files. If a file lacks a column, its rows have null there.
    If a column is in the file and in its path, the file's values count. A file that cannot be read is a bad row.

    Args:
        files: The Parquet files.
        name: The manifest's name for messages.
        types: Filled before the first row, and adapted to integers that a `double` would round: column → type, such as
            `int64`, for all columns but those of URLs, paths, ids and kinds.
        options: Names of the columns of URLs, ids and kinds (image or video).

    Raises:
        ManifestError: no file is Parquet, a needed column is missing, or a file has two columns of the same name.
    """
    names, kind_of, problem = list(files.list_names()), dict[str, str](), None
    for part in names:
        try:
            with files.open(part) as opened, _parquet_file(opened) as file:
                schema = file.schema_arrow
        except (pa.ArrowException, OSError, UnicodeError) as error:
            problem = problem or f"{plain_text(part, [])} cannot be read as Parquet: {error}"
            continue
        for column, kind in _column_types(schema, name).items():
            kind_of[column] = _common_type(kind_of.get(column, "null"), kind)
        keys = _path_keys(part)
        observe_types(kind_of, keys.keys() - set(schema.names), keys)
    if problem and not kind_of:
        raise ManifestError(f"{name}: {problem}")
    roles = _check_columns(list(kind_of), name, options)
    types.update({column: "string" if kind_of[column] == "null" else kind_of[column] for column in roles.extra})
    doubles = [column for column, kind in types.items() if kind == "double"]
    blank = dict.fromkeys(kind_of)
    for part in names:
        try:
            with files.open(part) as opened, _parquet_file(opened) as file:
                start: dict[str, JSON] = blank | _path_keys(part)
                for row in _rows(file.iter_batches(batch_size=_BATCH_ROWS), file.schema_arrow, roles):
                    for column in doubles:
                        if isinstance(value := row.cells.get(column), int) and abs(value) > LARGEST_EXACT:
                            types[column] = "string"
                    yield RawRow(start | dict(row.cells), cell_notes=row.cell_notes)
        except (pa.ArrowException, OSError, UnicodeError) as error:
            shown = {roles.url or roles.path or "": plain_text(part, [])}
            yield RawRow(blank | shown, f"the file cannot be read (further) as Parquet: {error}")


def _path_keys(part: str) -> dict[str, JSON]:
    """Return the keys in the folders of a path: `year=2024/id=007/x.parquet` gives 2024 for `year`, "007" for `id`."""
    keys: dict[str, JSON] = {}
    for found in filter(None, map(_HIVE_KEY.fullmatch, part.split("/")[:-1])):
        text = plain_text(unquote(found[2]), [])
        value = int(text) if _CANONICAL_INTEGER.fullmatch(text) else text
        keys[plain_text(unquote(found[1]), [])] = None if text == _HIVE_NULL else value
    return keys


def _common_type(one: str, other: str) -> str:
    """Return the type of a column that has these types in two files."""
    kinds_found = {one, other} - {"null"}
    if len(kinds_found) < 2:  # noqa: PLR2004 (they are equal)
        return kinds_found.pop() if kinds_found else "null"
    if kinds_found <= {"int64", "uint64", "long", "double"} and "double" in kinds_found:
        return "double"
    return "json" if "json" in kinds_found else "string"


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

    A value that JSON lacks, such as a date after the year 9999, becomes null, and the row has a note.

    Args:
        batches: The batches.
        schema: Schema of the batches.
        name: Name of the manifest for messages.
        types: Filled before the first row: column → type, such as `int64`, for all columns but those of URLs, paths,
            ids and kinds.
        options: Names of the columns of URLs, ids and kinds (image or video).

    Raises:
        ManifestError: the column of URLs or paths is missing, a column in `options` is missing, or two columns have the
            same name.
    """
    kind_of = _column_types(schema, name)
    roles = _check_columns(list(kind_of), name, options)
    types.update({column: "string" if kind_of[column] == "null" else kind_of[column] for column in roles.extra})
    yield from _rows(batches, schema, roles)


def _check_columns(names: list[str], name: str, options: ReadOptions) -> ColumnRoles:
    roles = column_roles(tuple(names), options)
    if missing := options.first_missing_column(names):
        raise missing_column(name, missing, names)
    if not roles.usable:
        raise ManifestError(
            f"{name}: no column is named `url` or `path`",
            hint=f"Its columns are: {', '.join(names)}. Say which one it is: --url-column NAME",
        )
    return roles


def _column_types(schema: pa.Schema, name: str) -> dict[str, str]:
    """Return column → type name; raise ManifestError if two columns have the same name."""
    columns = _columns(schema)
    if len(set(columns.values())) < len(columns):
        raise duplicate_columns(name)
    return {column: _type_name(schema.field(index).type) for index, column in columns.items()}


def _columns(schema: pa.Schema) -> dict[int, str]:
    # pandas exports its row labels as columns of this name; they are not data.
    indices = [index for index, column in enumerate(schema.names) if not column.startswith("__index_level_")]
    return dict(zip(indices, named_columns(schema.names[index] for index in indices), strict=True))


def _rows(batches: Iterable[pa.RecordBatch], schema: pa.Schema, roles: ColumnRoles) -> Iterator[RawRow]:
    columns = _columns(schema)
    targets = {roles.url, roles.path}
    # A writer that does not mark addresses as texts marks no text.
    unmarked = any(_is_bytes(schema.field(index).type) for index, column in columns.items() if column in targets)
    texts: Collection[str | None] = columns.values() if unmarked else {*targets, roles.item_id, roles.kind}
    for batch in batches:
        for start in range(0, batch.num_rows, _BATCH_ROWS):
            read = {
                column: _read_column(batch.column(index).slice(start, _BATCH_ROWS), is_text=column in texts)
                for index, column in columns.items()
            }
            noted = [(column, notes) for column, (_, notes) in read.items() if notes]
            for place, cells in enumerate(zip(*(values for values, _ in read.values()), strict=True)):
                row_notes = {column: notes[place] for column, notes in noted if place in notes}
                yield RawRow(dict(zip(read, cells, strict=True)), cell_notes=row_notes)


def duplicate_columns(name: str) -> ManifestError:
    """Return the error for a table with two columns of the same name; `name` is the manifest's name for messages."""
    return ManifestError(f"{name}: two columns share a name", hint="Rename one of the two.")


def _type_name(arrow_type: pa.DataType) -> str:
    if kinds.is_dictionary(arrow_type) or kinds.is_run_end_encoded(arrow_type):
        return _type_name(arrow_type.value_type)
    if kinds.is_timestamp(arrow_type):
        return "timestamp" if arrow_type.tz is None else "timestamp_utc"
    if kinds.is_null(arrow_type):
        return "null"
    return next((name for fits, name, _ in _TYPE_RULES if fits(arrow_type)), "string")


def _is_bytes(arrow_type: pa.DataType) -> bool:
    if kinds.is_dictionary(arrow_type) or kinds.is_run_end_encoded(arrow_type):
        return _is_bytes(arrow_type.value_type)
    return kinds.is_binary(arrow_type) or kinds.is_large_binary(arrow_type) or kinds.is_binary_view(arrow_type)


def _read_column(values: Any, *, is_text: bool) -> tuple[list[JSON], dict[int, str]]:
    """Return the values of an Arrow column as JSON values, and index → note for those that JSON lacks.

    If `is_text`, values of bytes are UTF-8 texts; otherwise they become base64.
    """
    try:
        read = _json_column(values, is_text=is_text)
    except (ValueError, ArithmeticError, LookupError, pa.ArrowException):
        if len(values) == 1:
            value, note = _unreadable_value(values)
            return [value], {0: note}
        half = len(values) // 2
        first, notes = _read_column(values.slice(0, half), is_text=is_text)
        second, more = _read_column(values.slice(half), is_text=is_text)
        return first + second, notes | {half + place: note for place, note in more.items()}
    notes = {
        place: NOT_FINITE for place, value in enumerate(read) if isinstance(value, float) and not math.isfinite(value)
    }
    for place in notes:
        read[place] = None
    return read, notes


def _unreadable_value(values: Any) -> tuple[JSON, str]:
    """Return what is read in place of the only value in `values`, and a note on it."""
    flat = _flat(values)
    if _is_bytes(flat.type):
        return text_of_bytes(flat[0].as_py()), "not UTF-8, read as base64"
    if kinds.is_string(flat.type) or kinds.is_large_string(flat.type):
        raw: bytes = flat.cast(pa.large_binary())[0].as_py()
        return plain_text(raw.decode("utf-8", "surrogateescape"), []), NOT_TEXT
    return None, f"not readable as {values.type}, read as null"


def _json_column(column: Any, *, is_text: bool) -> list[JSON]:
    """Return the values of an Arrow column as JSON values: dates and times in ISO 8601, bytes in base64 or as text."""
    column = _flat(column)
    if is_text and _is_bytes(column.type):
        column = column.cast(pa.large_binary()).cast(pa.large_string())
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


def _flat(values: Any) -> Any:
    """Return an Arrow array without dictionary or run ends; string views and types of pandas become strings."""
    if kinds.is_run_end_encoded(values.type):
        return _flat(pc.run_end_decode(values))  # type: ignore[attr-defined]  # the stubs lack it
    if kinds.is_dictionary(values.type):
        return _flat(values.dictionary).take(values.indices)
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
