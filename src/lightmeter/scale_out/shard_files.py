"""Writes and reads the Parquet files of a shard (its rows, its results) in a folder or object store that workers share.

A file gets its name only when it is complete. So a worker that is killed leaves no partial results.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from secrets import token_hex
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from lightmeter.errors import UsageError
from lightmeter.tables.remote.uris import file_system, is_uri, uri_name


@dataclass(frozen=True, slots=True)
class ShardFolder:
    """A folder for the files of shards that all workers can read and write; picklable, to be sent to workers.

    Attributes:
        place: A local path, or a URI such as `s3://bucket/prefix`. It may hold a secret key. To print it, use
            `lightmeter.tables.remote.uris.uri_name`, which removes the key.
    """

    place: str

    def below(self, name: str) -> ShardFolder:
        """Return the folder `name` inside this folder; it need not exist."""
        path, mark, options = self.place.partition("?") if is_uri(self.place) else (self.place, "", "")
        return ShardFolder(f"{path.rstrip('/')}/{name}{mark}{options}")

    def create(self) -> None:
        """Create the folder if it does not exist.

        Raises:
            UsageError: the folder cannot be created.
        """
        with self._opened("written") as (files, root):
            files.create_dir(root, recursive=True)

    def write(self, name: str, table: pa.Table) -> None:
        """Write a table to the file `name`, which appears complete or not at all.

        Raises:
            UsageError: the folder cannot be written.
        """
        with self._opened("written") as (files, root):
            hidden = f"{root}/.{name}.{token_hex(4)}.tmp"
            try:
                pq.write_table(table, hidden, filesystem=files, compression="zstd")
                files.move(hidden, f"{root}/{name}")
            except BaseException:
                with suppress(OSError):
                    files.delete_file(hidden)
                raise

    def read(self, name: str) -> pa.Table:
        """Return the table in the file `name`.

        Raises:
            UsageError: the file cannot be read.
        """
        with self._opened("read") as (files, root):
            return pq.read_table(f"{root}/{name}", filesystem=files)

    def complete_files(self, since: float) -> set[str]:
        """Return the names of the complete Parquet files in this folder that were written at `since` or later.

        `since` is in seconds since the epoch.
        """
        with self._opened("read") as (files, root):
            found = files.get_file_info(fs.FileSelector(root, allow_not_found=True))
            new = (one for one in found if one.mtime_ns and one.mtime_ns >= since * 1e9 and one.extension == "parquet")
            return {one.base_name for one in new if _has_footer(files, one.path)}

    def remove(self) -> None:
        """Delete the folder with its files; ignore errors, because files that stay do no harm."""
        with suppress(UsageError), self._opened("written") as (files, root):
            files.delete_dir(root)

    @contextmanager
    def _opened(self, verb: str) -> Iterator[tuple[Any, str]]:
        """Yield the `pyarrow.fs` file system and the path of the folder; errors in the block become a `UsageError`.

        `verb` is `written` or `read`; the message says that the folder cannot be written or read.
        """
        try:
            yield file_system(self.place) if is_uri(self.place) else (fs.LocalFileSystem(), self.place)
        except (OSError, pa.ArrowException) as error:
            raise UsageError(
                f"{uri_name(self.place)} cannot be {verb}: {error}",
                hint="Name a folder or s3:// prefix that this machine and all workers reach (--shard-dir).",
            ) from error


def _has_footer(files: Any, path: str) -> bool:
    """Return whether a Parquet file is complete; after a power cut, its last bytes may be missing.

    `files` is a file system of `pyarrow.fs`, and `path` the path of the file on it.
    """
    try:
        pq.read_metadata(path, filesystem=files)
    except (OSError, pa.ArrowException):
        return False
    return True
