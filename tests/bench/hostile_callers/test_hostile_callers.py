"""Measures `/healthz` and the memory of the service while hostile callers push bodies, and the size of its log.

16 callers with a wrong key and 8 without credits send compressed, endless and half-sent bodies, and half-sent heads, in
a process of their own. The goal on a quiet machine: no answer of `/healthz` takes 0.5 s, and the service stays under
600 MB. Nothing is asserted about time and memory: machines differ.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

SECONDS = float(os.environ.get("LIGHTMETER_BENCH_SECONDS", "20"))
WRONG_KEY_CALLERS, NO_CREDIT_CALLERS = 16, 8
KEY = "without-credits"
PAUSE_S = 0.05
HERE = Path(__file__).parent


def health_s(port: int) -> float:
    """Return the seconds that a new connection takes to get an answer of `/healthz`."""
    begun = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/healthz")
    assert connection.getresponse().status == 200
    connection.close()
    return time.perf_counter() - begun


def memory_mb(pid: int, name: str) -> float:
    """Return a memory figure of a process: `VmRSS` now, or the peak `VmHWM`."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(status.split(f"{name}:")[1].split()[0]) / 1024


@pytest.mark.parametrize("descriptors", [1024, 256])
def test_hostile_callers(descriptors, tmp_path):
    """Every `/healthz` is answered while hostile callers push bodies; the figures are printed."""
    options = ["--port", "0", "--database", f"sqlite:///{tmp_path / 'bench.db'}", "--key", f"{KEY}=0"]
    limited = ["sh", "-c", 'ulimit -n "$0" && exec "$@"', str(descriptors)]
    command = [*limited, sys.executable, "-m", "lightmeter", "serve", *options, "--backends", "imagenet"]
    log = tmp_path / "log.txt"
    with (
        log.open("wb") as stream,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stream, text=True) as service,
    ):
        try:
            port = urlsplit(service.stdout.readline().split()[-1]).port
            before_mb = memory_mb(service.pid, "VmRSS")
            quiet = sorted(health_s(port) for _ in range(50))
            latencies, request_counts = attacked(port)
            peak_mb = memory_mb(service.pid, "VmHWM")
        finally:
            service.terminate()
    latencies.sort()
    say = print  # the bench's product
    say(f"\n{WRONG_KEY_CALLERS} callers with a wrong key, {NO_CREDIT_CALLERS} without credits, {descriptors} files")
    say(f"  requests: {request_counts}")
    say(f"  /healthz: quiet p50 {1e3 * quiet[25]:.1f} ms, max {1e3 * quiet[-1]:.1f} ms")
    say(f"  /healthz: attacked p50 {1e3 * latencies[len(latencies) // 2]:.1f} ms, max {1e3 * latencies[-1]:.0f} ms")
    say(f"  memory: {before_mb:.0f} MB before, peak {peak_mb:.0f} MB; log {log.stat().st_size / 1024:.0f} KB")


def attacked(port: int) -> tuple[list[float], dict[str, float]]:
    """Run the callers; return the latencies of `/healthz` in seconds, and the number of requests by kind."""
    numbers = [str(each) for each in (port, SECONDS, WRONG_KEY_CALLERS, NO_CREDIT_CALLERS)]
    command = [sys.executable, str(HERE / "callers.py"), *numbers, KEY]
    latencies = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as callers:
        assert callers.stdout.readline() == "ready\n"
        while callers.poll() is None:
            latencies.append(health_s(port))
            time.sleep(PAUSE_S)
        return latencies, json.loads(callers.stdout.read())
