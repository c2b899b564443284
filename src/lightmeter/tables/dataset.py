"""The tables on disk: `tables/<table>/part-*.parquet`, right at every instant for readers that only list and open.

A reader lists a folder first and opens what it found later, one file after the other. So there are three ways to
change a table, and no other:

- **replace** a part by one that holds the same runs, or the only part by any: one rename over its name. Whoever listed
  before opens the old file or the new one, and either is right beside the other parts.
- **add** a part with runs that no other part has: one rename to a new name. It is listed or it is not.
- **merge** parts: a folder with one new part, whose name was never used, changes places with the table's folder in one
  step (`exchange.py`). Whoever listed before and opens after gets FileNotFoundError and lists again; since no name is
  used twice, nobody opens a file that he did not mean. The old folder keeps its names for `GRACE_S`, as empty files:
  whoever was listing it when it was exchanged must not find it half removed, and take that for the table.

New parts are written to a hidden staging folder beside `tables/`, and moved only when those of all tables are whole and
on disk: facts first, `assets` last. What a writer left, killed or not, is removed by a later one.
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
"""The parts of all tables as they were after the last change; the footers are the truth."""

_LOCK: Final = ".tables.lock"
_STAGING: Final = ".staging-"
_EXCHANGED: Final = "exchanged"
_ASKED_FOR: Final = re.compile(r"[a-z][a-z0-9_]*")
_NUMBERED: Final = re.compile(r"part-(\d+)\.parquet")
GRACE_S: Final = 60.0
"""How long a folder that was exchanged keeps its names: listing a folder takes milliseconds."""

_LISTINGS: Final = 20
"""How often a reader lists again when parts were merged between its listing and its opening."""


class Dataset:
    """The tables of one output folder.

    Attributes:
        out: The output folder; `tables/` is below it.
    """

    def __init__(self, out: Path) -> None:
        self.out = out

    def tables(self) -> list[str]:
        """The tables there are: those of every run, then those that were asked for and are there, such as answers."""
        try:
            names = {path.name for path in (self.out / "tables").iterdir()}
        except OSError:
            return [*TABLES]
        others = sorted(name for name in names - {*TABLES} if _ASKED_FOR.fullmatch(name))
        return [*TABLES, *(name for name in others if self.parts(name))]

    def table_folder(self, table: str) -> Path:
        """Where a table's parts are."""
        return self.out / "tables" / table

    def parts(self, table: str) -> list[Path]:
        """The parts of a table as a reader's glob finds them, in order."""
        return sorted(self.table_folder(table).glob("*.parquet"))

    def describe(self, table: str) -> list[PartInfo]:
        """What the footers of a table's parts say."""
        return _as_listed(lambda: [read_part_info(path) for path in self.parts(table)])

    @contextmanager
    def writer(
        self, table: str, schema: pa.Schema, metadata: Mapping[str, Any] = MappingProxyType({})
    ) -> Iterator[PartWriter]:
        """Write a table anew; when the block ends well its one part replaces all parts there are.

        When the block raises, nothing has changed. `metadata` is the lineage: it goes into the footer as JSON.
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
        """Write `tables/parts.json`, for people and programs that rather read one file than all footers."""
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
        """Keep other writers of these tables waiting; the system lets go when the process dies.

        What writers left behind more than `GRACE_S` ago is removed first.
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
        """Staging folders, and files that were not whole enough for their name; some may be in use."""
        patterns = (f"{_STAGING}*", ".*.tmp*", "tables/.*.tmp")
        return [path for pattern in patterns for path in self.out.glob(pattern)]

    def read(self, table: str) -> pa.Table:
        """A whole table; empty, with the right columns, where nothing was written yet.

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
        """What the footer of the table's last part says about its origin; None where there is no part."""
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
    """Where a table stands among those that are written together: `assets` is the first."""
    return TABLES.index(table) if table in TABLES else len(TABLES)


def _opened(part: Path) -> pq.ParquetFile:
    with translate_read_errors(part):
        return pq.ParquetFile(part)


def _as_listed(look: Callable[[], T]) -> T:
    """What `look` makes of a listing, made again when a part was gone before it was opened."""
    for _ in range(_LISTINGS - 1):
        try:
            return look()
        except FileNotFoundError:
            continue
    return look()


def _tidy(staging: Path) -> None:
    """Remove a staging folder; where folders were exchanged, only the contents of their files."""
    if not (staging / _EXCHANGED).exists():
        shutil.rmtree(staging, ignore_errors=True)
        return
    for old in staging.glob("*/*.parquet"):
        empty = staging / "empty"
        empty.touch()
        empty.replace(old)  # not cut short: who has it open reads on
    os.utime(staging)


def _unused(parts: list[Path]) -> str:
    """A name that no part of the table has or had: its number is above all others."""
    numbers = [int(found[1]) for part in parts if (found := _NUMBERED.fullmatch(part.name))]
    return f"part-{max(numbers, default=-1) + 1:05}.parquet"


def _sync(folder: Path) -> None:
    """Everything in the folder, and the folder, on disk."""
    for path in folder.iterdir():
        with path.open("rb+") as file:
            os.fsync(file.fileno())
    atomic.fsync_folder(folder)
