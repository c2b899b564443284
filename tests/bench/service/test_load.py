"""Load on services that share a PostgreSQL database, by locust: 1, 2 and 4 workers, and 4 of which one is killed.

Batches of new photographs go to one service, which also analyzes; each row of the table adds worker processes. With
fewer cores than processes, more workers cannot be faster: the table says how many cores there were. locust patches the
standard library when it is imported, and so needs a venv of its own:

    python -m venv /tmp/locust && /tmp/locust/bin/pip install locust
    LIGHTMETER_BENCH_LOCUST=/tmp/locust/bin/locust make bench BENCH=tests/bench/service/test_load.py

`LIGHTMETER_BENCH_SECONDS` (20) is the length of each row.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.postgres_server import postgres_programs, postgres_server

HERE = Path(__file__).parent
MEDIA = HERE.parents[2] / "data" / "media"
SECONDS = int(os.environ.get("LIGHTMETER_BENCH_SECONDS", "20"))
LOCUST = os.environ.get("LIGHTMETER_BENCH_LOCUST")
USERS, PICTURES, CREDITS = 8, 4, 10_000_000
KEY = "bench"
LEASE_S = 3
ROWS = {"1 worker": (1, False), "2 workers": (2, False), "4 workers": (4, False), "4, one killed": (4, True)}


def start(stack: ExitStack, database: str, *arguments: str) -> tuple[subprocess.Popen[str], str]:
    """Start a command of lightmeter on a database; return its process, and the line it prints when it is ready."""
    options = ["--database", database, "--backends", "imagenet", "--cache", "0", "--lease", str(LEASE_S)]
    process = subprocess.Popen(
        [sys.executable, "-m", "lightmeter", *arguments, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    stack.callback(process.wait)
    stack.callback(process.terminate)
    assert process.stdout is not None
    stack.callback(process.stdout.close)
    return process, process.stdout.readline().strip()


def row(database: str, folder: Path, workers: int, *, kill: bool) -> dict[str, float]:
    """Load a service with some workers; return what locust reports, and the credits charged."""
    with ExitStack() as stack:
        _, line = start(stack, database, "serve", "--port", "0", "--key", f"{KEY}={CREDITS}")
        base_url = line.removeprefix("listening on ")
        processes = [start(stack, database, "worker")[0] for _ in range(workers)]
        if kill:
            timer = threading.Timer(SECONDS / 2, processes[0].kill)
            timer.start()
            stack.callback(timer.cancel)
        own = {"LIGHTMETER_API_KEY": KEY, "LOAD_FOLDER": str(MEDIA), "LOAD_PICTURES": str(PICTURES)}
        own["LOAD_COUNT"] = str(folder / "count")
        users = ["--users", str(USERS), "--spawn-rate", str(USERS)]
        limits = [*users, "--run-time", f"{SECONDS}s", "--stop-timeout", "60"]
        command = [str(LOCUST), "--locustfile", str(HERE / "locustfile.py"), "--headless", "--only-summary", *limits]
        subprocess.run(
            [*command, "--host", base_url, "--csv", str(folder / "load")], env={**os.environ, **own}, check=True
        )
        listed = [sys.executable, "-m", "lightmeter", "keys", "list", "--json", "--database", database]
        answer = json.loads(subprocess.run(listed, check=True, capture_output=True, text=True).stdout)
    with (folder / "load_stats.csv").open(newline="", encoding="utf-8") as file:
        stats = next(line for line in csv.DictReader(file) if line["Name"] == "analysis")
    (account,) = answer["accounts"]
    return {
        "p50": float(stats["50%"]) / 1000,
        "p99": float(stats["99%"]) / 1000,
        "images": int((folder / "count").read_text()) * PICTURES,
        "rate": float(stats["Requests/s"]) * PICTURES,
        "failed": int(stats["Failure Count"]),
        "charged": CREDITS - account["credits"] - account["held"],
    }


@pytest.mark.skipif(LOCUST is None, reason="LIGHTMETER_BENCH_LOCUST does not name locust")
def test_load(tmp_path):
    """No batch fails, and what is charged is what was sent, also if a worker is killed; the table has the times."""
    programs = postgres_programs()
    if programs is None:
        pytest.skip("no PostgreSQL server is installed")
    print(f"\n{len(os.sched_getaffinity(0))} cores, {USERS} users, batches of {PICTURES}, {SECONDS} s a row")  # noqa: T201
    print(f"{'':16}{'p50 s':>8}{'p99 s':>8}{'images/s':>10}{'failed':>8}")  # noqa: T201
    with postgres_server(*programs) as new_database:
        for number, (name, (workers, kill)) in enumerate(ROWS.items()):
            folder = tmp_path / str(number)
            folder.mkdir()
            ended = row(new_database(f"load_{number}"), folder, workers, kill=kill)
            print(f"{name:16}{ended['p50']:8.2f}{ended['p99']:8.2f}{ended['rate']:10.1f}{ended['failed']:8.0f}")  # noqa: T201
            assert ended["failed"] == 0
            assert 0 <= ended["charged"] - ended["images"] <= USERS * PICTURES  # locust leaves out what ends last
