"""Measures pre-checks and export on one and on two workers of Dask and of Ray: speed-up, orchestration, same tables.

The measurements of one and of two workers alternate, because other load on the machine changes slowly; the median of
the ratios of neighbours is printed. A worker decodes and encodes on one processor. The start of a cluster and the first
import in each worker are not timed. LIGHTMETER_BENCH_SCALE_PICTURES and LIGHTMETER_BENCH_SCALE_ANSWERS name the rows.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any

import pytest

import lightmeter as lm
from lightmeter.export.export_tables import export_tables
from lightmeter.scale_out.executors import ShardExecutor, open_executor
from lightmeter.tables import Dataset
from tests.bench.engine.test_engine import serving
from tests.bench.precheck.media_server import write_photographs

DATA = Path(__file__).parents[3] / "data"
PICTURES = int(os.environ.get("LIGHTMETER_BENCH_SCALE_PICTURES", "2000"))
ANSWERS = int(os.environ.get("LIGHTMETER_BENCH_SCALE_ANSWERS", "100000"))
ROUNDS = int(os.environ.get("LIGHTMETER_BENCH_SCALE_ROUNDS", "3"))
MODULES = ("lightmeter.scale_out.check_shards", "lightmeter.export.export_shard")
say = print  # the result of the benchmark


@contextmanager
def cluster(engine: str, workers: int) -> Iterator[ShardExecutor]:
    """Start a cluster of `workers` workers with one processor each; all have loaded lightmeter."""
    pytest.importorskip("distributed" if engine == "dask" else "ray")
    if engine == "dask":
        distributed = import_module("distributed")
        local = distributed.LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address="127.0.0.1:0")
        with local, distributed.Client(local) as client, open_executor(client) as executor:
            list(executor.map(load, range(4 * workers)))
            yield executor
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray = import_module("ray")
    ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False, configure_logging=False)
    try:
        with open_executor("ray") as executor:
            list(executor.map(load, range(4 * workers)))
            yield executor
    finally:
        ray.shutdown()


def load(_shard: int) -> None:
    for module in MODULES:
        import_module(module)
    time.sleep(0.2)  # so that every worker gets some


def timed(function: Any, shard: Any) -> tuple[Any, float]:
    started = time.perf_counter()
    return function(shard), time.perf_counter() - started


class Timer:
    """Applies functions to shards on a cluster; records the wall-clock time of all, and the time inside of shards."""

    def __init__(self, executor: ShardExecutor) -> None:
        self.executor = executor
        self.parallel_shards = executor.parallel_shards
        self.seconds = self.busy_s = 0.0

    def map(self, function: Any, shards: Any) -> Iterator[Any]:
        started = time.perf_counter()
        for done in self.executor.map(partial(timed, function), shards):
            if done is not None:
                self.busy_s += done[1]
                yield done[0]
        self.seconds = time.perf_counter() - started

    @property
    def orchestration(self) -> float:
        """Share of the workers' time that was not spent inside of shards."""
        return 1 - self.busy_s / (self.seconds * self.parallel_shards)


def compared(engine: str, what: str, work: Any) -> None:
    """Run `work(executor)` on one and two workers in turn; print the speed-up of the shards' part."""
    pairs: list[tuple[Timer, Timer]] = []
    for round_ in range(ROUNDS):
        found = {}
        for workers in (1, 2) if round_ % 2 == 0 else (2, 1):
            with cluster(engine, workers) as executor:
                found[workers] = Timer(executor)
                work(found[workers])
        pairs.append((found[1], found[2]))
    ratios = [one.seconds / two.seconds for one, two in pairs]
    one, two = min(pairs, key=lambda pair: pair[1].seconds)
    say(
        f"\n{engine}, {what}: speed-up of 2 workers {median(ratios):.2f} (goal 1.7; "
        f"{', '.join(f'{ratio:.2f}' for ratio in ratios)}); best round {one.seconds:.1f} s and {two.seconds:.1f} s; "
        f"orchestration {100 * one.orchestration:.1f} % and {100 * two.orchestration:.1f} %"
    )


def tables(out: Path, *names: str) -> dict[str, list[str]]:
    read = {name: Dataset(out).read(name).drop_columns(["run_id"]) for name in names}
    return {name: sorted(map(repr, table.to_pylist())) for name, table in read.items()}


@pytest.fixture
def own_folders(monkeypatch, tmp_path):
    monkeypatch.setenv("LIGHTMETER_SETTINGS", "/dev/null")
    monkeypatch.setenv("LIGHTMETER_CACHE_DIR", str(tmp_path / "cache"))


@pytest.mark.parametrize("engine", ["dask", "ray"])
@pytest.mark.usefixtures("own_folders")
def test_checks_on_one_and_two_workers(engine, tmp_path, monkeypatch):
    """Both numbers of workers give the tables that one process gives; the speed-up is printed."""
    (tmp_path / "photos").mkdir()
    write_photographs(sorted(DATA.rglob("*.jpg"))[:20], tmp_path / "photos", (1200, 2000), 60)
    names = cycle(sorted((tmp_path / "photos").iterdir()))
    rows = [f"{number},{next(names)}" for number in range(PICTURES)]
    (tmp_path / "m.csv").write_text("id,path\n" + "\n".join(rows) + "\n")
    asyncio.run(lm.aio.check(tmp_path / "m.csv", tmp_path / "here", reuse=False))
    expected = tables(tmp_path / "here", "assets", "prechecks")

    def work(timer: Timer) -> None:
        monkeypatch.setattr("lightmeter.scale_out.check_manifest.open_executor", lambda _: nullcontext_of(timer))
        out = tmp_path / f"there-{time.monotonic_ns()}"
        shard_rows = max(10, PICTURES // 40)
        asyncio.run(lm.aio.check(tmp_path / "m.csv", out, reuse=False, executor=engine, shard_rows=shard_rows))
        assert tables(out, "assets", "prechecks") == expected

    compared(engine, f"pre-check of {PICTURES} pictures", work)


@contextmanager
def nullcontext_of(timer: Timer) -> Iterator[Timer]:
    """Yield a cluster that is open already."""
    yield timer


@pytest.mark.parametrize("engine", ["dask", "ray"])
def test_export_on_one_and_two_workers(engine, tmp_path):
    """Both numbers of workers write the tables that one process writes; the speed-up is printed."""
    (tmp_path / "manifest.csv").write_text(
        "url\n" + "".join(f"http://pictures.example/{number}.jpg\n" for number in range(ANSWERS))
    )
    stages = str(Path(__file__).with_name("stages.py"))
    with serving() as base_url:
        for stage in ("plan", "run", "export"):
            subprocess.run([sys.executable, stages, stage, base_url, str(tmp_path)], check=True)
    out = tmp_path / "out"
    rows = {table: sum(part.rows for part in Dataset(out).describe(table)) for table in Dataset(out).tables()}
    expected = tables(out, "assets", "tags")

    def work(timer: Timer) -> None:
        # The same shards for both numbers of workers.
        written = export_tables(out, rewrite_all=True, processes=2, map_shards=timer.map)
        assert written == rows

    compared(engine, f"export of {ANSWERS} answers", work)
    assert tables(out, "assets", "tags") == expected
