"""Tables in a shared place: an object store (`s3://…`) or any file system of Arrow's or fsspec's.

An object store has no step that changes two objects at once, so a table is one object there, always: readers that list
`tables/<table>/*.parquet` find it, as it was or as it is. It is sent under a hidden name first, and put in its place by
the store itself: a transfer that breaks off leaves no half table behind. Stores have no open files: whoever is between
asking for a size and reading the end when the object is replaced finds no footer there, gets an error, and asks again.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

import pyarrow as pa
from pyarrow import fs

from lightmeter.errors import UsageError
from lightmeter.tables.compaction import merge_into
from lightmeter.tables.dataset import Dataset
from lightmeter.tables.uris import file_system, redact_uri
from lightmeter.tempdirs import LockedTempDir

__all__ = ["publish"]

_PART: Final = "part-00000.parquet"
_CHUNK_BYTES: Final = 8 * 2**20


def publish(dataset: Dataset, place: str, filesystem: Any = None) -> dict[str, str]:
    """Copy all tables to a place, each replaced in one step, `assets` last; returns the paths written, by table.

    Args:
        dataset: Tables that are there.
        place: A URI such as `s3://bucket/prefix?region=eu-central-1`, or a path on `filesystem`.
        filesystem: A file system of `pyarrow.fs` or of fsspec; None: the one that the URI names.

    Raises:
        UsageError: The place is not understood, cannot be written, or has parts that this did not write.
    """
    try:
        there, root = file_system(place, filesystem)
        with dataset.locked(), LockedTempDir() as scratch:
            return {
                table: _replace(there, f"{root}/tables/{table}", _single(dataset, table, scratch.path))
                for table in reversed(dataset.tables())
                if dataset.parts(table)
            }
    except (OSError, pa.ArrowException) as error:
        raise UsageError(
            f"{redact_uri(place)} cannot be written: {error}", hint="Is it there, and may you write to it?"
        ) from error


def _single(dataset: Dataset, table: str, scratch: Path) -> Path:
    """The table as one file: its only part, or all of them merged."""
    parts = dataset.describe(table)
    return parts[0].path if len(parts) == 1 else merge_into(scratch / f"{table}.parquet", parts)


def _replace(there: fs.FileSystem, folder: str, source: Path) -> str:
    there.create_dir(folder, recursive=True)
    selector = fs.FileSelector(folder)
    others = [found.base_name for found in there.get_file_info(selector) if found.extension == "parquet"]
    if any(name != _PART for name in others):
        raise UsageError(f"{folder} holds {', '.join(others)}.", hint="Publish to a place of its own.")
    target, hidden = f"{folder}/{_PART}", f"{folder}/.{_PART}.{token_hex(4)}.tmp"
    try:
        with source.open("rb") as file, closing(there.open_output_stream(hidden)) as stream:
            while chunk := file.read(_CHUNK_BYTES):
                stream.write(chunk)
        there.move(hidden, target)
    except BaseException:
        if there.get_file_info(hidden).type == fs.FileType.File:
            there.delete_file(hidden)
        raise
    return target
