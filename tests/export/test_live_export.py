"""Export during a run: settled rows are added once, and the end of the run adds the rest."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import lightmeter as lm
from lightmeter.api.run_result import Run
from lightmeter.api.runs import stream_run
from lightmeter.errors import TablesError
from lightmeter.export import export_tables as module
from lightmeter.export import live_export
from lightmeter.export.export_tables import export_settled, export_tables
from lightmeter.facts.columns import ITEMS
from lightmeter.journal.compression import compress
from lightmeter.journal.queries.export import (
    SubmissionRange,
    asset_rows,
    journal_answers,
    request_rows,
    settled_ranges,
)
from lightmeter.journal.queries.latest_runs import attach_latest_runs, build_latest_runs
from lightmeter.journal.store import Journal, open_read_only
from lightmeter.tables import TABLES, Dataset
from tests.engine.hostile import Hostile, listening

ROOT = str(Path(__file__).resolve().parents[2])
ROWS = 24
ANSWERS_EACH = 5


@pytest.fixture
def small_shards(monkeypatch):
    """Make shards of a few answers each."""
    monkeypatch.setattr(module, "MIN_SHARD_REQUESTS", ANSWERS_EACH)
    monkeypatch.setattr("lightmeter.export.unexported_requests.MIN_SHARD_REQUESTS", ANSWERS_EACH)


@pytest.fixture
def environment(tmp_path, monkeypatch):
    """A key, and no settings but those of the test."""
    monkeypatch.setenv("LIGHTMETER_API_KEY", "key")
    monkeypatch.setenv("LIGHTMETER_CHARGES_FINAL_S", "0")
    monkeypatch.setenv("LIGHTMETER_SETTINGS", "/dev/null")
    monkeypatch.setenv("LIGHTMETER_CACHE_DIR", str(tmp_path / "cache"))


def rows_of(out, table):
    """Return how often each row occurs in a table."""
    return Counter(
        json.dumps({name: str(value) for name, value in row.items()}) for row in Dataset(out).read(table).to_pylist()
    )


def ids_of(out, table):
    """The items of a table, in any order."""
    return sorted(Dataset(out).read(table).column("item_id").to_pylist())


async def run_in_steps(tmp_path, budgets, script=lambda *_: "answer", between=lambda _out: None):
    """Run a manifest with duplicates until each budget is spent, one after the other."""
    urls = [f"http://pictures.example/{number}.jpg" for number in range(ROWS)]
    urls += urls[:3]
    out = tmp_path / "out"
    async with listening(Hostile(script)) as base_url:
        options = {"features": ["tags"], "backends": ["clarifai"], "precheck": False, "batch_size": 1}
        plan = await lm.aio.plan(urls, base_url=base_url, **options, budget=budgets[0])
        run = await lm.aio.run(plan, out)
        between(out)
        for budget in budgets[1:]:
            run = await lm.aio.resume(out, budget=budget)
            between(out)
    return run


async def test_settled_rows_are_added_and_the_rest_comes_at_the_end(tmp_path, environment, small_shards):
    """Each export while a run goes on adds what is settled; none of it is written again at the end."""
    readings = []

    def look(out):
        before = {path: path.stat().st_mtime_ns for path in Dataset(out).parts("tags")}
        export_settled(out)
        unchanged = {path for path in before if path.exists() and path.stat().st_mtime_ns == before[path]}
        readings.append((len(before), len(unchanged), ids_of(out, "tags"), ids_of(out, "assets")))

    run = await run_in_steps(tmp_path, [7, 13, 19, 100], between=look)
    out = run.folder
    for number, (_, _, tags, assets) in enumerate(readings[:3]):
        assert len(tags) == len(set(tags))
        assert assets == tags, number  # only items with an answer, duplicates too
    export_tables(out)
    assert len(Dataset(out).parts("tags")) > 3
    assert (
        ids_of(out, "assets") == sorted(str(number) for number in range(1, ROWS + 4))
        or len(ids_of(out, "assets")) == ROWS + 3
    )
    incremental = {table: rows_of(out, table) for table in TABLES}
    export_tables(out, rewrite_all=True)
    assert {table: len(Dataset(out).parts(table)) for table in TABLES} == dict.fromkeys(TABLES, 1)
    assert {table: rows_of(out, table) for table in TABLES} == incremental


async def test_an_export_that_was_cut_short_is_repaired(tmp_path, environment, small_shards, monkeypatch):
    """Parts that reached some tables only, as after a kill, are replaced by the next export; no row stands twice."""
    run = await run_in_steps(tmp_path, [12])
    out = run.folder
    export_settled(out)

    class Killed(BaseException):
        pass

    original, left = Dataset._add_parts, [4]

    def add_parts(self, table, staged):
        left[0] -= 1
        if left[0] < 0:
            raise Killed
        original(self, table, staged)

    monkeypatch.setattr(Dataset, "_add_parts", add_parts)
    async with listening(Hostile(lambda *_: "answer")) as base_url:
        with pytest.raises(Killed):
            await lm.aio.resume(out, budget=100, base_url=base_url)
    monkeypatch.setattr(Dataset, "_add_parts", original)
    export_tables(out)
    repaired = {table: rows_of(out, table) for table in TABLES}
    export_tables(out, rewrite_all=True)
    assert {table: rows_of(out, table) for table in TABLES} == repaired


async def test_several_processes_write_what_one_writes(tmp_path, environment, small_shards):
    """A rebuild in processes gives the rows of a rebuild in one, in more parts, and a run goes on with them."""
    run = await run_in_steps(tmp_path, [20])
    out = run.folder
    alone = {table: rows_of(out, table) for table in (*TABLES, ITEMS)}
    written = export_tables(out, rewrite_all=True, processes=2)
    assert {table: rows_of(out, table) for table in alone} == alone
    assert written == {table: sum(rows.values()) for table, rows in alone.items()}
    assert len(Dataset(out).parts("tags")) > 1
    async with listening(Hostile(lambda *_: "answer")) as base_url:
        await lm.aio.resume(out, budget=100, base_url=base_url)
    resumed = {table: rows_of(out, table) for table in TABLES}
    assert resumed["tags"].total() == ROWS + 3
    export_tables(out, rewrite_all=True)
    assert {table: rows_of(out, table) for table in TABLES} == resumed


def killed(shard) -> dict[str, int]:
    """End this process in the middle of its work, as the kernel does when memory is short."""
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


async def test_a_killed_process_of_a_rebuild_is_told_and_leaves_the_tables(
    tmp_path, environment, small_shards, monkeypatch
):
    """A rebuild one of whose processes is killed says how to go on, and the tables are those from before."""
    out = (await run_in_steps(tmp_path, [100])).folder
    before = {path: path.read_bytes() for path in (out / "tables").rglob("*.parquet")}
    with monkeypatch.context() as patch:
        patch.setattr(module, "export_shard", killed)
        patch.setenv("PYTHONPATH", ROOT)  # the process imports this module
        with pytest.raises(TablesError, match="died") as caught:
            export_tables(out, rewrite_all=True, processes=2)
    assert f"lightmeter rebuild {out}" in caught.value.hint
    assert {path: path.read_bytes() for path in (out / "tables").rglob("*.parquet")} == before
    assert export_tables(out, rewrite_all=True, processes=2)["assets"] == ROWS + 3


async def test_a_process_writes_tables_while_the_run_goes_on(tmp_path, environment, monkeypatch):
    """Before the run ends its tables hold what is settled; then they hold all, and the process has ended."""
    started, item_ids, out = [], [], tmp_path / "out"
    monkeypatch.setattr(live_export, "EXPORT_EVERY_S", 0.0)
    popen = subprocess.Popen
    monkeypatch.setattr(
        subprocess, "Popen", lambda *args, **options: started.append(popen(*args, **options)) or started[-1]
    )
    urls = [f"http://pictures.example/{number}.jpg" for number in range(1, 4000)]
    service = Hostile(lambda *_: "answer", balance=10_000, answer_s=0.2)
    async with listening(service) as base_url:
        options = {"features": ["tags"], "backends": ["clarifai"], "precheck": False, "batch_size": 1}
        plan = await lm.aio.plan(urls, base_url=base_url, **options)
        stop = asyncio.Event()
        async for step in stream_run(plan, out, stop=stop):
            if not stop.is_set() and Dataset(out).parts("assets"):
                item_ids.append(ids_of(out, "assets"))
                assert set(item_ids[0]) <= set(ids_of(out, "tags"))
                assert not isinstance(step, Run)
                stop.set()
    (process,) = started
    assert process.returncode == 0
    assert item_ids
    assert 0 < len(item_ids[0]) < len(urls)
    assert len(ids_of(out, "assets")) == len(set(ids_of(out, "assets"))) == len(urls)
    ended = {table: rows_of(out, table) for table in TABLES}
    export_tables(out, rewrite_all=True)
    assert {table: rows_of(out, table) for table in TABLES} == ended


def test_the_process_ends_with_the_one_that_started_it(tmp_path):
    """The process ends when its standard input is closed, as it is when the run is killed."""
    command = [sys.executable, "-P", "-m", "lightmeter.export.live_export", str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        process.stdin.close()
        assert process.wait(timeout=60) == 0


async def test_nothing_is_added_while_older_runs_have_the_same_items(tmp_path, environment, small_shards):
    """If an older run has the same items, the tables stay unchanged until the end of the run."""
    await run_in_steps(tmp_path, [100])
    out = tmp_path / "out"
    before = {table: rows_of(out, table) for table in TABLES}
    urls = [f"http://pictures.example/new-{number}.jpg" for number in range(3)]
    async with listening(Hostile(lambda *_: "answer")) as base_url:
        options = {"features": ["tags"], "backends": ["clarifai"], "precheck": False}
        plan = await lm.aio.plan(urls, base_url=base_url, **options)
        await lm.aio.run(plan, out)
    with open_read_only(out) as db:
        assert db.execute("SELECT count(*) FROM items").fetchone() == (3,)
    after = {table: rows_of(out, table) for table in TABLES}
    export_settled(out)
    assert {table: rows_of(out, table) for table in TABLES} == after
    assert before["assets"] != after["assets"]


def journal_of(folder, rows):
    """Make a journal with this number of answered rows, each with two findings."""
    folder.mkdir()

    def fill(db):
        numbers = list(range(1, rows + 1))
        db.executemany(
            "INSERT INTO submissions (submission_id, state, hold, assets, paid) VALUES (?, 'settled', 1, 1, 1)",
            [(number,) for number in numbers],
        )
        db.executemany(
            "INSERT INTO items (seq, item_id, url, extra, status, frames_low, submission_id, asset) "
            "VALUES (?1, 'i' || ?1, 'u' || ?1, '{}', 'ok', 1, ?1, 0)",
            [(number,) for number in numbers],
        )
        finding = "INSERT INTO findings VALUES (?, ?, 'info', '', NULL, '{\"size_bytes\": 7}')"
        db.executemany(finding, [(number, name) for number in numbers for name in ("reach", "decode")])
        db.executemany("INSERT INTO transitions VALUES (?, 'settle', 'settled', 0, NULL)", [(one,) for one in numbers])
        db.executemany("INSERT INTO answers VALUES (?, ?)", [(one, compress(b"{}")) for one in numbers])

    with Journal(folder) as journal:
        journal.submit(fill).result()


@pytest.mark.parametrize("stuck", [(), (1,)])
def test_the_export_of_a_shard_reads_only_its_rows(tmp_path, stuck):
    """SQLite takes as many steps for the last 100 requests of 4,000 as for those of 400, whatever came before."""
    steps = {}
    build_latest_runs([], tmp_path / "latest.sqlite", 0)
    for rows in (400, 4000):
        journal_of(tmp_path / str(rows), rows)
        rest = SubmissionRange(rows - 100, stuck)
        with open_read_only(tmp_path / str(rows)) as db:
            attach_latest_runs(db, tmp_path / "latest.sqlite")
            done = []
            db.set_progress_handler(lambda done=done: done.append(1) or False, 100)
            (shard,) = settled_ranges(db, rest, 1000)
            assets = list(asset_rows(db, 0, shard))
            requests, answers = list(request_rows(db, shard)), list(journal_answers(db, 0, shard))
            assert len(assets) == len(requests) == len(answers) == 100 + len(stuck)
            steps[rows] = len(done)
    assert steps[4000] < 1.3 * steps[400]
