"""Benchmarks what Prefect adds to a run: the flow `analyze` against `lightmeter run` on the same rows.

The service allows 50 requests a second, as a paid one would. The flow is measured with few shards and with one for each
row. Prefect's server runs already, as it does every night. Times are of whole processes, with all imports; the time in
the flow is printed beside them. They are printed, not asserted, as they depend on the machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.bench.engine.test_engine import serving
from tests.e2e.prefect_server import prefect_server

ROOT = Path(__file__).resolve().parents[3]
ROWS = int(os.environ.get("LIGHTMETER_BENCH_FLOW_ROWS", "6000"))
RATE = 50
say = print  # the result of the benchmark

FLOW = """
import asyncio, sys, time
sys.path.insert(0, sys.argv[1])
from analyze import analyze
options = {"features": ["tags"], "backends": ["clarifai"], "precheck": False, "batch_size": 1, "budget": 10**6}
options["base_url"] = sys.argv[5]
began, cpu_s = time.perf_counter(), time.process_time()
asyncio.run(analyze(*sys.argv[2:4], options, shard_rows=int(sys.argv[4]), report=False))
print(time.perf_counter() - began, time.process_time() - cpu_s)
"""


def timed(command: list[str], environment: dict[str, str]) -> tuple[float, str]:
    """Run a command; return its seconds and the last line of its output."""
    began = time.perf_counter()
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=ROOT)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return time.perf_counter() - began, ended.stdout.splitlines()[-1]


@pytest.mark.slow
def test_orchestration_share(environment, tmp_path):
    """The flow adds little to the time of a run, even with thousands of shards, and sends each row once."""
    manifest = tmp_path / "manifest.txt"
    manifest.write_text("\n".join(f"http://pictures.example/{number}.jpg" for number in range(ROWS)))
    own = {**environment, "LIGHTMETER_API_KEY": "key", "LIGHTMETER_CHARGES_FINAL_S": "0"}
    with prefect_server(own, tmp_path) as server:
        environment = {**server.environment, "PREFECT_LOGGING_LEVEL": "WARNING"}
        with serving("--rate", str(RATE)) as url:
            options = "--features tags --backends clarifai --no-precheck --batch-size 1 --budget 1000000 --yes --json"
            run = [sys.executable, "-m", "lightmeter", "run", str(manifest), "--base-url", url, *options.split()]
            plain_s, _ = timed([*run, "--out", str(tmp_path / "plain")], environment)
        say(f"lightmeter run: {plain_s:.1f} s for {ROWS} rows")
        for shard_rows in (ROWS // 10, 1):
            out = tmp_path / f"flow{shard_rows}"
            with serving("--rate", str(RATE)) as url:
                flow = [sys.executable, "-c", FLOW, str(ROOT / "flows"), str(manifest), str(out), str(shard_rows), url]
                whole_s, inside = timed(flow, environment)
            inside_s, cpu_s = map(float, inside.split())
            shares = [f"{100 * (seconds - plain_s) / plain_s:+.1f} %" for seconds in (whole_s, inside_s)]
            say(f"flow with {-(-ROWS // shard_rows)} shards: {whole_s:.1f} s, {shares[0]}")
            say(f"  without the import of Prefect: {inside_s:.1f} s, {shares[1]}; {cpu_s:.1f} s of processor time")
