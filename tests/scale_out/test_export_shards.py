"""Tables that the workers of a cluster write are those that one process writes, also if a worker dies."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path

import pytest

import lightmeter as lm
from lightmeter.export.export_shard import export_shard_aside
from lightmeter.export.export_tables import export_tables
from lightmeter.scale_out.executors import open_executor
from lightmeter.tables import Dataset
from tests.engine.hostile import Hostile, listening

ROWS = 12


@pytest.fixture
async def out(tmp_path, monkeypatch) -> Path:
    """Return the folder of two runs that share items, whose answers make several shards."""
    monkeypatch.setenv("LIGHTMETER_API_KEY", "key")
    monkeypatch.setenv("LIGHTMETER_CHARGES_FINAL_S", "0")
    monkeypatch.setattr("lightmeter.export.export_tables.MIN_SHARD_REQUESTS", 1)
    async with listening(Hostile(lambda *_: "answer")) as base_url:
        for first in (0, ROWS // 2):
            urls = [f"http://pictures.example/{number}" for number in range(first, first + ROWS)]
            options = {"features": ["tags"], "backends": ["clarifai"], "precheck": False, "batch_size": 1}
            plan = await lm.aio.plan(urls, base_url=base_url, **options)
            await lm.aio.run(plan, tmp_path / "out")
    return tmp_path / "out"


def rows(out: Path) -> dict[str, list[str]]:
    return {table: sorted(map(repr, Dataset(out).read(table).to_pylist())) for table in Dataset(out).tables()}


def run_on(dask, out: Path, change=lambda function: function) -> dict[str, int]:
    with open_executor(dask) as cluster:
        return export_tables(
            out,
            rewrite_all=True,
            processes=max(2, cluster.parallel_shards),  # a worker that another test killed may still be starting
            map_shards=lambda function, shards: cluster.map(change(function), shards),
        )


async def test_a_cluster_writes_the_tables_that_one_process_writes(out, dask):
    """Rows are the same, in several files of each table, and no copy of a journal stays."""
    written = export_tables(out, rewrite_all=True)
    before = rows(out)
    assert run_on(dask, out) == written
    assert rows(out) == before
    assert len(Dataset(out).parts("tags")) > 2
    assert not [path for path in out.glob(".staging-*/run-*") if path.is_dir()]


@pytest.mark.sweep
async def test_a_killed_worker_leaves_no_half_file(out, dask, tmp_path):
    """A worker that dies after it has written its files does its shard again: no row is missing or there twice."""
    export_tables(out, rewrite_all=True)
    before = rows(out)
    run_on(dask, out, lambda function: partial(killed_once, function, tmp_path / "killed"))
    assert (tmp_path / "killed").exists()
    assert rows(out) == before


@pytest.mark.sweep
async def test_two_workers_may_export_the_same_shard(out, dask):
    """A shard that runs twice, as when a scheduler wrongly takes a worker for dead, gives its rows once."""
    export_tables(out, rewrite_all=True)
    before = rows(out)
    run_on(dask, out, lambda function: partial(twice, function))
    assert rows(out) == before


def killed_once(function, mark: Path, shard) -> dict[str, int]:
    if shard.number == 1 and not mark.exists():
        function(shard)
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return function(shard)


def twice(function, shard) -> dict[str, int]:
    assert function is export_shard_aside
    function(shard)
    return function(shard)
