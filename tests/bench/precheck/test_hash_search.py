"""A million 64-bit hashes searched: our index of `--duplicates near`, brute force, usearch and faiss.

Each contender runs in a process of its own, with one thread; the figures are processor time. usearch and faiss are left
out where they are not installed. Slow contenders search a part of the queries; recall is against brute force on
that part. A contender that takes more than `LIGHTMETER_BENCH_CPU_S` (60) seconds is ended, and the table says so.
`LIGHTMETER_BENCH_HASHES` (1000000) is the number of hashes.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sys
from pathlib import Path

import numpy as np

from lightmeter.planning.checks import near_duplicates
from tests.bench.precheck import hash_contenders
from tests.bench.precheck.hash_contenders import CONTENDERS, MAX_CPU_S, RADIUS
from tests.bench.precheck.processes import measure_process
from tests.bench.quality.quality_data import show, table

HASHES = int(os.environ.get("LIGHTMETER_BENCH_HASHES", "1000000"))
QUERIES = 1000


def write_hashes(folder: Path) -> tuple[Path, Path]:
    """Write random hashes, and queries that differ from one of them in `RADIUS` bits or fewer."""
    rng = np.random.default_rng(1)
    hashes = rng.integers(0, 2**64, HASHES, dtype=np.uint64)
    queries = hashes[rng.integers(0, HASHES, QUERIES)].copy()
    for _ in range(RADIUS):
        queries ^= np.uint64(1) << rng.integers(0, 64, QUERIES, dtype=np.uint64)
    for name, values in (("hashes", hashes), ("queries", queries)):
        np.save(folder / f"{name}.npy", values)
    return folder / "hashes.npy", folder / "queries.npy"


def truth(hashes: Path, queries: Path) -> list[set[int]]:
    """Return for each query the numbers of the hashes within the radius."""
    search = hash_contenders.brute_force(np.load(hashes))
    return [set(found.tolist()) for found in search(np.load(queries)[:200])]


def test_search_among_a_million_hashes(tmp_path):
    """Our index finds exactly what brute force finds."""
    assert RADIUS == near_duplicates.RADIUS
    hashes, queries = write_hashes(tmp_path)
    expected, rows, recalls = truth(hashes, queries), [], {}
    for name, (_, searched) in CONTENDERS.items():
        package = name.split()[0].strip(",")
        if package in {"usearch", "faiss"} and importlib.util.find_spec(package) is None:
            rows.append([name, "not installed: pip install usearch faiss-cpu"])
            continue
        found_file = tmp_path / "found.npy"
        script = str(Path(hash_contenders.__file__))
        found = measure_process([sys.executable, script, name, str(hashes), str(queries), str(found_file)])
        if found.exit_code in {-signal.SIGXCPU, -signal.SIGKILL}:
            rows.append([name, f"> {MAX_CPU_S}", f"ended after {found.output}", "", f"{found.peak_mb:.0f}"])
            continue
        assert found.exit_code == 0, f"{name}: {found.output}"
        figures, pairs = json.loads(found.output), np.load(found_file)
        known = expected[:searched]
        hits = [set(pairs[pairs[:, 0] == number, 1].tolist()) for number in range(len(known))]
        recalls[name] = sum(len(one & other) for one, other in zip(hits, known, strict=True)) / sum(map(len, known))
        assert name != "lightmeter" or hits == known
        speed = figures["queries"] / max(figures["search_s"], 1e-3)
        cells = [f"{figures['build_s']:.1f}", f"{speed:.0f}", str(searched), f"{found.peak_mb:.0f}"]
        rows.append([name, *cells, f"{recalls[name]:.3f}"])
    head = ["search", "build s", "queries/s", "queries searched", "memory MiB", "recall"]
    padded = [[*row, *[""] * (len(head) - len(row))] for row in rows]
    show(table(f"{HASHES:,} hashes, {RADIUS} bits", head, padded))
