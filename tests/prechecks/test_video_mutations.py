"""Damaged and malicious files in the pre-check of videos: no process, file or descriptor is left."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter

import pytest

from lightmeter.manifest.item import Item
from lightmeter.media.media_info import SNIFF_BYTES, is_video
from lightmeter.media.video.decoder_client import DecoderLimits, DecoderPool
from lightmeter.prechecks.check import Checker
from lightmeter.prechecks.video_check import check_video
from lightmeter.testing import tiny_video
from tests.media.test_video import children, open_files
from tests.service.mutations import mutations
from tests.sweeps import sweep

COUNT = int(os.environ.get("LIGHTMETER_BENCH_MUTATIONS", "1000"))
SEED = 20261123
AT_ONCE = 4
LIMITS = DecoderLimits(wall_s=30, cpu_s=10)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc")


def damaged_videos(folder, count):
    """Return paths of `count` files that begin like a video, or were one before the damage."""
    files = mutations(8 * count, SEED, folder)
    videos = [(name, content) for name, content in files if is_video(content[:SNIFF_BYTES]) or name.endswith(".mp4")]
    paths = []
    for number, (name, content) in enumerate(videos[:count]):
        path = folder / f"{number}-{name}"
        path.write_bytes(content)
        paths.append(path)
    return paths


async def survive(paths):
    """Check all files with kept decoders, some at once; return how often each severity of `decode` came."""
    outcomes, gate = Counter(), asyncio.Semaphore(AT_ONCE)

    async def check(path):
        async with gate:
            video = await check_video(path, capture_interval_s=1, max_frames=3, limits=LIMITS, pool=pool)
        (decode, *more) = video.findings
        assert decode.check == "decode"
        assert decode.message
        assert {one.check for one in more} <= {"blank", "frames", "frozen", "size"}
        assert not more or decode.severity != "error"
        outcomes[decode.severity] += 1

    async with DecoderPool(AT_ONCE) as pool:
        await asyncio.gather(*(check(path) for path in paths))
    return outcomes


async def leaves_nothing(folder, count, monkeypatch):
    """Check `count` damaged videos and return the outcomes, after a look at what is left."""
    paths = damaged_videos(folder, count)
    (folder / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder / "temporary"))
    await survive(paths[:2])
    before = open_files()
    outcomes = await survive(paths)
    assert (children(), list((folder / "temporary").iterdir())) == ([], [])
    assert open_files() <= before
    assert sum(outcomes.values()) == len(paths) == count
    return outcomes


async def test_damaged_videos_leave_nothing(tmp_path, monkeypatch):
    """Twelve damaged videos give one finding about decoding each, and leave no process, file or descriptor."""
    await leaves_nothing(tmp_path, 12, monkeypatch)


@pytest.mark.parametrize("count", [4, sweep(40)])
async def test_a_damaged_video_does_not_change_the_next(tmp_path, count):
    """A sound video has the same findings after each damaged one, with the same pool of decoders."""
    sound = tiny_video(tmp_path / "sound.avi", frames=12, fps=4)
    expected = await check_video(sound, capture_interval_s=1, max_frames=3)
    async with DecoderPool(1) as pool:
        for path in damaged_videos(tmp_path, count):
            await check_video(path, capture_interval_s=1, max_frames=3, limits=LIMITS, pool=pool)
            assert await check_video(sound, capture_interval_s=1, max_frames=3, pool=pool) == expected


@pytest.mark.sweep
async def test_a_thousand_damaged_videos_leave_nothing(tmp_path, monkeypatch):
    """The same holds for a thousand; some decode and some do not."""
    outcomes = await leaves_nothing(tmp_path, COUNT, monkeypatch)
    print(f"\n{COUNT} damaged videos: {dict(outcomes)}")  # noqa: T201 (figures for the reader)
    assert outcomes["error"] > 0 < outcomes["info"]


@pytest.mark.parametrize("count", [15, sweep(100)])
async def test_rows_with_damaged_videos_leave_nothing(tmp_path, monkeypatch, count):
    """Rows of a manifest with damaged files of all kinds give findings and no exception, and leave nothing."""
    files = mutations(count, SEED, tmp_path)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    async with Checker(capture_interval_s=1, max_frames=3) as checker:
        for number, (name, content) in enumerate(files):
            path = tmp_path / f"{number}-{name}"
            path.write_bytes(content)
            item = Item(number, f"item-{number}", name, str(path), None, {}, None, has_own_id=True)
            assert (await checker.check(item)).findings
    assert (children(), list((tmp_path / "temporary").iterdir())) == ([], [])
