"""The gallery beside the same questions in bare DuckDB over the same files. A measurement, not a test of the suite.

    pytest tests/bench/explorer --override-ini addopts= --import-mode=importlib -s

`LIGHTMETER_BENCH_ITEMS` (10000,100000,1000000) sets the sizes. Both take turns, `LIGHTMETER_BENCH_ROUNDS` (3)
times, in a new process each; what is said of each step is its middle round.
"""

# ruff: noqa: T201 (the table is what it is for)

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

import pytest

from tests.bench.explorer.big_tables import write_big_tables

ROOT = Path(__file__).parents[3]
SIZES = [int(size) for size in os.environ.get("LIGHTMETER_BENCH_ITEMS", "10000,100000,1000000").split(",")]
ROUNDS = int(os.environ.get("LIGHTMETER_BENCH_ROUNDS", "3"))
STEPS = ("open", "filter", "next page", "facet counts")
MAX_RATIO = 1.5
"""The goal: how many times the seconds of DuckDB each step may take."""
MAX_PAGE_S = 0.1
"""The goal: seconds of the next page, whatever the number of items."""
MAX_MIB = 400
"""The goal: peak memory of the process."""


def measure(name: str, folder: Path) -> dict[str, float]:
    """Return what a contender measured in a process of its own."""
    command = [sys.executable, "-m", "tests.bench.explorer.contenders", name, str(folder)]
    return json.loads(subprocess.run(command, check=True, cwd=ROOT, capture_output=True, text=True).stdout)


@pytest.mark.parametrize("items", SIZES)
def test_gallery_beside_duckdb(items, tmp_path):
    """Each step takes at most 1.5 times as long as in DuckDB; a page takes at most 0.1 s and the process 400 MiB."""
    write_big_tables(tmp_path, items)
    rounds = [{name: measure(name, tmp_path) for name in ("gallery", "duckdb")} for _ in range(ROUNDS)]
    middle = {
        name: {step: median(one[name][step] for one in rounds) for step in (*STEPS, "MiB")}
        for name in ("gallery", "duckdb")
    }
    print(f"\n{items:,} items          gallery    DuckDB   ratio")
    for step in STEPS:
        ours, bare = middle["gallery"][step], middle["duckdb"][step]
        print(f"{step:16} {ours:10.4f} s {bare:8.4f} s {ours / bare:6.2f}")
    print(f"{'peak memory':16} {middle['gallery']['MiB']:8.0f} MiB {middle['duckdb']['MiB']:6.0f} MiB")
    assert all(middle["gallery"][step] <= MAX_RATIO * middle["duckdb"][step] for step in STEPS)
    assert middle["gallery"]["next page"] <= MAX_PAGE_S
    assert middle["gallery"]["MiB"] <= MAX_MIB
