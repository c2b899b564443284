"""Changes tables in forked children that strace kills: `killed.py FOLDER NTH`, run under strace by `test_kills.py`.

FOLDER holds an output folder for each kill, called `<change>-<call>-<place>`. strace sends SIGKILL at the NTH call of
each kind that a process makes; a child that makes NTH - place calls in vain first is killed at that place of its
change, so that one strace serves all of them. Nothing is looked at here: being traced is slow.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from lightmeter.tables import Dataset, schema
from lightmeter.tables.compaction import compact
from lightmeter.tables.exchange import exchange

SCHEMAS = {table: schema(table) for table in ("assets", "tags")}
UNUSED = 9999
"""A file descriptor that is not open."""


def rows(table: str, names: list[str]) -> pa.Table:
    columns = {field.name: pa.nulls(len(names), field.type) for field in SCHEMAS[table]}
    return pa.table({**columns, "name": pa.array(names, pa.string())}, schema=SCHEMAS[table])


def put(out: Path, run: str, names: list[str], *, beside: bool) -> None:
    dataset = Dataset(out)
    with dataset.locked(), dataset.replacing(SCHEMAS, {"runs": {run: ""}}, beside=beside) as writers:
        for table, writer in writers.items():
            writer.write(rows(table, names))


def nothing(out: Path) -> None:
    out.mkdir()


def one_part(out: Path) -> None:
    put(out, "a", ["old"], beside=True)


def three_parts(out: Path) -> None:
    for run in "abc":
        put(out, run, [f"old {run}"], beside=True)


CHANGES: dict[str, tuple[Callable[[Path], None], Callable[[Path], object], list[str]]] = {
    "write": (nothing, lambda out: put(out, "a", ["new"], beside=False), ["new"]),
    "replace": (one_part, lambda out: put(out, "a", ["new"], beside=True), ["new"]),
    "add": (one_part, lambda out: put(out, "b", ["new"], beside=True), ["new", "old"]),
    "compact": (three_parts, lambda out: compact(Dataset(out)), ["old a", "old b", "old c"]),
    "rebuild": (three_parts, lambda out: put(out, "a", ["new", "newer"], beside=False), ["new", "newer"]),
}
"""What a folder holds, what is done to it, and what its readers find afterwards."""


def in_vain(call: str) -> None:
    """Make the call so that it fails."""
    nowhere = Path("/nowhere/at/all")
    ways: dict[str, Callable[[], object]] = {
        "rename": lambda: nowhere.rename(nowhere),
        "renameat2": lambda: exchange(nowhere, nowhere),
        "fsync": lambda: os.fsync(UNUSED),
        "unlinkat": lambda: os.unlink("nowhere", dir_fd=UNUSED),
    }
    with suppress(OSError):
        ways[call]()


def main(folder: Path, nth: int) -> None:
    for out in sorted(folder.iterdir()):
        change, call, place = out.name.split("-")
        if os.fork() == 0:
            for _ in range(nth - int(place)):
                in_vain(call)
            CHANGES[change][1](out)
            (out / "survived").touch()
            os._exit(0)
        os.wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
