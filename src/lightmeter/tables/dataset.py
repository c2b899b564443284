"""The tables on disk, `tables/<table>/part-*.parquet`: correct at every instant for readers that only list and open.

A reader first lists the folder of a table, then opens its Parquet files one by one. So a table may change in three
ways only:

- **Replace one file** by a file for the same range of rows; a table's only file may be replaced by any file. This is
  one rename over the old name. A reader that has listed the folder opens the old file or the new one; both are correct.
- **Add a file** with rows that no other file has. This is one rename to a new name.
- **Replace all files**: a folder of new files, with names that were never used before, is exchanged with the table's
  folder in one step (`swap_dirs`). A reader that listed the old folder gets FileNotFoundError and must list again. It
  never opens a file other than the one it listed, because no name is used twice. The files of the old folder stay for
  `GRACE_S`, but empty: a reader that is listing it during the exchange must not see it half removed.

A writer first writes the new files to a hidden staging folder beside `tables/`. It moves them into place once the files
of all tables are complete and flushed to disk: fact tables first, `assets` last. If a writer is killed, a later writer
removes its staging folder.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from lightmeter import atomic
from lightmeter.errors import UsageError
from lightmeter.tables.arrow.schema import ALL_TABLES, SCHEMA_VERSION, TABLES
from lightmeter.tables.arrow.schema import schema as schema_of
from lightmeter.tables.parts import (
    PartInfo,
    PartWriter,
    read_part_info,
    read_schema,
    translate_read_errors,
)
from lightmeter.tables.swap_dirs import swap_dirs

T = TypeVar("T")

_LOCK: Final = ".tables.lock"
_STAGING: Final = ".staging-"
_EXCHANGED: Final = "exchanged"
"""Name of the file that marks a staging folder in which a folder was exchanged with the folder of a table."""

_PART_LIST: Final = "parts.json"
_TABLE_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")
_NUMBERED: Final = re.compile(r"part-(\d+)\.parquet")
GRACE_S: Final = 60.0
"""Seconds for which a replaced folder stays, with empty files, before the next writer may remove it.

A reader may still be listing the folder, which takes milliseconds. Unfinished files of a killed writer stay as long.
"""

_MAX_LISTINGS: Final = 20
"""Most attempts to list and open a table's files while a writer replaces them, before FileNotFoundError is raised."""


class Dataset:
    """Reads, locks and replaces the Parquet files of the tables in one output folder.

    Attributes:
        out: The output folder; the files are in its subfolders `tables/<table>/`.
    """

    def __init__(self, out: Path) -> None:
        self.out = out

    def tables(self) -> list[str]:
        """Return the names of all tables: first those that every run has, then any others that have Parquet files."""
        try:
            names = {path.name for path in (self.out / "tables").iterdir()}
        except OSError:
            return [*TABLES]
        others = sorted(name for name in names - {*TABLES} if _TABLE_NAME.fullmatch(name))
        return [*TABLES, *(name for name in others if self.parts(name))]

    def table_folder(self, table: str) -> Path:
        """Return the folder of a table's Parquet files."""
        return self.out / "tables" / table

    def parts(self, table: str) -> list[Path]:
        """Return the paths of a table's Parquet files, sorted by name."""
        return sorted(self.table_folder(table).glob("*.parquet"))

    @property
    def schema_version(self) -> int | None:
        """Version of the schemas of the tables; None if there are no tables."""
        try:
            version: int = json.loads((self.out / "tables" / _PART_LIST).read_bytes())["schema_version"]
        except (OSError, ValueError, KeyError, TypeError):  # version 1 had no list of parts
            parts = self.parts("assets")
            stated = (read_schema(parts[0]).metadata or {}).get(b"lightmeter.schema_version") if parts else None
            return None if stated is None else int(stated)
        return version

    def check_version(self) -> None:
        """Raise UsageError if another version of lightmeter wrote the tables, with columns of other meanings."""
        if self.schema_version not in (None, SCHEMA_VERSION):
            raise UsageError(
                f"The tables in {self.out} have schema version {self.schema_version}; this lightmeter reads version "
                f"{SCHEMA_VERSION}.",
                hint=f"Write the tables again from the journal, with no request: lightmeter rebuild {self.out}",
            )

    def describe(self, table: str) -> list[PartInfo]:
        """Return row count, size and origin (`lineage`) of each Parquet file of a table, sorted by file name."""
        return _retry_listing(lambda: [read_part_info(path) for path in self.parts(table)])

    @contextmanager
    def staging(self) -> Iterator[Path]:
        """Yield a new hidden folder for Parquet files, `<table>/<number>.parquet`. The end of the block removes it."""
        staging = self.out / f"{_STAGING}{token_hex(4)}"
        staging.mkdir(parents=True)
        try:
            yield staging
        finally:
            _clean_staging(staging)

    def publish(self, staging: Path, *, keep_others: bool = False, only_with_rows: Collection[str] = ()) -> None:
        """Move the Parquet files of a staging folder into their tables: fact tables (`tags`, …) first, `assets` last.

        Call it only inside a block of `locked`.

        Args:
            staging: Folder from `staging`, with complete files.
            keep_others: If true, each new file replaces the old file with the same `PartInfo.key` (rows of the same
                requests). If there is no such old file, the new file is added. Other old files stay. If false, the
                new files replace all old files of the table.
            only_with_rows: Tables that are not created if their new files have no rows. If such a table exists
                already, it gets the files even without rows.

        Raises:
            UsageError: More than one file must be replaced, and the file system cannot swap folders.
        """
        staged = {folder.name: sorted(folder.glob("*.parquet")) for folder in staging.iterdir() if folder.is_dir()}
        for table in only_with_rows:
            if not self.parts(table) and not any(read_part_info(path).rows for path in staged.get(table, ())):
                staged.pop(table, None)
        for table in staged:
            _flush_folder(staging / table)
        for table in sorted(staged, key=_table_position, reverse=True):
            self.table_folder(table).mkdir(parents=True, exist_ok=True)
            if keep_others:
                self._add_parts(table, staged[table])
            else:
                self._replace_parts(table, staged[table])
            atomic.fsync_folder(self.out / "tables")
        self._write_part_list()

    def _add_parts(self, table: str, staged: Sequence[Path]) -> None:
        names = {part.key: part.path.name for part in self.describe(table)}
        for path in staged:
            target = self.table_folder(table) / names.get(read_part_info(path).key, _unused_name(self.parts(table)))
            path.replace(target)
        atomic.fsync_folder(self.table_folder(table))

    def _replace_parts(self, table: str, staged: Sequence[Path]) -> None:
        parts, folder = self.parts(table), self.table_folder(table)
        if len(parts) <= 1 and len(staged) == 1:
            staged[0].replace(folder / (parts[0].name if parts else _unused_name(parts)))
            atomic.fsync_folder(folder)
            return
        new_folder, names = staged[0].parent, list(parts)
        for path in staged:
            names.append(path.rename(new_folder / _unused_name(names)))
        atomic.fsync_folder(new_folder)
        if any(folder.iterdir()):
            (new_folder.parent / _EXCHANGED).touch()
            swap_dirs(new_folder, folder)
        else:
            new_folder.rename(folder)

    def _write_part_list(self) -> None:
        """Write `tables/parts.json`, which lists all Parquet files of the tables, for other programs that read them."""
        tables = {
            table: [
                {"part": part.path.name, "rows": part.rows, "size_bytes": part.size_bytes, "runs": sorted(part.runs)}
                for part in self.describe(table)
            ]
            for table in self.tables()
        }
        listed = {"schema_version": SCHEMA_VERSION, "tables": tables}
        atomic.write_text(self.out / "tables" / _PART_LIST, json.dumps(listed, indent=1) + "\n")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the write lock of the output folder inside the block; wait for it as long as another writer holds it.

        The system releases the lock if the process dies.

        The start of the block removes what dead writers left more than `GRACE_S` seconds ago: staging folders (for
        unfinished Parquet files) and temporary files.
        """
        self.out.mkdir(parents=True, exist_ok=True)
        with (self.out / _LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            os.utime(lock.fileno())
            now_s = os.fstat(lock.fileno()).st_mtime  # the clock of the file system, as for the folders' times
            patterns = (f"{_STAGING}*", ".*.tmp*", "tables/.*.tmp")
            for leftover in [path for pattern in patterns for path in self.out.glob(pattern)]:
                with suppress(FileNotFoundError):  # its writer has moved it into place
                    if leftover.stat().st_mtime < now_s - GRACE_S:
                        shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
            yield

    def read(self, table: str) -> pa.Table:
        """Return all rows of a table as one Arrow table.

        If the table has no file yet, the result has all its columns, but no rows.

        Raises:
            UsageError: There is no table of this name, or another version of lightmeter wrote the tables.
            TablesError: A file of the table cannot be read.
        """
        if table not in ALL_TABLES and table not in self.tables():
            raise UsageError(f"there is no table {table!r}", hint=f"The tables are {', '.join(self.tables())}.")
        self.check_version()
        # Open all files before reading any: an open file stays readable even if it is replaced meanwhile.
        files = _retry_listing(lambda: [(part, _open_part(part)) for part in self.parts(table)])
        tables = []
        for part, file in files:
            with file, translate_read_errors(part):
                tables.append(file.read())
        return pa.concat_tables(tables, promote_options="permissive") if tables else schema_of(table).empty_table()

    def lineage(self, table: str) -> dict[str, Any] | None:
        """Return where the rows of a table's last Parquet file (by name) come from, such as the run and its manifest.

        The result is `PartInfo.lineage` of this file; None if the table has no file.
        """
        parts = self.describe(table)
        return dict(parts[-1].lineage) if parts else None


@contextmanager
def open_parts(
    staging: Path, number: int, schemas: Mapping[str, pa.Schema], lineage: Mapping[str, Any]
) -> Iterator[dict[str, PartWriter]]:
    """Yield a mapping from each table to a writer of a new Parquet file, `<table>/<number>.parquet` in `staging`.

    The caller must close the writer of each file that is complete. The end of the block abandons all other writers:
    their files are incomplete and must not be moved into the tables.

    Args:
        staging: Folder from `Dataset.staging`.
        number: Number of the files, unique in this folder; `Dataset.publish` adds the files of a table in this order.
        schemas: Table → its schema.
        lineage: Where the rows come from (`PartInfo.lineage`); it is stored in the footer of each file.
    """
    writers: dict[str, PartWriter] = {}
    try:
        for table, table_schema in schemas.items():
            (staging / table).mkdir(exist_ok=True)
            writers[table] = PartWriter(staging / table / f"{number:05}.parquet", table_schema, lineage)
        yield writers
    finally:
        for writer in writers.values():
            writer.abandon()


def _table_position(table: str) -> int:
    return TABLES.index(table) if table in TABLES else len(TABLES)


def _open_part(part: Path) -> pq.ParquetFile:
    with translate_read_errors(part):
        return pq.ParquetFile(part)


def _retry_listing(read: Callable[[], T]) -> T:
    """Return the result of `read`, a function that lists and opens files.

    If a file is gone when it is opened, call `read` again, up to `_MAX_LISTINGS` times in all.
    """
    for _ in range(_MAX_LISTINGS - 1):
        try:
            return read()
        except FileNotFoundError:
            continue
    return read()


def _clean_staging(staging: Path) -> None:
    """Remove a writer's staging folder; but if it was exchanged with the folder of a table, only empty its files.

    After an exchange, the staging folder holds the old files of the table. Their names stay, because a reader may still
    be listing the folder.
    """
    if not (staging / _EXCHANGED).exists():
        shutil.rmtree(staging, ignore_errors=True)
        return
    for old in staging.glob("*/*.parquet"):
        empty = staging / "empty"
        empty.touch()
        empty.replace(old)  # a rename, not a truncation: a reader that has the file open reads on
    os.utime(staging)


def _unused_name(parts: list[Path]) -> str:
    """Return a file name such as `part-00007.parquet`, with a number above those of all `parts`."""
    numbers = [int(found[1]) for part in parts if (found := _NUMBERED.fullmatch(part.name))]
    return f"part-{max(numbers, default=-1) + 1:05}.parquet"


def _flush_folder(folder: Path) -> None:
    for path in folder.iterdir():
        with path.open("rb+") as file:
            os.fsync(file.fileno())
    atomic.fsync_folder(folder)
