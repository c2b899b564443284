"""Decoding stays within its bounds, over all requests, and one bad asset harms no other."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lightmeter.errors import BrokenMedia, MediaTooLarge, UnsupportedMedia
from lightmeter.media.facts import SNIFF_BYTES
from lightmeter.media.video import DecoderLimits
from lightmeter.models.vocabulary import MAX_FILE_BYTES
from lightmeter.service.assets.darkroom import MOST_SIDE, Darkroom, DecodingLimits
from lightmeter.testing import tiny_jpeg, tiny_picture, tiny_video

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc")


def decoders() -> list[int]:
    """Processes of ours that decode."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # threads and processes end while they are looked at
            pids = (task / "children").read_text().split()
            found += [int(pid) for pid in pids if b"decoder.py" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return found


def written(folder: Path, content: bytes) -> Path:
    """A file with this content."""
    path = folder / f"asset-{len(list(folder.iterdir()))}"
    path.write_bytes(content)
    return path


async def developed(darkroom: Darkroom, path: Path, interval_s: int = 1, max_frames: int = 3) -> list:
    """All that comes of a file."""
    with path.open("rb") as file:
        head = file.read(SNIFF_BYTES)
    return [pictures async for pictures in darkroom.pictures(path, head, interval_s, max_frames)]


async def test_a_video_without_a_limit_is_captured_whole(tmp_path):
    """`max_frames` 0 is every capture, in slices, and counted alike before."""
    path = tiny_video(tmp_path / "long.avi", frames=[tiny_picture(seed % 9) for seed in range(1500)], fps=1)
    darkroom = Darkroom(DecodingLimits(slice_frames=400))
    slices = await developed(darkroom, path, max_frames=0)
    assert [len(pictures.rgb) for pictures in slices] == [400, 400, 400, 301]
    times = [time_s for pictures in slices for time_s in pictures.times_s]
    assert times == [float(second) for second in range(len(times))]
    assert len(times) == await darkroom.frames_of(path, 1, 0) == 1501
    assert {(pictures.kind, pictures.width, pictures.height) for pictures in slices} == {("video", 64, 48)}


@on_linux
async def test_no_more_decoders_than_allowed(tmp_path):
    """However many videos come at once, so many processes decode; and all are answered."""
    path = tiny_video(tmp_path / "tiny.avi", frames=25)
    darkroom = Darkroom(DecodingLimits(decoders=2, slice_frames=1))
    most = 0
    videos = asyncio.gather(*(developed(darkroom, path) for _ in range(6)))
    while not videos.done():
        most = max(most, len(decoders()))
        await asyncio.sleep(0.005)
    assert 1 <= most <= 2
    assert {len(slices) for slices in await videos} == {3}
    assert decoders() == []


@on_linux
async def test_a_crashed_decoder_harms_no_other(tmp_path):
    """One that is ended by a broken file is that file's error alone."""
    victim = tiny_video(tmp_path / "long.avi", frames=[tiny_picture(width=640, height=480)] * 1500, fps=1)
    other = tiny_video(tmp_path / "tiny.avi", frames=25)
    darkroom = Darkroom(DecodingLimits(decoders=8, slice_frames=1500))
    crashing = asyncio.create_task(developed(darkroom, victim, max_frames=0))
    while not (pids := decoders()):  # noqa: ASYNC110 (the kernel tells of processes in no other way)
        await asyncio.sleep(0.01)
    others = asyncio.gather(*(developed(darkroom, other) for _ in range(4)))
    os.kill(pids[0], signal.SIGSEGV)
    with pytest.raises(BrokenMedia, match="SIGSEGV"):
        await crashing
    assert [len(slices[0].rgb) for slices in await others] == [3] * 4


async def test_limits_reach_the_decoder(tmp_path):
    """What the configuration allows is what each decoder gets."""
    path = tiny_video(tmp_path / "tiny.avi", frames=5)
    darkroom = Darkroom(DecodingLimits(video=DecoderLimits(max_pixels=1000)))
    for looking in (darkroom.frames_of(path, 1, 3), developed(darkroom, path)):
        with pytest.raises(MediaTooLarge, match="64 x 48"):
            await looking


async def test_pictures_wait_for_room(tmp_path):
    """Pixels in flight are bounded: with room for one, many still get their turn, and a larger one goes alone."""
    darkroom = Darkroom(DecodingLimits(pixels_in_flight=64 * 48))
    paths = [
        written(tmp_path, tiny_jpeg(seed, width=64 * size, height=48)) for seed, size in enumerate([1, 3, 1, 2] * 5)
    ]
    found = await asyncio.gather(*(developed(darkroom, path) for path in paths))
    assert [pictures[0].width for pictures in found] == [64, 192, 64, 128] * 5


async def test_room_is_given_back_by_whoever_leaves(tmp_path):
    """Cancelled and broken pictures keep no room: what comes after them is decoded."""
    darkroom = Darkroom(DecodingLimits(pixels_in_flight=64 * 48))
    good, torn = written(tmp_path, tiny_jpeg()), written(tmp_path, tiny_jpeg()[:700])
    for _ in range(5):
        waiting = [asyncio.create_task(developed(darkroom, good)) for _ in range(4)]
        await asyncio.sleep(0)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        with pytest.raises(BrokenMedia):
            await developed(darkroom, torn)
    assert len(await developed(darkroom, good)) == 1


async def test_large_pictures_come_out_small(tmp_path):
    """Measured as they are, decoded to what back ends use."""
    stream = BytesIO()
    Image.fromarray(np.zeros((3000, 5000, 3), np.uint8)).save(stream, "PNG")
    (pictures,) = await developed(Darkroom(), written(tmp_path, stream.getvalue()))
    assert (pictures.width, pictures.height) == (5000, 3000)
    assert max(pictures.rgb[0].shape) == MOST_SIDE


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"%PDF-1.7", UnsupportedMedia),
        (b"", UnsupportedMedia),
        (tiny_jpeg() + b"\0" * MAX_FILE_BYTES, MediaTooLarge),
        (tiny_jpeg()[:50], BrokenMedia),
    ],
    ids=["pdf", "empty", "large", "torn"],
)
async def test_what_cannot_be_used_says_why(tmp_path, content, error):
    """Unknown, empty, too large, torn."""
    with pytest.raises(error):
        await developed(Darkroom(), written(tmp_path, content))
