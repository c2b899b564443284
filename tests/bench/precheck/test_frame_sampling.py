"""Sampling of ten frames of a video: lightmeter against OpenCV, PyAV and decord alone.

Each contender returns ten evenly spaced frames, shrunk to a longest side of 256 pixels, with one thread. PyAV is left
out where it is not installed. The start of our child process is what it takes for a video of one frame. The pre-checks
keep the process, so the others are means of `VIDEOS` videos, ours with one start. All figures are processor time, of
child processes too, so that a busy machine changes them little. All run on one core, as if the others were busy with
other videos: threads that move between cores take up to a tenth more.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import resource
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from lightmeter.media.video.decoder_client import DecoderLimits, DecoderPool, decoder_session
from lightmeter.testing import tiny_picture, tiny_video
from tests.media.odd_videos import ENCODINGS, MEDIA, encoded_video, ffmpeg, needs_ffmpeg

COUNT = 10
SIDE = 256
ROUNDS = 5
VIDEOS = 8
START, OURS_ONCE, OURS = "start of our process", "ours, 1 video with start", f"ours, {VIDEOS} videos, 1 start"
GOAL = 1.1
"""How much longer ours may take than the fastest contender, without the start of its child process."""

pytestmark = needs_ffmpeg


def cpu_s() -> float:
    """Return the processor time of this process and its ended children, in seconds."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def shrunk(rgb: np.ndarray) -> np.ndarray:
    """Return a frame with a longest side of at most `SIDE` pixels, as ours returns it."""
    picture = Image.fromarray(rgb)
    picture.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
    return np.asarray(picture)


def with_opencv(path: Path, times: list[float]) -> list[np.ndarray]:
    """Sample with `cv2.VideoCapture`, whose seeks are by index."""
    video = cv2.VideoCapture(str(path), cv2.CAP_FFMPEG, [cv2.CAP_PROP_N_THREADS, 1])
    fps, frames = video.get(cv2.CAP_PROP_FPS), []
    for time_s in times:
        video.set(cv2.CAP_PROP_POS_FRAMES, int(time_s * fps + 0.001))
        read, bgr = video.read()
        if not read:
            raise ValueError("not read")
        frames.append(shrunk(cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB)))
    return frames


def with_pyav(path: Path, times: list[float]) -> list[np.ndarray]:
    """Sample with PyAV: seek to the key frame before, then decode up to the frame that is shown at the time."""
    import av  # noqa: PLC0415 (may be missing)

    frames = []
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        stream.codec_context.thread_count = 1
        for time_s in times:
            container.seek(int(time_s / stream.time_base), stream=stream, backward=True)
            frame_shown = None
            for frame in container.decode(stream):
                if frame_shown is not None and frame.time is not None and frame.time > time_s + 0.001:
                    break
                frame_shown = frame
            if frame_shown is None:
                raise ValueError("not read")
            frames.append(shrunk(frame_shown.to_ndarray(format="rgb24")))
    return frames


def with_decord(path: Path, times: list[float]) -> list[np.ndarray]:
    """Sample with decord in this process."""
    sys.modules.setdefault("nvidia", None)
    import decord  # noqa: PLC0415 (loads FFmpeg)

    decord.logging.set_level(decord.logging.FATAL)
    reader = decord.VideoReader(str(path), num_threads=1)
    fps = reader.get_avg_fps()
    indices = [min(int(time_s * fps + 0.001), len(reader) - 1) for time_s in times]
    return [shrunk(reader[index].asnumpy()) for index in indices]


CONTENDERS = {"OpenCV": with_opencv, "PyAV": with_pyav, "decord": with_decord}
if importlib.util.find_spec("av") is None:
    del CONTENDERS["PyAV"]


@pytest.fixture
def one_core():
    """The test and its child processes use one processor core."""
    if not hasattr(os, "sched_setaffinity"):
        yield  # macOS and Windows have no such setting
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    yield
    os.sched_setaffinity(0, before)


async def ours(path: Path, times: list[float], videos: int = 1) -> float:
    """Sample with lightmeter's child process; return the processor time in seconds, the mean of `videos` videos."""
    began = cpu_s()
    async with DecoderPool(1) as pool:
        for _ in range(videos):
            async with decoder_session(path, DecoderLimits(), pool) as decoder:
                assert len(await decoder.frames(times, SIDE)) == len(times)
    return (cpu_s() - began) / videos


@pytest.mark.usefixtures("one_core")
@pytest.mark.parametrize("name", ["bunny.mp4", "long.mp4"])
def test_sampling_ten_frames(tmp_path, name):
    """Ours takes at most `GOAL` times as long as the fastest contender, without the start of its process."""
    path = MEDIA / name
    if name == "long.mp4":
        loop = ("-stream_loop", "7", "-i", str(MEDIA / "city.mp4"), "-an")
        path = ffmpeg(tmp_path / name, *loop, "-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p")
    length_s = 60.0 if name == "long.mp4" else 5.0
    times = [n * length_s / COUNT for n in range(COUNT)]
    durations: dict[str, list[float]] = {label: [] for label in (*CONTENDERS, START, OURS_ONCE, OURS)}
    one_frame = tiny_video(tmp_path / "one.avi", frames=[tiny_picture(width=2 * SIDE, height=SIDE)])
    for _ in range(ROUNDS):  # in turns, so that a busy machine slows all of them
        for label, sample in CONTENDERS.items():
            began = cpu_s()
            for _ in range(VIDEOS):
                assert len(sample(path, times)) == COUNT
            durations[label].append((cpu_s() - began) / VIDEOS)
        durations[START].append(asyncio.run(ours(one_frame, [0.0])))
        durations[OURS_ONCE].append(asyncio.run(ours(path, times)))
        durations[OURS].append(asyncio.run(ours(path, times, VIDEOS)))
    best = {label: min(seconds) for label, seconds in durations.items()}
    lines = [f"{label:24} {1000 * seconds:7.0f} ms" for label, seconds in best.items()]
    fastest = min(best[label] for label in CONTENDERS)
    without_start = (best[OURS] - best[START] / VIDEOS) / fastest
    lines.append(f"ours / fastest: {best[OURS] / fastest:.2f}, without the start {without_start:.2f}")
    print("\n".join(["", name, *lines]))  # noqa: T201 (a benchmark is run to be read)
    assert without_start <= GOAL


def test_what_each_decoder_refuses(tmp_path):
    """No contender reads a video of the service's containers that ours refuses."""
    refused: dict[str, list[str]] = {label: [] for label in (*CONTENDERS, "ours")}
    for name in ENCODINGS:
        path = encoded_video(tmp_path, name, seconds=2)
        for label, sample in CONTENDERS.items():
            try:
                sample(path, [0.0, 1.0])
            except Exception:  # noqa: BLE001 (each library raises its own)
                refused[label].append(name)
        try:
            asyncio.run(ours(path, [0.0, 1.0]))
        except Exception:  # noqa: BLE001
            refused["ours"].append(name)
    print(f"\nrefused of {len(ENCODINGS)}: {refused}")  # noqa: T201 (a benchmark is run to be read)
    assert all(name.endswith(".ts") for name in refused["ours"])
