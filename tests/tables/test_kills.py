"""`kill -9` at every kind of step of rebuild, compact and add: readers who only list and open see old rows or new ones.

What is killed are whole commands, on a folder of three runs, at some calls of each kind, evenly spaced; with
`LIGHTMETER_TABLE_KILLS=all` at every single one.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pytest

import lightmeter as lm
from lightmeter.api.blocking import wait_for
from lightmeter.export.export_tables import export_tables
from lightmeter.facts.columns import ITEMS
from lightmeter.tables import TABLES
from tests.engine.hostile import Hostile, listening

SCRIPT = Path(__file__).with_name("killed.py")
EVERY = os.environ.get("LIGHTMETER_TABLE_KILLS") == "all"
MOST = {"rename": 6, "renameat2": 6, "openat": 2, "write": 2, "fsync": 2}
"""Places to kill at, by kind of call; of the others one."""

CHANGES = {
    "first": ("bare", "rebuild"),  # where nothing was
    "replace": ("one part", "rebuild"),  # one part by one, of more rows: a rename
    "merge": ("two parts", "rebuild"),  # two parts by one, of more rows: an exchange
    "compact": ("two parts", "compact"),
    "add": ("two parts", "add"),  # a third
}
"""What the folder holds, and the command."""

pytestmark = [pytest.mark.slow, pytest.mark.sweep]


async def run(out: Path, names: str) -> None:
    urls = [f"http://pictures.example/{name}.jpg" for name in names]
    async with listening(Hostile(lambda *_: "answer")) as base_url:
        options = {"features": ["tags"], "backends": ["clarifai"], "precheck": False, "base_url": base_url}
        await lm.aio.run(await lm.aio.plan(urls, **options), out)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A folder of three runs, the last of which is not in the tables, by what the tables are."""
    place = tmp_path_factory.mktemp("folders")
    out = place / "out"
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("LIGHTMETER_API_KEY", "key")
        environment.setenv("LIGHTMETER_SETTINGS", "/dev/null")
        environment.setenv("LIGHTMETER_STATE_DIR", str(place / "state"))
        wait_for(run(out, "ab"))
        wait_for(run(out, "cd"))
        shutil.copytree(out / "tables", place / "two")
        export_tables(out, rewrite_all=True)
        shutil.copytree(out / "tables", place / "one")
        wait_for(run(out, "ef"))
    copies = {"bare": None, "one part": place / "one", "two parts": place / "two"}
    for name, tables in copies.items():
        shutil.copytree(out, place / name, ignore=shutil.ignore_patterns("tables", "views.sql", "catalog.duckdb"))
        if tables is not None:
            shutil.copytree(tables, place / name / "tables")
    return {name: place / name for name in copies}


def row_counts(out: Path) -> dict[str, Counter]:
    """Return, by table, how often a reader that lists and opens files finds each row."""
    found = {}
    with duckdb.connect() as db:
        for table in (*TABLES, ITEMS):
            folder = out / "tables" / table
            listed = any(folder.glob("*.parquet"))
            # The reason `gone` is written to the rows of earlier runs after new rows are added.
            columns = "* EXCLUDE (reason)" if table in ("assets", ITEMS) else "*"
            found_files = f"{folder}/*.parquet"
            rows = db.read_parquet(found_files, union_by_name=True).project(columns).fetchall() if listed else []
            found[table] = Counter(map(str, rows))
    return found


def done(jobs: list[tuple[str, Path, str | None, int]]) -> list:
    """Run jobs of `killed.py`, two at a time, and return their results."""
    halves = [jobs[::2], jobs[1::2]]
    with ThreadPoolExecutor() as two:
        answers = list(two.map(_done, halves))
    return [answers[place % 2][place // 2] for place in range(len(jobs))]


def _done(jobs: list[tuple[str, Path, str | None, int]]) -> list:
    jobs_json = json.dumps([(command, str(out), call, nth) for command, out, call, nth in jobs])
    ended = subprocess.run(
        [sys.executable, "-B", str(SCRIPT)], input=jobs_json, capture_output=True, text=True, check=False
    )
    if "cannot trace" in ended.stderr:
        pytest.skip(ended.stderr.strip())
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def spread(call: str, count: int) -> list[int]:
    """Return the numbers of the calls at which a command is killed."""
    most = count if EVERY else min(count, MOST.get(call, 1))
    return [1 + (2 * place + 1) * count // (2 * most) for place in range(most)]


@pytest.fixture(scope="module")
def kills(folders, tmp_path_factory):
    """Kill each command at several calls, and return the tables it left and those after a rebuild."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    place = tmp_path_factory.mktemp("killed")

    def fresh(change: str, name: str) -> Path:
        return Path(shutil.copytree(folders[CHANGES[change][0]], place / change / name))

    whole = {change: fresh(change, "whole") for change in CHANGES}
    counts = done([(command, whole[change], "count", 0) for change, (_, command) in CHANGES.items()])
    jobs = [
        {"change": change, "call": call, "nth": nth, "out": fresh(change, f"{call}-{nth}")}
        for change, counted in zip(CHANGES, counts, strict=True)
        for call, count in counted.items()
        for nth in spread(call, count)
    ]
    ends = done([(CHANGES[one["change"]][1], one["out"], one["call"], one["nth"]) for one in jobs])
    old = {change: row_counts(folders[holds]) for change, (holds, _) in CHANGES.items()}
    new = {change: row_counts(out) for change, out in whole.items()}
    for one, end in zip(jobs, ends, strict=True):
        one |= {"end": end, "seen": row_counts(one["out"]), "old": old[one["change"]], "new": new[one["change"]]}
        one["litter"] = [*one["out"].glob(".staging-*"), *one["out"].glob(".*.tmp*"), *one["out"].glob("tables/.*")]
        for left in one["litter"]:
            os.utime(left, (0, 0))  # as if it were long ago
    again = done([("rebuild", one["out"], None, 0) for one in jobs])
    for one, end in zip(jobs, again, strict=True):
        one |= {"rebuilt": end, "again": row_counts(one["out"]), "all": new["first"]}
    return jobs


def test_every_command_was_killed_at_every_kind_of_its_calls(kills):
    """What opens, writes, syncs, renames, exchanges and removes files is met, and most of the kills end the command."""
    killed = Counter((one["change"], one["call"]) for one in kills if one["end"] == -9)
    for change, (holds, command) in CHANGES.items():
        calls = {"openat", "write", "fsync", "rename"}
        calls |= {"renameat2"} if holds == "two parts" and command != "add" else set()
        calls |= {"pwrite64", "fdatasync", "unlink"} if command != "compact" else set()
        assert all(killed[change, call] for call in calls), change
    assert sum(killed.values()) > 0.9 * len(kills)


def test_a_reader_sees_the_old_rows_or_the_new_ones(kills):
    """Of each table a reader finds what was there before or what is there after, never less and never twice."""
    for one in kills:
        for table, rows in one["seen"].items():
            assert rows in (one["old"][table], one["new"][table]), (one["change"], one["call"], one["nth"], table)


def test_facts_come_before_the_assets_they_belong_to(kills):
    """A reader that finds the new rows of `assets` finds those of the other tables too."""
    changed = [one for one in kills if one["old"]["assets"] != one["new"]["assets"] == one["seen"]["assets"]]
    assert changed
    for one in changed:
        assert all(one["seen"][table] == one["new"][table] for table in TABLES)


def test_items_have_no_row_twice(kills):
    """`items` follows the assets: one row for each row of the old ones or of the new ones."""
    for one in kills:
        for found in (one["seen"], one["again"]):
            assert set(found[ITEMS].values()) <= {1}, (one["change"], one["call"], one["nth"])
        assert one["again"][ITEMS].total() == one["again"]["assets"].total()


def test_a_rebuild_ends_what_the_killed_one_began(kills):
    """After a rebuild the tables hold each row of all runs once, and no temporary file is left."""
    for one in kills:
        fault = (one["change"], one["call"], one["nth"])
        assert one["rebuilt"] == 0, fault
        assert one["again"] == one["all"], fault
        assert not any(left.exists() for left in one["litter"]), fault
    assert any(one["litter"] for one in kills)
