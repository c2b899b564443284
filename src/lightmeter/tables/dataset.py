"""The tables on disk, `tables/<table>/part-*.parquet`: correct at every instant for readers that only list and open.

A reader lists a folder first, and opens the files later, one after the other. So a table changes in three ways only:

- **replace** a part by one with the same key (runs and shard), or the only part by any: one rename over its name. A
  reader that listed before opens the old file or the new one, and both are correct beside the other parts.
- **add** a part with rows that no other part has: one rename to a new name. The reader lists it or does not.
- **replace all** parts: a folder of new parts, with names that were never used, is exchanged with the table's folder in
  one step (`swap_dirs`). A reader that listed before and opens after gets FileNotFoundError and lists again; since no
  name is used twice, it never opens another file than it listed. The old folder keeps its names for `GRACE_S`, as empty
  files: a reader that was listing it during the exchange must not find it half removed.

New parts are written to a hidden staging folder beside `tables/`. They are moved when those of all tables are complete
and on disk: facts first, `assets` last. A later writer removes what a killed one left.
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
from types import MappingProxyType
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from lightmeter import atomic
from lightmeter.errors import UsageError
from lightmeter.tables.parts import (
    LINEAGE_KEY,
    ROW_GROUP_ROWS,
    PartInfo,
    PartWriter,
    read_part_info,
    translate_read_errors,
)
from lightmeter.tables.schema import ALL_TABLES, SCHEMA_VERSION, TABLES
from lightmeter.tables.schema import schema as schema_of
from lightmeter.tables.swap_dirs import swap_dirs

__all__ = ["GRACE_S", "LINEAGE_KEY", "PARTS_FILE", "ROW_GROUP_ROWS", "Dataset", "PartWriter", "open_parts"]

T = TypeVar("T")

PARTS_FILE: Final = "parts.json"
"""Lists the parts of all tables after the last change, for readers; the footers decide."""

_LOCK: Final = ".tables.lock"
_STAGING: Final = ".staging-"
_EXCHANGED: Final = "exchanged"
_TABLE_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")
_NUMBERED: Final = re.compile(r"part-(\d+)\.parquet")
GRACE_S: Final = 60.0
"""Seconds for which an exchanged folder keeps its names: listing a folder takes milliseconds."""

_LISTINGS: Final = 20
"""How often a reader lists when parts are replaced between its listing and its opening."""


class Dataset:
    """The tables of one output folder.

    Attributes:
        out: The output folder; `tables/` is below it.
    """

    def __init__(self, out: Path) -> None:
        self.out = out

    def tables(self) -> list[str]:
        """Return the tables of every run, then optional tables that have parts."""
        try:
            names = {path.name for path in (self.out / "tables").iterdir()}
        except OSError:
            return [*TABLES]
        others = sorted(name for name in names - {*TABLES} if _TABLE_NAME.fullmatch(name))
        return [*TABLES, *(name for name in others if self.parts(name))]

    def table_folder(self, table: str) -> Path:
        """Return the folder of a table's parts."""
        return self.out / "tables" / table

    def parts(self, table: str) -> list[Path]:
        """Return the parts of a table as a reader's glob finds them, sorted by name."""
        return sorted(self.table_folder(table).glob("*.parquet"))

    def describe(self, table: str) -> list[PartInfo]:
        """Return what the footers of a table's parts say, in the order of `parts`."""
        return _as_listed(lambda: [read_part_info(path) for path in self.parts(table)])

    @contextmanager
    def writer(
        self, table: str, schema: pa.Schema, metadata: Mapping[str, Any] = MappingProxyType({})
    ) -> Iterator[PartWriter]:
        """Write a table anew; when the block ends well, its one part replaces all parts.

        When the block raises, nothing has changed.

        Args:
            table: The table.
            schema: Schema of its rows.
            metadata: The lineage, for the footer.
        """
        with self.locked(), self.replacing({table: schema}, metadata) as writers:
            yield writers[table]

    @contextmanager
    def replacing(
        self, schemas: Mapping[str, pa.Schema], lineage: Mapping[str, Any], *, beside: bool = False
    ) -> Iterator[dict[str, PartWriter]]:
        """Write one new part of each table; when the block ends well, it is published as `publish` says.

        Call it under `locked`.

        Args:
            schemas: Table → its schema.
            lineage: For the footers; under `runs`, the runs whose rows are written.
            beside: As for `publish`.

        Raises:
            UsageError: A table has several parts, and the file system cannot swap folders.
        """
        with self.staging() as staging, open_parts(staging, 0, schemas, lineage) as writers:
            yield writers
            for writer in writers.values():
                writer.close()
            self.publish(staging, beside=beside)

    @contextmanager
    def staging(self) -> Iterator[Path]:
        """Make a folder for new parts, `<table>/<number>.parquet`; it is removed after the block."""
        staging = self.out / f"{_STAGING}{token_hex(4)}"
        staging.mkdir(parents=True)
        try:
            yield staging
        finally:
            _tidy(staging)

    def publish(self, staging: Path, *, beside: bool = False, only_with_rows: Collection[str] = ()) -> None:
        """Move the parts of a staging folder into their tables, facts first, `assets` last. Call it under `locked`.

        Args:
            staging: From `staging`, with whole parts.
            beside: Keep the other parts of a table: a new part replaces the part of the same key, or is added. Else the
                new parts replace all parts.
            only_with_rows: Tables that are not begun with an empty part; a table that has parts gets it all the same.

        Raises:
            UsageError: Several parts must be replaced, and the file system cannot swap folders.
        """
        staged = {folder.name: sorted(folder.glob("*.parquet")) for folder in staging.iterdir() if folder.is_dir()}
        for table in only_with_rows:
            if not self.parts(table) and not any(read_part_info(path).rows for path in staged.get(table, ())):
                staged.pop(table, None)
        for table in staged:
            _sync(staging / table)
        for table in sorted(staged, key=_order, reverse=True):
            self.table_folder(table).mkdir(parents=True, exist_ok=True)
            if beside:
                self._add_parts(table, staged[table])
            else:
                self._replace_parts(table, staged[table])
            atomic.fsync_folder(self.out / "tables")
        self._list_parts()

    def _add_parts(self, table: str, staged: Sequence[Path]) -> None:
        names = {part.key: part.path.name for part in self.describe(table)}
        for path in staged:
            target = self.table_folder(table) / names.get(read_part_info(path).key, _unused(self.parts(table)))
            path.replace(target)
        atomic.fsync_folder(self.table_folder(table))

    def _replace_parts(self, table: str, staged: Sequence[Path]) -> None:
        parts, folder = self.parts(table), self.table_folder(table)
        if len(parts) <= 1 and len(staged) == 1:
            staged[0].replace(folder / (parts[0].name if parts else _unused(parts)))
            atomic.fsync_folder(folder)
            return
        new_folder, names = staged[0].parent, list(parts)
        for path in staged:
            names.append(path.rename(new_folder / _unused(names)))
        atomic.fsync_folder(new_folder)
        if any(folder.iterdir()):
            (new_folder.parent / _EXCHANGED).touch()
            swap_dirs(new_folder, folder)
        else:
            new_folder.rename(folder)

    def _list_parts(self) -> None:
        """Write `tables/parts.json`, for people and programs that read one file rather than all footers."""
        tables = {
            table: [
                {"part": part.path.name, "rows": part.rows, "size_bytes": part.size_bytes, "runs": sorted(part.runs)}
                for part in self.describe(table)
            ]
            for table in self.tables()
        }
        listed = {"schema_version": SCHEMA_VERSION, "tables": tables}
        atomic.write_text(self.out / "tables" / PARTS_FILE, json.dumps(listed, indent=1) + "\n")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of the writers of these tables; the system releases it when the process dies.

        Removes first what writers left behind more than `GRACE_S` ago.
        """
        self.out.mkdir(parents=True, exist_ok=True)
        with (self.out / _LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            os.utime(lock.fileno())
            now_s = os.fstat(lock.fileno()).st_mtime  # by the clock that the folders' times are from
            for left in self._left_behind():
                with suppress(FileNotFoundError):  # it became whole
                    if left.stat().st_mtime < now_s - GRACE_S:
                        shutil.rmtree(left) if left.is_dir() else left.unlink()
            yield

    def _left_behind(self) -> list[Path]:
        """Return staging folders and temporary files; some may be in use."""
        patterns = (f"{_STAGING}*", ".*.tmp*", "tables/.*.tmp")
        return [path for pattern in patterns for path in self.out.glob(pattern)]

    def read(self, table: str) -> pa.Table:
        """Return a whole table; empty, with the right columns, where nothing was written yet.

        Raises:
            UsageError: There is no such table.
            TablesError: A part of it cannot be read.
        """
        if table not in ALL_TABLES and table not in self.tables():
            raise UsageError(f"there is no table {table!r}", hint=f"The tables are {', '.join(self.tables())}.")
        # All are opened before any is read: an open file stays what it was, whatever happens to its name.
        files = _as_listed(lambda: [(part, _opened(part)) for part in self.parts(table)])
        tables = []
        for part, file in files:
            with file, translate_read_errors(part):
                tables.append(file.read())
        return pa.concat_tables(tables, promote_options="permissive") if tables else schema_of(table).empty_table()

    def lineage(self, table: str) -> dict[str, Any] | None:
        """Return the lineage in the footer of the table's last part; None where there is no part."""
        parts = self.describe(table)
        return dict(parts[-1].lineage) if parts else None


@contextmanager
def open_parts(
    staging: Path, number: int, schemas: Mapping[str, pa.Schema], lineage: Mapping[str, Any]
) -> Iterator[dict[str, PartWriter]]:
    """Create a part of each table in a staging folder; the caller closes the parts that are to be published.

    Args:
        staging: From `Dataset.staging`.
        number: Of the part, unlike all others in this folder; the parts of a table are published in this order.
        schemas: Table → its schema.
        lineage: For the footers.
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


def _order(table: str) -> int:
    """Return the position of a table in `TABLES`, where `assets` is first; optional tables come last."""
    return TABLES.index(table) if table in TABLES else len(TABLES)


def _opened(part: Path) -> pq.ParquetFile:
    with translate_read_errors(part):
        return pq.ParquetFile(part)


def _as_listed(read: Callable[[], T]) -> T:
    """Return what `read` returns; call it again when a listed part was gone before it was opened."""
    for _ in range(_LISTINGS - 1):
        try:
            return read()
        except FileNotFoundError:
            continue
    return read()


def _tidy(staging: Path) -> None:
    """Remove a staging folder; where folders were exchanged in it, empty their files only."""
    if not (staging / _EXCHANGED).exists():
        shutil.rmtree(staging, ignore_errors=True)
        return
    for old in staging.glob("*/*.parquet"):
        empty = staging / "empty"
        empty.touch()
        empty.replace(old)  # not cut short: who has it open reads on
    os.utime(staging)


def _unused(parts: list[Path]) -> str:
    """Return a name that no part of the table has or had: its number is above all others."""
    numbers = [int(found[1]) for part in parts if (found := _NUMBERED.fullmatch(part.name))]
    return f"part-{max(numbers, default=-1) + 1:05}.parquet"


def _sync(folder: Path) -> None:
    """Flush the files of a folder, and the folder, to disk."""
    for path in folder.iterdir():
        with path.open("rb+") as file:
            os.fsync(file.fileno())
    atomic.fsync_folder(folder)
