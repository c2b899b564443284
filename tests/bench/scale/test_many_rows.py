"""Measures time, memory and disk per row of planning, sending and exporting, and computes them for 100 million rows.

LIGHTMETER_BENCH_SCALE_ROWS names the number of rows (1,000,000). A tenth of it is measured first: the slope between the
two is the memory per row. The stub server of tests/bench/engine answers at once, so that the toolkit is the limit.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb

from lightmeter.planning.checks.check_cache import MAX_BYTES, result_to_json
from lightmeter.prechecks.decode_check import check_image
from lightmeter.prechecks.finding import CheckResult
from lightmeter.testing import tiny_jpeg
from tests.bench.engine.test_engine import serving

ROWS = int(os.environ.get("LIGHTMETER_BENCH_SCALE_ROWS", "1000000"))
MODEL_ROWS = 100_000_000
MEMORY_GB = 16
DAY_S = 86_400
STAGES = ("plan", "run", "export")
Measured = dict[str, dict[str, float]]
say = print  # the result of the benchmark


def measured(rows: int, folder: Path) -> Measured:
    """Run all stages for `rows` rows; return stage → what it measured."""
    folder.mkdir()
    with (folder / "manifest.csv").open("w", encoding="utf-8") as file:
        file.write("url\n")
        file.writelines(f"http://pictures.example/{number}.jpg\n" for number in range(rows))
    found: Measured = {}
    with serving() as base_url:
        for stage in STAGES:
            command = [sys.executable, str(Path(__file__).with_name("stages.py")), stage, base_url, str(folder)]
            ended = subprocess.run(command, capture_output=True, text=True, check=False)
            assert ended.returncode == 0, ended.stderr[-2000:]
            found[stage] = json.loads(ended.stdout.splitlines()[-1])
    return found


def kept_check_bytes() -> int:
    """Return about how many bytes the kept pre-check result of a picture takes."""
    decoded = check_image(tiny_jpeg())
    fields: dict[str, Any] = {"perceptual_hash": decoded.perceptual_hash, "fingerprint": decoded.fingerprint}
    result = CheckResult("image", decoded.findings, 640, 480, None, "0" * 64, 10_000, **fields)
    return len(result_to_json(result)) + 40


def test_a_million_rows_and_the_model_of_a_hundred_million(tmp_path):
    """All rows of a large manifest are planned, sent and exported; figures per row and the model are printed."""
    few, many = (measured(rows, tmp_path / str(rows)) for rows in (ROWS // 10, ROWS))
    with duckdb.connect() as db:
        parts = str(tmp_path / str(ROWS) / "out" / "tables" / "assets" / "*.parquet")
        query = "SELECT count(*), count(DISTINCT item_id) FROM read_parquet(?) WHERE status = 'ok'"
        assert db.execute(query, [parts]).fetchone() == (ROWS, ROWS)
    say(f"\n\n{ROWS:,} rows; the memory per row is the slope from {ROWS // 10:,} rows")
    say(f"  {'':8s}{'us/row':>9s}{'cpu us/row':>12s}{'rows/s':>9s}{'peak MB':>9s}{'bytes of memory/row':>21s}")
    limits: list[tuple[float, str]] = []
    for stage in STAGES:
        one = many[stage]
        each_s = one["seconds"] / ROWS
        slope = max(0.0, one["peak_mb"] - few[stage]["peak_mb"]) * 2**20 / (ROWS - ROWS // 10)
        rates = f"{1e6 * each_s:9.0f}{1e6 * one['cpu_s'] / ROWS:12.0f}{1 / each_s:9.0f}"
        say(f"  {stage:8s}{rates}{one['peak_mb']:9.0f}{slope:21.0f}")
        limits.append((DAY_S / each_s, f"{stage} takes a day"))
        if slope:
            limits.append((MEMORY_GB * 2**30 / slope, f"{stage} needs {MEMORY_GB} GB of memory"))
        gigabytes = (one["peak_mb"] * 2**20 + slope * (MODEL_ROWS - ROWS)) / 2**30
        say(f"  {'':8s}{MODEL_ROWS:,} rows: {MODEL_ROWS * each_s / 3600:.1f} hours, {gigabytes:.1f} GB of memory")
    for name in ("journal_bytes", "tables_bytes"):
        each = many["export"][name] / ROWS
        say(f"  {name}: {each:.0f} a row, {MODEL_ROWS * each / 2**30:.0f} GB for {MODEL_ROWS:,} rows")
    limits.append((MAX_BYTES / kept_check_bytes(), "kept pre-check results fill their file: later rows are not kept"))
    say("what breaks first, by the number of rows:")
    for rows, what in sorted(limits):
        say(f"  {rows:15,.0f}  {what}")
    assert all(many[stage]["seconds"] > 0 for stage in STAGES)
