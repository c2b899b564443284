"""`kill -9` at every step of a change: readers who only list and open see the old rows or the new ones."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

SCRIPT = Path(__file__).with_name("killed.py")
MOST = {"rename": 4, "renameat2": 3, "fsync": 6, "unlinkat": 2}
"""Places to kill at, by kind of call: all renames and swaps, the syncs of the tables, the first steps of tidying."""
NTH = 12


pytestmark = pytest.mark.slow


def changes():
    spec = importlib.util.spec_from_file_location("killed", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.CHANGES


def seen(out: Path) -> dict[str, list[str]]:
    """What a reader who lists and opens finds, by table."""
    found = {}
    for table in ("assets", "tags"):
        parts = (out / "tables" / table).glob("*.parquet")
        found[table] = sorted(name for part in parts for name in pq.ParquetFile(part).read()["name"].to_pylist())
    return found


@pytest.fixture(scope="module")
def kills(tmp_path_factory):
    """What each killed change left behind, one record for each call at which it was killed."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    folder, before = tmp_path_factory.mktemp("killed"), tmp_path_factory.mktemp("before")
    for change, (prepare, _, _) in changes().items():
        prepare(before / change)
        for call, most in MOST.items():
            for place in range(1, most + 1):
                shutil.copytree(before / change, folder / f"{change}-{call}-{place}")
    named = ",".join(MOST)
    # Not with --seccomp-bpf: some versions of strace then say that they killed and do not.
    strace = f"strace -f -qqq -o /dev/null -e trace={named} -e inject={named}:signal=KILL:when={NTH}".split()
    command = [*strace, sys.executable, "-B", str(SCRIPT), str(folder), str(NTH)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "ptrace" in done.stderr.casefold():
        pytest.skip(f"strace may not trace here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    return [record(out, before) for out in folder.iterdir()]


def record(out: Path, before: Path) -> dict:
    """What is found after a kill, and after the same change was made again."""
    change, call, place = out.name.split("-")
    told = {"change": change, "call": call, "place": int(place), "killed": not (out / "survived").exists()}
    told |= {"old": seen(before / change), "seen": seen(out), "new": changes()[change][2]}
    litter = list(out.glob(".staging-*"))
    for path in litter:
        os.utime(path, (0, 0))  # as if it were long ago
    changes()[change][1](out)
    return told | {"again": seen(out), "litter": [path.name for path in litter if path.exists()]}


def test_every_kind_of_change_was_killed_at_its_decisive_calls(kills):
    """The kills reach the renames, the swap of folders, and the syncs before them."""
    killed = Counter((one["change"], one["call"]) for one in kills if one["killed"])
    for change in ("write", "replace", "add"):
        assert killed[change, "rename"] == 2 + 1  # each table, and the list of parts
        assert killed[change, "fsync"] >= 2 * 2
    for change in ("compact", "rebuild"):
        assert killed[change, "renameat2"] == 2


def test_a_reader_sees_the_old_rows_or_the_new_ones(kills):
    """Of each table a reader finds what was there before or what is there after, never less and never twice."""
    for one in kills:
        for table, names in one["seen"].items():
            assert names in (one["old"][table], one["new"]), one


def test_facts_come_before_the_assets_they_belong_to(kills):
    """Whoever finds the new rows of `assets` finds those of the other tables too."""
    changed = [one for one in kills if one["old"]["assets"] != one["new"] and one["seen"]["assets"] == one["new"]]
    assert changed
    assert all(one["seen"]["tags"] == one["new"] for one in changed)


def test_the_next_writer_ends_what_the_killed_one_began(kills):
    """Done once more, the change is whole, nothing stands twice, and no litter is left."""
    for one in kills:
        assert one["again"] == {"assets": one["new"], "tags": one["new"]}, one
        assert one["litter"] == []
