"""Benchmarks the throughput of the engine against usual scripts, in one run against the same server.

The server returns prepared bytes and has a core of its own; each contender is a process on another core. Beside the
rates stands the processor time per request, which depends less on the machine's other load, and both as shares of a
bare aiohttp loop; `uvloop` is the same loop on uvloop. `engine` keeps a journal that survives `kill -9` and writes the
tables; the bare loop keeps its answers in a list. Times are printed, not asserted, as they depend on the machine.

Also measured: a service with a latency of 200 ms and a hidden token bucket of 50 requests a second; memory over the
length of the manifest; and the processor time of polling ten thousand outstanding requests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any
from urllib.request import urlopen

import pytest

HERE = Path(__file__).parent
CORES = sorted(os.sched_getaffinity(0))[:2]
ROWS = int(os.environ.get("LIGHTMETER_BENCH_ROWS", "20000"))
ROUNDS, PEER_ROUNDS = 5, 2
MILLION = "LIGHTMETER_BENCH_MILLION"
say = print  # the result of the benchmark


def on(core: int) -> list[str]:
    """Return the command prefix that pins a process to this core."""
    return ["taskset", "-c", str(core)]


@contextmanager
def serving(*options: str) -> Iterator[str]:
    """Run the stub server on a core of its own, and yield its base URL."""
    command = [*on(CORES[-1]), sys.executable, str(HERE / "stub.py"), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()


def ran(
    name: str, base_url: str, rows: int, concurrency: int, folder: Path, *, one_core: bool = True
) -> dict[str, Any]:
    """Run one contender and return its own measurements; a crash after them is reported, not raised."""
    folder.mkdir(parents=True)
    script = str(HERE / "contenders.py")
    command = [
        *(on(CORES[0]) if one_core else ()),
        sys.executable,
        script,
        name,
        base_url,
        str(rows),
        str(concurrency),
        str(folder),
    ]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    figure_lines = [line for line in ended.stdout.splitlines() if line.startswith('{"seconds"')]
    assert figure_lines, ended.stderr[-2000:]
    measured = json.loads(figure_lines[-1])
    if ended.returncode:
        measured["died"] = f"  (then died with {ended.returncode})"
    return {"rate": rows / measured["seconds"], "cpu_us": 1e6 * measured["cpu_s"] / rows, **measured}


def counts(base_url: str) -> dict[str, float]:
    """Return the stub server's counters."""
    with urlopen(base_url + "/counts") as answer:  # noqa: S310 (our own server on loopback)
        return json.loads(answer.read())


@pytest.mark.parametrize("concurrency", [8, 64])
def test_requests_a_second(concurrency, tmp_path):
    """Every contender completes against the same server; rates are printed.

    The usual scripts take several times as long and get fewer rows and rounds.
    """
    names = [("bare", ROWS), ("engine", ROWS), ("spend", ROWS)]
    names += [("uvloop", ROWS)] if find_spec("uvloop") else []
    peers = [(name, ROWS // 6) for name in ("pandas", "script", "daft") if name != "daft" or find_spec("daft")]
    rounds: dict[str, list[dict[str, Any]]] = {}
    with serving() as base_url:
        for round_ in range(ROUNDS):
            for name, rows in names + (peers if round_ < PEER_ROUNDS else []):
                one = ran(name, base_url, rows, concurrency, tmp_path / f"{name}-{round_}")
                rounds.setdefault(name, []).append(one)
    say(f"\n\nzero latency, {concurrency} at once: the best of {ROUNDS} rounds; shares of bare: the median round")
    say(f"  {'':10s}{'requests/s':>12s}{'cpu us':>9s}{'peak MB':>9s}{'rate/bare':>11s}{'bare cpu/own':>14s}")
    for name, own in rounds.items():
        best = min(own, key=lambda each: each["cpu_us"])
        pairs = list(zip(own, rounds["bare"], strict=False))  # of one round, as other load changes slowly
        rate = median(one["rate"] / bare["rate"] for one, bare in pairs)
        cpu = median(bare["cpu_us"] / one["cpu_us"] for one, bare in pairs)
        line = f"{best['rate']:12.0f}{best['cpu_us']:9.0f}{best['peak_mb']:9.0f}{rate:11.2f}{cpu:14.2f}"
        say(f"  {name:10s}{line}{best.get('died', '')}")
    assert all(one["rate"] > 0 for own in rounds.values() for one in own)


def test_a_hidden_limit_is_used_up(tmp_path):
    """All rows are accepted under a hidden limit of 50 requests a second; the goodput is printed."""
    rows, limit = 6000, 50.0
    with serving("--latency", "0.2", "--rate", str(limit)) as base_url:
        ran("spend", base_url, rows, 64, tmp_path / "engine")
        totals = counts(base_url)
    lasted_s = totals["last"] - totals["first"]
    goodput, rejected = (
        totals["taken"] / (limit * (lasted_s + 1)),
        totals["rejected"] / (totals["taken"] + totals["rejected"]),
    )
    say(
        f"\n\n200 ms, hidden bucket of 50/s, {rows} rows: {100 * goodput:.1f} % of the limit (goal 97), "
        f"{100 * rejected:.2f} % turned away, {lasted_s:.0f} s"
    )
    assert totals["taken"] == rows


def test_memory_does_not_grow_with_the_manifest(tmp_path):
    """Peak memory of a run less than doubles for ten times as many rows; bytes per row are printed."""
    sizes = [10_000, 100_000, *([1_000_000] if os.environ.get(MILLION) else [])]
    with serving() as base_url:
        peaks = [(rows, ran("manifest", base_url, rows, 64, tmp_path / str(rows))) for rows in sizes]
    say("\n\nrows, peak MB of plan and run, of which tables were written in; seconds")
    for rows, one in peaks:
        say(f"  {rows:9d}{one['run_peak_mb']:9.0f}{one['peak_mb']:9.0f}{one['seconds']:9.0f}")
    (few, first), (many, last) = peaks[0], peaks[-1]
    for name in ("run_peak_mb", "peak_mb"):
        say(f"  slope of {name}: {1e6 * (last[name] - first[name]) / (many - few):.0f} bytes a row")
    assert last["run_peak_mb"] < 2 * first["run_peak_mb"]


def test_tables_are_complete_soon_after_the_last_answer(tmp_path):
    """All rows of a run are in its tables at its end; the seconds since the last answer are printed."""
    with serving() as base_url:
        one = ran("tables", base_url, 100_000, 64, tmp_path / "tables", one_core=False)
    say(f"\n\n100,000 rows: tables complete {one['tables_s']:.1f} s after the last answer (goal 2)")
    assert one["tables_s"] > 0


def test_ten_thousand_outstanding_requests_cost_little(tmp_path):
    """All of 10,000 outstanding ids are polled; the processor time is printed (goal: 5 % of a core)."""
    with serving("--acknowledge", "120") as base_url:
        one = ran("outstanding", base_url, 10_000, 64, tmp_path / "outstanding")
        polls = counts(base_url)["polls"]
    share = 100 * one["waiting_cpu_s"] / one["waiting_s"]
    say(f"\n\n10,000 ids outstanding for {one['waiting_s']:.0f} s: {share:.1f} % of a core (goal 5)")
    say(f"  {polls / 10_000:.1f} polls an id")
    assert polls >= 10_000
