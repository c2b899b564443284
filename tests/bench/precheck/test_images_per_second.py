"""Images per second per core of the whole pre-check, beside img2dataset and bare loops of fetch and decode.

Every contender gets the same URLs, each in a process of its own; the server's process is not counted. The first turn
is one URL: what it takes is the start. img2dataset needs older packages than lightmeter and so a venv of its own:

    python -m venv /tmp/img2dataset && /tmp/img2dataset/bin/pip install img2dataset
    LIGHTMETER_BENCH_IMG2DATASET=/tmp/img2dataset/bin/img2dataset make bench BENCH=tests/bench/precheck

`LIGHTMETER_BENCH_URLS` (2000) is the number of URLs, `LIGHTMETER_BENCH_ROUNDS` (1) the number of turns.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.bench.precheck import fetch_contenders
from tests.bench.precheck.media_server import media_server, write_photographs
from tests.bench.precheck.processes import Measured, measure_process
from tests.bench.quality.quality_data import show, table

SAMPLES = Path(__file__).parents[3] / "data" / "media"
URLS = int(os.environ.get("LIGHTMETER_BENCH_URLS", "2000"))
ROUNDS = int(os.environ.get("LIGHTMETER_BENCH_ROUNDS", "1"))
IMG2DATASET = os.environ.get("LIGHTMETER_BENCH_IMG2DATASET") or shutil.which("img2dataset")
OURS = "lightmeter check"
SIDES = (300, 1500)
LEAST_BYTES = 20_000
THREADS = 64


def sources() -> list[Path]:
    """Return the files of photographs: the samples, and scikit-image's where it is installed."""
    folders = [SAMPLES]
    if (found := importlib.util.find_spec("skimage")) is not None:
        folders += [Path(place) / "data" for place in found.submodule_search_locations or ()]
    paths = (path for folder in folders for path in sorted(folder.iterdir()))
    return [path for path in paths if path.suffix in {".jpg", ".png"} and path.stat().st_size > LEAST_BYTES]


def commands(urls: Path, folder: Path) -> dict[str, list[str]]:
    """Return the command of each contender."""
    script = str(Path(fetch_contenders.__file__))
    found = {name: [sys.executable, script, name, str(urls)] for name in fetch_contenders.CONTENDERS}
    if importlib.util.find_spec("requests") is None:
        del found["requests + OpenCV"]
    if IMG2DATASET:
        usual = ["--processes_count", "1", "--thread_count", str(THREADS)]
        base = [IMG2DATASET, "--url_list", str(urls), "--output_folder", str(folder / "stored"), *usual]
        found["img2dataset, no resize"] = [*base, "--resize_mode", "no"]
        found["img2dataset, 256 px"] = [*base, "--resize_mode", "keep_ratio", "--image_size", "256"]
    return found


def measured(name: str, urls: Path, folder: Path, count: int) -> Measured:
    """Run one contender with empty folders; check that it decoded all images."""
    for used in ("cache", "stored"):
        shutil.rmtree(folder / used, ignore_errors=True)
    environment = {
        "LIGHTMETER_CACHE_DIR": str(folder / "cache"),
        "LIGHTMETER_SETTINGS": "/dev/null",
        "NO_ALBUMENTATIONS_UPDATE": "1",
    }
    result = measure_process(commands(urls, folder)[name], environment)
    decoded = len(list((folder / "stored").rglob("*.jpg"))) if "img2dataset" in name else result.output
    assert result.exit_code == 0, f"{name}: {result.output}"
    assert int(decoded) == count, f"{name} decoded {decoded} of {count}"
    return result


@pytest.mark.skipif(URLS < 2, reason="the start is told from the images by their number")
def test_images_per_second_per_core(tmp_path):
    """All contenders decode all images; the table says how many they do in a second of processor time."""
    photographs = tmp_path / "photographs"
    photographs.mkdir()
    write_photographs(sources(), photographs, SIDES)
    one, all_urls = tmp_path / "one.txt", tmp_path / "urls.txt"
    best: dict[tuple[str, int], Measured] = {}
    with media_server(photographs) as base:
        for path, count in ((one, 1), (all_urls, URLS)):
            path.write_text("".join(f"{base}/photos/{number}.jpg\n" for number in range(count)))
        for _ in range(ROUNDS):  # in turns, so that a busy machine slows all of them
            for name in commands(all_urls, tmp_path):
                for path, count in ((one, 1), (all_urls, URLS)):
                    found = measured(name, path, tmp_path, count)
                    known = best.get((name, count))
                    best[name, count] = found if known is None or found.cpu_s < known.cpu_s else known
    rows, ours = [], best[OURS, URLS].cpu_s
    for name in commands(all_urls, tmp_path):
        start, whole = best[name, 1], best[name, URLS]
        per_core, without = URLS / whole.cpu_s, (URLS - 1) / max(whole.cpu_s - start.cpu_s, 1e-3)
        cells = (f"{per_core:.0f}", f"{without:.0f}", f"{start.cpu_s:.1f} s", f"{URLS / whole.wall_s:.0f}")
        rows.append([name, *cells, f"{whole.peak_mb:.0f} MiB", f"{whole.cpu_s / ours:.2f}"])
    head = ["", "images/s/core", "without the start", "start", "images/s", "memory", "processor time / ours"]
    show(table(f"{URLS} photographs of {SIDES[0]} to {SIDES[1]} pixels, best of {ROUNDS}", head, rows))
    if not IMG2DATASET:
        show("img2dataset is not installed; the docstring of this file says how.")
