"""A screen on the workers of a cluster chooses the rows that a screen in one process chooses."""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from pathlib import Path

import pytest

import lightmeter as lm
from lightmeter.api.screen_shards import analyze_shard
from lightmeter.journal.store import open_read_only
from lightmeter.media.image import encode_jpeg
from lightmeter.testing import tiny_picture
from tests.sweeps import sweep

PAID = {"features": ["colors"], "backends": ["palette"], "screen": "palette", "screen_rule": "colors.red >= 128"}
WITH_ALL = "colors.red > (SELECT avg(red) FROM colors)"  # compares a row with all others
PICTURES = 14


@pytest.fixture
def manifest(tmp_path) -> Path:
    """Return a manifest of bright and dark pictures in turn, of a duplicate, and of a file that is no picture."""
    for number in range(PICTURES):
        pixels = tiny_picture(number) // 3 + (0 if number % 2 else 170)
        (tmp_path / f"{number}.jpg").write_bytes(encode_jpeg(pixels, quality=90))
    (tmp_path / "broken.jpg").write_bytes(b"no picture")
    names = [*(f"{number}.jpg" for number in range(PICTURES)), "broken.jpg", "1.jpg"]
    (tmp_path / "m.csv").write_text("path\n" + "".join(f"{name}\n" for name in names))
    return tmp_path / "m.csv"


def chosen(plan: lm.Plan) -> list[tuple]:
    """Return what a plan does with each row."""
    with open_read_only(plan.folder) as db:
        rows = list(db.execute("SELECT seq, status, reason, error, duplicate_of FROM items ORDER BY seq"))
        return [*rows, *db.execute("SELECT seq, name, facts FROM findings WHERE name = 'screened' ORDER BY seq")]


async def planned(manifest: Path, tmp_path: Path, monkeypatch, where: str, **options) -> lm.Plan:
    """Return a plan that uses nothing that other plans have kept."""
    monkeypatch.setenv("LIGHTMETER_CACHE_DIR", str(tmp_path / f"cache-{where}"))
    return await lm.aio.plan(manifest, **{**PAID, **options})


def screened_run(tmp_path: Path, where: str) -> lm.Run:
    (folder,) = (tmp_path / f"cache-{where}" / "screens").iterdir()
    return lm.open(folder)


@pytest.mark.parametrize(
    "options",
    [
        {},
        sweep({"precheck": False}),
        sweep({"screen_rule": WITH_ALL, "sample": "random", "budget": 3}),
    ],
)
async def test_a_cluster_chooses_the_rows_that_one_process_chooses(manifest, tmp_path, dask, monkeypatch, options):
    """Status, reason and sample of each row are the same, and the workers have analyzed all sound rows."""
    here = await planned(manifest, tmp_path, monkeypatch, "here", **options)
    cluster = {"executor": dask, "shard_rows": 4, "shard_dir": tmp_path / "shared"}
    there = await planned(manifest, tmp_path, monkeypatch, "there", **options, **cluster)
    assert chosen(there) == chosen(here)
    assert (there.screen, there.credits, there.counts) == (here.screen, here.credits, here.counts)
    assert there.screen.rejected == PICTURES // 2
    assert not [path for path in (tmp_path / "shared").rglob("*") if path.is_file()]
    screen = screened_run(tmp_path, "there")
    assert screen.summary().requests == (1 if options.get("precheck") is False else 0)
    assert (
        screen.sql("SELECT count(DISTINCT item_id) FROM colors").to_numpy().item() == PICTURES + 1
    )  # and the duplicate


@pytest.mark.sweep
async def test_videos_that_are_sent_as_frames_are_screened_on_a_cluster(tmp_path, dask, monkeypatch):
    """The frames of a video are in one shard, and their answers decide about the video."""
    videos = sorted((Path(__file__).parents[2] / "data").rglob("*.mp4"))[:2]
    assert videos
    (tmp_path / "m.csv").write_text("path\n" + "".join(f"{path}\n" for path in videos))
    options = {"video": "frames", "screen_rule": "colors.red >= 0"}
    here = await planned(tmp_path / "m.csv", tmp_path, monkeypatch, "here", **options)
    there = await planned(tmp_path / "m.csv", tmp_path, monkeypatch, "there", **options, executor=dask, shard_rows=1)
    assert chosen(there) == chosen(here)
    assert screened_run(tmp_path, "there").summary().requests == 0


@pytest.mark.sweep
async def test_a_killed_worker_changes_no_decision(manifest, tmp_path, dask, monkeypatch):
    """The shard of a worker that dies is analyzed by another one."""
    here = await planned(manifest, tmp_path, monkeypatch, "here")
    killing = partial(kill_once, tmp_path / "killed")
    monkeypatch.setattr("lightmeter.api.screen_shards.analyze_shard", killing)
    there = await planned(manifest, tmp_path, monkeypatch, "there", executor=dask, shard_rows=4)
    assert (tmp_path / "killed").exists()
    assert chosen(there) == chosen(here)


@pytest.mark.sweep
async def test_a_stopped_screen_keeps_the_answers_of_finished_shards(manifest, tmp_path, dask, monkeypatch):
    """The next plan analyzes only the rows that no finished shard has, also without a cluster."""
    failing = partial(fail_after_first_shard, tmp_path / "first_done")
    monkeypatch.setattr("lightmeter.api.screen_shards.analyze_shard", failing)
    with pytest.raises(ValueError, match="stopped"):
        await planned(manifest, tmp_path, monkeypatch, "there", executor=dask, shard_rows=4)
    assert screened_run(tmp_path, "there").summary().counts["ok"] >= 4
    plan = await planned(manifest, tmp_path, monkeypatch, "there", batch_size=1)
    assert plan.screen.rejected == PICTURES // 2
    assert screened_run(tmp_path, "there").summary().requests <= PICTURES - 4


def kill_once(mark: Path, shard):
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return analyze_shard(shard)


def fail_after_first_shard(first_done: Path, shard):
    if shard.name == "0" * 12:
        analyzed = analyze_shard(shard)
        first_done.touch()
        return analyzed
    deadline = time.monotonic() + 120
    while not first_done.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(2)  # so that the result of the first shard arrives before this error
    raise ValueError("stopped")
