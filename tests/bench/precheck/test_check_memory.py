"""Memory of `check` over the length of the manifest: small images, each length in a process of its own.

`LIGHTMETER_BENCH_ROWS` (1000,10000,50000) names the lengths.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.bench.precheck import fetch_contenders
from tests.bench.precheck.media_server import media_server, write_photographs
from tests.bench.precheck.processes import measure_process
from tests.bench.precheck.test_images_per_second import OURS, sources
from tests.bench.quality.quality_data import show, table

ROWS = tuple(int(rows) for rows in os.environ.get("LIGHTMETER_BENCH_ROWS", "1000,10000,50000").split(","))
SIDES = (40, 64)


def test_memory_over_the_length_of_the_manifest(tmp_path):
    """All rows are checked; the table says how much memory that took."""
    photographs = tmp_path / "photographs"
    photographs.mkdir()
    write_photographs(sources(), photographs, SIDES)
    lines = []
    with media_server(photographs) as base:
        for count in ROWS:
            urls = tmp_path / f"{count}.txt"
            urls.write_text("".join(f"{base}/photos/{number}.jpg\n" for number in range(count)))
            command = [sys.executable, str(Path(fetch_contenders.__file__)), OURS, str(urls)]
            cache = str(tmp_path / f"cache-{count}")
            found = measure_process(command, {"LIGHTMETER_CACHE_DIR": cache, "LIGHTMETER_SETTINGS": "/dev/null"})
            assert found.output == str(count)
            lines.append([f"{count:,}", f"{found.peak_mb:.0f} MiB", f"{found.cpu_s:.1f} s", f"{found.wall_s:.1f} s"])
    show(table("Memory of `check`", ["rows", "greatest memory", "processor time", "elapsed"], lines))
