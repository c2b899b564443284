"""Decoding keeps its limits over all requests, and one bad asset does not fail another."""

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
from lightmeter.media.image_transforms import CenterCrop, FitWithin
from lightmeter.media.video.decoder_client import DecoderLimits
from lightmeter.service.ingest.asset_content import AssetContent
from lightmeter.service.ingest.decode import DecodingLimits, MediaDecoder
from lightmeter.testing import tiny_jpeg, tiny_picture, tiny_video
from lightmeter.wire.constants import MAX_FILE_BYTES

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc")


def decoders() -> list[int]:
    """Return the ids of the decoder processes of this process."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # threads and processes end while they are looked at
            pids = (task / "children").read_text().split()
            found += [int(pid) for pid in pids if b"decoder_process.py" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return found


WHOLE = FitWithin(1024)
TRANSFORMS = frozenset({WHOLE})


async def watched(
    decoder: MediaDecoder, path: Path, interval_s: int = 1, max_frames: int = 3, transforms=TRANSFORMS
) -> list:
    """Decode a video, and return its slices."""
    return [pictures async for pictures in decoder.decode_video(path, transforms, interval_s, max_frames)]


async def developed(decoder: MediaDecoder, content: bytes, transforms=TRANSFORMS):
    """Decode an image."""
    return await decoder.decode_image(AssetContent.from_bytes(content), transforms)


async def test_a_video_without_a_limit_is_captured_whole(tmp_path):
    """With `max_frames` 0 every capture is decoded, and `count_frames` returns their number."""
    path = tiny_video(tmp_path / "long.avi", frames=[tiny_picture(seed % 9) for seed in range(300)], fps=1)
    decoder = MediaDecoder(DecodingLimits(slice_frames=80))
    slices = await watched(decoder, path, max_frames=0)
    assert [len(pictures.pixels_by_transform[WHOLE]) for pictures in slices] == [80, 80, 80, 60]
    times = [time_s for pictures in slices for time_s in pictures.metadata.times_s]
    assert times == [float(second) for second in range(len(times))]
    assert len(times) == await decoder.count_frames(path, 1, 0) == 300
    assert {(each.metadata.kind, each.metadata.width, each.metadata.height) for each in slices} == {("video", 64, 48)}


@on_linux
async def test_no_more_decoders_than_allowed(tmp_path):
    """No more than the allowed number of processes decode at once, and every video is decoded."""
    path = tiny_video(tmp_path / "tiny.avi", frames=25)
    decoder = MediaDecoder(DecodingLimits(decoders=2, slice_frames=1))
    most = 0
    videos = asyncio.gather(*(watched(decoder, path) for _ in range(4)))
    while not videos.done():
        most = max(most, len(decoders()))
        await asyncio.sleep(0.005)
    assert 1 <= most <= 2
    assert {len(slices) for slices in await videos} == {3}
    assert decoders() == []


@on_linux
async def test_a_crashed_decoder_fails_its_own_video_only(tmp_path):
    """A decoder that crashes fails its own video only."""
    victim = tiny_video(tmp_path / "long.avi", frames=[tiny_picture(width=640, height=480)] * 700, fps=1)
    other = tiny_video(tmp_path / "tiny.avi", frames=25)
    decoder = MediaDecoder(DecodingLimits(decoders=8, slice_frames=700))
    crashing = asyncio.create_task(watched(decoder, victim, max_frames=0))
    while not (pids := decoders()):  # noqa: ASYNC110 (the kernel tells of processes in no other way)
        await asyncio.sleep(0.01)
    others = asyncio.gather(*(watched(decoder, other) for _ in range(2)))
    os.kill(pids[0], signal.SIGSEGV)
    with pytest.raises(BrokenMedia, match="SIGSEGV"):
        await crashing
    assert [len(slices[0].pixels_by_transform[WHOLE]) for slices in await others] == [3] * 2


async def test_limits_reach_the_decoder(tmp_path):
    """Each decoder process gets the configured limits."""
    path = tiny_video(tmp_path / "tiny.avi", frames=5)
    decoder = MediaDecoder(DecodingLimits(video=DecoderLimits(max_pixels=1000)))
    for looking in (decoder.count_frames(path, 1, 3), watched(decoder, path)):
        with pytest.raises(MediaTooLarge, match="64 x 48"):
            await looking


async def test_pixels_in_flight_are_limited():
    """With a pixel limit of one picture, many pictures are decoded in turn, and a larger one alone."""
    decoder = MediaDecoder(DecodingLimits(threads=2, pixels_in_flight=2 * 64 * 48))
    contents = [tiny_jpeg(seed, width=64 * size, height=48) for seed, size in enumerate([1, 3, 1, 2] * 5)]
    found = await asyncio.gather(*(developed(decoder, content) for content in contents))
    assert [pictures.metadata.width for pictures in found] == [64, 192, 64, 128] * 5


async def test_cancelled_and_broken_pictures_release_their_pixels():
    """Cancelled and broken pictures release their pixels."""
    decoder = MediaDecoder(DecodingLimits(threads=2, pixels_in_flight=64 * 48))
    good, torn = tiny_jpeg(), tiny_jpeg()[:700]
    for _ in range(5):
        waiting = [asyncio.create_task(developed(decoder, good)) for _ in range(4)]
        await asyncio.sleep(0)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        with pytest.raises(BrokenMedia):
            await developed(decoder, torn)
    assert (await developed(decoder, good)).metadata.width == 64


async def test_large_pictures_come_out_small():
    """A large picture has its original size in the result, and reduced pixels."""
    stream = BytesIO()
    Image.fromarray(np.zeros((3000, 5000, 3), np.uint8)).save(stream, "PNG")
    pictures = await developed(MediaDecoder(), stream.getvalue())
    assert (pictures.metadata.width, pictures.metadata.height) == (5000, 3000)
    assert max(pictures.pixels_by_transform[WHOLE][0].shape) == WHOLE.most_side


async def test_a_transform_does_not_depend_on_other_transforms():
    """The result of a transform does not depend on the other transforms that are applied, and is read-only."""
    square = CenterCrop(32, 0.5)
    content = tiny_jpeg(5, width=640, height=480)
    decoder = MediaDecoder()
    alone = await developed(decoder, content, frozenset({square}))
    together = await developed(decoder, content, frozenset({square, WHOLE}))
    assert set(alone.pixels_by_transform) == {square}
    assert np.array_equal(alone.pixels_by_transform[square][0], together.pixels_by_transform[square][0])
    assert not any(rgb.flags.writeable for pictures in together.pixels_by_transform.values() for rgb in pictures)


async def test_frames_are_transformed_as_requested(tmp_path):
    """Each requested transform is applied to each frame of a video, in order of time."""
    path = tiny_video(tmp_path / "tiny.avi", frames=25)
    square = CenterCrop(16)
    (pictures,) = await watched(MediaDecoder(), path, transforms=frozenset({square, WHOLE}))
    assert [rgb.shape for rgb in pictures.pixels_by_transform[square]] == [(16, 16, 3)] * len(pictures.metadata.times_s)
    assert [rgb.shape for rgb in pictures.pixels_by_transform[WHOLE]] == [(48, 64, 3)] * len(pictures.metadata.times_s)


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
async def test_unusable_content_raises_the_matching_error(content, error):
    """Content that is unknown, empty, too large or truncated raises the matching error."""
    with pytest.raises(error):
        await developed(MediaDecoder(), content)
