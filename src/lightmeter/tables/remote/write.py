"""Copying of tables to an object store (`s3://…`) or any other file system of Arrow or fsspec.

An object store cannot replace two objects in one step, so each table becomes a single object. A reader that lists
`tables/<table>/*.parquet` finds the old table or the new one. `publish` uploads the object under a hidden name and then
has the store move it, so an interrupted upload leaves no partial table.

Object stores have no open files. If an object is replaced after a reader asked for its size, the reader looks for the
Parquet footer at the wrong place. It gets an error and must try again.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

import pyarrow as pa
from pyarrow import fs

from lightmeter.errors import UsageError
from lightmeter.remote_files import upload_to_hub
from lightmeter.tables.compaction import merge_into
from lightmeter.tables.dataset import Dataset
from lightmeter.tables.remote.uris import file_system, uri_name
from lightmeter.tempdirs import LockedTempDir

_PART_NAME: Final = "part-00000.parquet"
_CHUNK_BYTES: Final = 8 * 2**20


def publish(dataset: Dataset, place: str, filesystem: Any = None) -> dict[str, str]:
    """Copy all tables to a remote folder, `assets` last; return table → path of its file on the remote file system.

    Each table in the folder is replaced in one step.

    Args:
        dataset: The tables to copy.
        place: The folder: a URI such as `s3://bucket/prefix?region=eu-central-1`, or a path on `filesystem`.
        filesystem: A file system of `pyarrow.fs` or of fsspec; None means the one that the URI names.

    Raises:
        UsageError: The URI is invalid, the folder cannot be written, or it holds files of another program.
    """
    try:
        remote, root = file_system(place, filesystem)
        with dataset.locked(), LockedTempDir() as scratch:
            return {
                table: _replace(remote, f"{root}/tables/{table}", _single_file(dataset, table, scratch.path))
                for table in reversed(dataset.tables())
                if dataset.parts(table)
            }
    except (OSError, ValueError, pa.ArrowException) as error:
        raise UsageError(
            f"{uri_name(place)} cannot be written: {error}", hint="Is it there, and may you write to it?"
        ) from error


def _single_file(dataset: Dataset, table: str, scratch: Path) -> Path:
    """Return the path of a local Parquet file with all rows of a table.

    It is the table's only file; if the table has several, they are merged into a new file in the folder `scratch`.
    """
    parts = dataset.describe(table)
    return parts[0].path if len(parts) == 1 else merge_into(scratch / f"{table}.parquet", parts)


def _replace(remote: fs.FileSystem, folder: str, source: Path) -> str:
    remote.create_dir(folder, recursive=True)
    selector = fs.FileSelector(folder, allow_not_found=True)  # the hub has no empty folders
    others = [found.base_name for found in remote.get_file_info(selector) if found.extension == "parquet"]
    if any(name != _PART_NAME for name in others):
        raise UsageError(f"{folder} holds {', '.join(others)}.", hint="Publish to a place of its own.")
    if upload_to_hub(remote, source, f"{folder}/{_PART_NAME}"):
        return f"{folder}/{_PART_NAME}"
    target, hidden = f"{folder}/{_PART_NAME}", f"{folder}/.{_PART_NAME}.{token_hex(4)}.tmp"
    try:
        with source.open("rb") as file, closing(remote.open_output_stream(hidden)) as stream:
            while chunk := file.read(_CHUNK_BYTES):
                stream.write(chunk)
        try:
            remote.move(hidden, target)
        except NotImplementedError:  # Azure without folders of its own copies, which also replaces in one step
            remote.copy_file(hidden, target)
            remote.delete_file(hidden)
    except BaseException:
        if remote.get_file_info(hidden).type == fs.FileType.File:
            remote.delete_file(hidden)
        raise
    return target
