"""Reading of tables in an object store or another remote file system; the module `write` copies tables there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import fs

from lightmeter.errors import UsageError
from lightmeter.tables.arrow.schema import ALL_TABLES, SCHEMA_VERSION, schema
from lightmeter.tables.remote.uris import file_system, uri_name

if TYPE_CHECKING:
    import pyarrow.dataset as ds


def remote_datasets(place: str, filesystem: Any = None) -> dict[str, ds.Dataset]:
    """Return table → its Arrow dataset, for all tables of a remote folder.

    A dataset fetches only the columns and row groups needed. If the folder lacks a table of `ALL_TABLES`, the dataset
    of that table has the right columns, but no rows. Columns that an older lightmeter did not write are null.

    Args:
        place: Folder with `tables/<table>/*.parquet`: a URI such as `s3://bucket/prefix`, or a path on `filesystem`.
        filesystem: A file system of `pyarrow.fs` or of fsspec; None means the one that the URI names.

    Raises:
        UsageError: The folder cannot be read, or it holds no tables.
    """
    import pyarrow.dataset as ds  # noqa: PLC0415 (imports pandas, a third of a second, and few commands need it)

    try:
        remote, root = file_system(place, filesystem)
        parts = {table: _parts(remote, f"{root}/tables/{table}") for table in _tables(remote, root)}
        if not any(parts.values()):
            raise UsageError(
                f"{uri_name(place)} holds no tables.",
                hint=f"Put them there: lightmeter rebuild DIR --to {uri_name(place)}",
            )
        return {
            table: _with_all_columns(ds.dataset(found, filesystem=remote, format="parquet"), table)
            if found
            else ds.dataset(schema(table).empty_table())
            for table, found in parts.items()
        }
    except (OSError, ValueError, pa.ArrowException) as error:
        raise UsageError(
            f"{uri_name(place)} cannot be read: {error}", hint="Is it there, and may you read it?"
        ) from error


def read_remote_table(place: str, table: str, filesystem: Any = None) -> pa.Table:
    """Return all rows of a table of a remote folder.

    Args:
        place: Folder with `tables/<table>/*.parquet`: a URI such as `s3://bucket/prefix`, or a path on `filesystem`.
        table: Name of the table.
        filesystem: A file system of `pyarrow.fs` or of fsspec; None means the one that the URI names.

    Raises:
        UsageError: There is no table of this name, the folder cannot be read, or it holds no tables.
    """
    tables = remote_datasets(place, filesystem)
    if table not in tables:
        raise UsageError(f"there is no table {table!r}", hint=f"The tables are {', '.join(tables)}.")
    try:
        return tables[table].to_table()
    except (OSError, pa.ArrowException) as error:
        raise UsageError(f"{uri_name(place)} cannot be read: {error}", hint="Was it replaced? Try again.") from error


def _with_all_columns(dataset: Any, table: str) -> ds.Dataset:
    """Return an Arrow dataset with the columns of `table` that its files lack, at the end."""
    whole: pa.Schema = dataset.schema
    version = (whole.metadata or {}).get(b"lightmeter.schema_version", str(SCHEMA_VERSION).encode()).decode()
    if version != str(SCHEMA_VERSION):
        raise UsageError(
            f"The table {table} has schema version {version}, and this lightmeter reads version {SCHEMA_VERSION}.",
            hint="Put the tables there again: lightmeter rebuild DIR --to URI",
        )
    for field in schema(table) if table in ALL_TABLES else ():
        if field.name not in whole.names:
            whole = whole.append(field)
    complete: ds.Dataset = dataset.replace_schema(whole)
    return complete


def _tables(remote: fs.FileSystem, root: str) -> list[str]:
    """Return the names of all tables in `root`, a folder on the file system `remote`.

    First come those of `ALL_TABLES`, even without a file, then any others that have Parquet files.
    """
    found = remote.get_file_info(fs.FileSelector(f"{root}/tables", allow_not_found=True))
    names = {one.base_name for one in found if one.type == fs.FileType.Directory}
    return [*ALL_TABLES, *sorted(name for name in names - {*ALL_TABLES} if _parts(remote, f"{root}/tables/{name}"))]


def _parts(remote: fs.FileSystem, folder: str) -> list[str]:
    found = remote.get_file_info(fs.FileSelector(folder, allow_not_found=True))
    return sorted(one.path for one in found if one.extension == "parquet" and not one.base_name.startswith("."))
