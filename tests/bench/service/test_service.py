"""Measures the overhead of the service: throughput, latency and memory beside the bare model, in the same run.

Tags of real photos (300 to 1024 pixels), uploaded as base64, every content new. The service has a core of its own or
both; the clients are another process on the other core. Beside the rates stands the processor time for each picture,
which does not care what else the machine is doing. Where the clients' own core is busy for most of the time, it is they
who are measured. Nothing is asserted about time: machines differ, ratios less.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

HERE = Path(__file__).parent
MEDIA = HERE.parents[2] / "data" / "media"
SECONDS = float(os.environ.get("LIGHTMETER_BENCH_SECONDS", "6"))
KEY = "bench"
LOOKUPS = 'lightmeter_cache_lookups_total{{outcome="{}"}}'
CORES = sorted(os.sched_getaffinity(0))[:2]
KINDS = {"session": "onnxruntime alone", "model": "the back end on pixels", "file": "from file to JSON"}


def on_cores(cores: list[int]) -> list[str]:
    """Return the command that pins a process to these cores."""
    return ["taskset", "-c", ",".join(map(str, cores))]


@dataclass
class Server:
    """A server process."""

    base_url: str
    pid: int

    def cpu_s(self) -> float:
        """Return the processor time of all its threads so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def lookups(self, outcome: str) -> float:
        """Return the lookups in the result cache that were a `hit` or a `miss`."""
        with urlopen(self.base_url + "/metrics") as answer:  # noqa: S310 (our own server on loopback)
            lines = answer.read().decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(LOOKUPS.format(outcome)))

    def peak_mb(self) -> float:
        """Return its peak memory."""
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="utf-8")
        return int(status.split("VmHWM:")[1].split()[0]) / 1024


@contextmanager
def serving(command: list[str], cores: list[int]) -> Iterator[Server]:
    """Start a server that prints its URL, and stop it afterwards."""
    with subprocess.Popen(
        [*on_cores(cores), *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            line = process.stdout.readline()
            assert line.startswith("listening on "), line
            yield Server(line.split()[-1], process.pid)
        finally:
            process.terminate()


def ours(folder: Path) -> list[str]:
    """Return the command of our service with the tag model only."""
    options = ["--port", "0", "--database", f"sqlite:///{folder / 'bench.db'}", "--key", f"{KEY}=100000000"]
    return [sys.executable, "-m", "lightmeter", "serve", *options, "--backends", "imagenet"]


def load(server: Server, clients: int, pictures: int = 1) -> dict[str, float]:
    """Run clients on the last core; return their measurements, and processor time and memory of the server."""
    arguments = [server.base_url, KEY, str(MEDIA), str(SECONDS), str(clients), str(pictures)]
    used = server.cpu_s()
    measured = ran([*on_cores(CORES[-1:]), sys.executable, str(HERE / "load.py"), *arguments])
    cpu_ms = 1e3 * (server.cpu_s() - used) / measured["pictures"]
    return {**measured, "cpu_ms": cpu_ms, "peak_mb": server.peak_mb()}


def bare(cores: list[int]) -> dict[str, dict[str, float]]:
    """Measure the model alone, with a thread for each core."""
    return ran([*on_cores(cores), sys.executable, str(HERE / "bare.py"), str(MEDIA), str(SECONDS / 2), str(len(cores))])


def ran(command: list[str]) -> dict[str, Any]:
    """Run a process, and return the JSON that it prints."""
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.parametrize("cores", [CORES[:1], CORES], ids=["one core", "two cores"])
def test_throughput_and_latency(cores, tmp_path):
    """Throughput as a share of that of the model alone is printed; only completeness is asserted."""
    runs, rows = [bare(cores)], []
    with serving(ours(tmp_path), cores) as server:
        for clients, pictures in ((1, 1), (8, 1), (64, 1), (4, 10)):
            rows.append((f"service, {clients} clients x {pictures}", load(server, clients, pictures)))
        # Cached results would measure the cache instead of the service.
        assert server.lookups("hit") == 0
        assert server.lookups("miss") >= sum(measured["pictures"] for _, measured in rows)
        runs.append(bare(cores))
    with serving([sys.executable, str(HERE / "naive.py")], cores) as server:
        rows.append(("FastAPI, 8 clients x 1", load(server, 8)))
    runs.append(bare(cores))
    alone = {
        kind: {each: sum(run[kind][each] for run in runs) / len(runs) for each in ("rate", "cpu_ms")} for kind in KINDS
    }
    show(len(cores), alone, rows)
    assert all(measured["rate"] > 0 for _, measured in rows)


def show(cores: int, alone: dict[str, dict[str, float]], rows: list[tuple[str, dict[str, float]]]) -> None:
    """Print the table; the last columns are relative to the back end on pixels, and to file to JSON."""
    say = print  # the bench's product
    say(f"\n\n{cores} core(s) for the server; clients in another process")
    head = f"{'pictures/s':>11s}{'cpu ms':>8s}{'p50 ms':>8s}{'p99 ms':>8s}{'peak MB':>8s}{'clients':>8s}"
    shares = "".join(f"{share:>12s}" for share in ("rate/pixels", "rate/file", "cpu/pixels", "cpu/file"))
    say(f"  {'':34s}{head}{shares}")
    for kind, words in KINDS.items():
        say(f"  {'bare: ' + words:34s}{alone[kind]['rate']:11.1f}{alone[kind]['cpu_ms']:8.1f}")
    for name, measured in rows:
        own = f"{measured['rate']:11.1f}{measured['cpu_ms']:8.1f}{measured['p50_ms']:8.1f}{measured['p99_ms']:8.1f}"
        rates = [measured["rate"] / alone[kind]["rate"] for kind in ("model", "file")]
        cpu = [alone[kind]["cpu_ms"] / measured["cpu_ms"] for kind in ("model", "file")]
        own += f"{measured['peak_mb']:8.0f}{measured['busy']:8.0%}"
        say(f"  {name:34s}{own}" + "".join(f"{share:12.2f}" for share in (*rates, *cpu)))
