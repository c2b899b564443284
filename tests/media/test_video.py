"""Videos decoded in a child process that can be killed."""

import asyncio
import os
import signal
import struct
import sys
from contextlib import suppress
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from lightmeter.errors import BrokenMedia, MediaTimeout, MediaTooLarge, UnsupportedMedia
from lightmeter.media.media_info import VideoInfo
from lightmeter.media.video.decoder_client import DecoderLimits, DecoderPool, decoder_session
from lightmeter.media.video.sample_video import iter_video, read_video_info, sample_video
from lightmeter.testing import stamped_video, tiny_jpeg, tiny_picture, tiny_video
from tests.sweeps import sweep

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc")


def open_files():
    return len(list(Path("/proc/self/fd").iterdir()))


def descendants(pid):
    """Return the process ids of the living children of a process, and of their children."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # threads and processes end while they are looked at
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *descendants(child)]
    return found


def children():
    """Return the process ids of our decoders and of their forks; other tests may have other children."""
    found = []
    for pid in descendants("self"):
        with suppress(OSError):
            found += [pid] if b"decoder_process.py" in Path(f"/proc/{pid}/cmdline").read_bytes() else []
    return found


async def started_child():
    for _ in range(1000):
        if pids := children():
            return pids[0]
        await asyncio.sleep(0.01)
    pytest.fail("no decoder was started")


@pytest.fixture
def video(tmp_path):
    return tiny_video(tmp_path / "tiny.avi", frames=23, fps=10)


@pytest.fixture(scope="module")
def long_video(tmp_path_factory):
    return tiny_video(
        tmp_path_factory.mktemp("long") / "long.avi", frames=[tiny_picture(width=640, height=480)] * 1500, fps=1
    )


async def test_a_video_is_measured(video):
    """Size, length, rate and frame count are those of the encoder."""
    facts = await read_video_info(video)
    assert facts == VideoInfo(64, 48, 2.3, 10.0, 23, video.stat().st_size)


async def test_frames_come_from_the_times_asked(video):
    """A frame is captured at 0 s and at each interval, as it is shown at that time."""
    facts, frames = await sample_video(video, interval_s=1, max_frames=0)
    assert facts.frame_count == 23
    assert [(frame.index, frame.time_s) for frame in frames] == [(0, 0.0), (10, 1.0), (20, 2.0)]
    for frame in frames:
        assert np.abs(frame.rgb.astype(int) - tiny_picture(frame.index)).mean() < 3


async def test_no_more_frames_than_asked(video):
    """At most `max_frames` frames are decoded."""
    _, frames = await sample_video(video, interval_s=1, max_frames=2)
    assert [frame.index for frame in frames] == [0, 10]


async def test_a_wrong_interval_is_not_blamed_on_the_video(video):
    """An interval of 0 seconds raises ValueError."""
    with pytest.raises(ValueError, match="no sampling"):
        await sample_video(video, interval_s=0, max_frames=3)


async def test_frames_can_be_shrunk(video):
    """`max_side` bounds the longer side of frames and keeps their proportions; the measures are those of the video."""
    facts, frames = await sample_video(video, interval_s=1, max_frames=1, max_side=32)
    assert frames[0].rgb.shape == (24, 32, 3)
    assert (facts.width, facts.height) == (64, 48)


async def test_a_name_that_reads_like_a_protocol_is_a_file(tmp_path, monkeypatch):
    """The decoder gets an absolute path, so a name such as `concat:` is not a protocol."""
    monkeypatch.chdir(tmp_path)
    tiny_video(Path("concat:a|b.avi"), frames=3)
    assert (await read_video_info(Path("concat:a|b.avi"))).frame_count == 3


@pytest.mark.parametrize(
    ("content", "error", "words"),
    [
        (b"", BrokenMedia, "empty"),
        (b"#EXTM3U\n#EXTINF:1,\nfile:///etc/hostname\n", UnsupportedMedia, "known format"),
        (b"ffconcat version 1.0\nfile /etc/hostname\n", UnsupportedMedia, "known format"),
        (tiny_jpeg(), UnsupportedMedia, "picture"),
        (b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom" + b"\0" * 100, BrokenMedia, "moov atom not found"),
        (b"\x1a\x45\xdf\xa3" + b"\xff" * 60, BrokenMedia, "does not decode"),
    ],
)
async def test_what_is_no_video_is_refused_with_the_reason(tmp_path, content, error, words):
    """Empty files, playlists, pictures and damaged containers raise their own error."""
    path = tmp_path / "clip.mp4"
    path.write_bytes(content)
    with pytest.raises(error, match=words) as caught:
        await read_video_info(path)
    assert str(tmp_path) not in str(caught.value)


async def test_a_missing_file_is_broken(tmp_path):
    """A missing file raises BrokenMedia."""
    with pytest.raises(BrokenMedia, match="No such file"):
        await read_video_info(tmp_path / "none.mp4")


async def test_a_cut_off_video_gives_what_is_there(video):
    """A truncated AVI is a shorter video."""
    video.write_bytes(video.read_bytes()[:9000])
    facts = await read_video_info(video)
    assert 5 < facts.frame_count < 20


async def test_frames_that_do_not_decode_are_broken(video):
    """A video with damaged frames raises BrokenMedia."""
    content = bytearray(video.read_bytes())
    for position in range(1500, len(content) - 800, 37):
        content[position] ^= 0x5A
    video.write_bytes(content)
    with pytest.raises(BrokenMedia):
        await sample_video(video, interval_s=1, max_frames=0)


async def test_a_video_without_frames_is_broken(video):
    """A container without frames raises BrokenMedia."""
    content = video.read_bytes()
    header = content[: content.index(b"movi") + 4]
    size = struct.pack("<I", len(header) - 8)
    video.write_bytes(b"RIFF" + size + header[8:-8] + struct.pack("<I", 4) + b"movi")
    with pytest.raises(BrokenMedia):
        await read_video_info(video)


@pytest.mark.parametrize(
    ("limits", "error"),
    [
        (DecoderLimits(wall_s=0.001), MediaTimeout),
        (DecoderLimits(memory_bytes=80 * 1024**2), MediaTooLarge),
        (DecoderLimits(max_pixels=1000), MediaTooLarge),
        (DecoderLimits(result_bytes=10_000), MediaTooLarge),
    ],
)
async def test_each_limit_holds(video, limits, error):
    """Each limit (time, memory, pixels, result size) raises its own error."""
    with pytest.raises(error):
        await sample_video(video, interval_s=1, max_frames=0, limits=limits)


async def test_a_decoder_that_computes_for_ever_is_ended(long_video):
    """The kernel bounds the CPU time of the decoder."""
    with pytest.raises(MediaTimeout, match="processor time"):
        await sample_video(long_video, interval_s=1, max_frames=0, limits=DecoderLimits(cpu_s=1))


@on_linux
async def test_cancelling_leaves_no_process_and_no_open_file(long_video):
    """Cancellation kills the decoder, reaps it and closes its pipes."""
    await read_video_info(long_video)  # what the first subprocess of a loop opens once, is open now
    before = open_files()
    task = asyncio.create_task(sample_video(long_video, interval_s=1, max_frames=0))
    await started_child()
    await asyncio.sleep(0.2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert children() == []
    assert open_files() == before


@on_linux
async def test_a_stopped_decoder_is_ended_at_the_deadline(long_video):
    """A decoder that hangs without CPU time is killed, and MediaTimeout is raised."""
    task = asyncio.create_task(sample_video(long_video, interval_s=1, max_frames=0, limits=DecoderLimits(wall_s=1.0)))
    # SIGSTOP: no handler and no thread of the child and its fork runs any more
    os.killpg(await started_child(), signal.SIGSTOP)
    with pytest.raises(MediaTimeout, match="did not finish"):
        await task
    assert children() == []


async def decoded(path, pool, limits=DecoderLimits()):  # noqa: B008 (a frozen value)
    """Return the length of a video and its first frame, decoded by a process of the pool."""
    async with decoder_session(path, limits, pool) as decoder:
        (frame,) = await decoder.frames([0.0], None)
        return decoder.info.duration_s, frame.rgb.tobytes()


@on_linux
async def test_a_kept_decoder_decodes_the_next_video(tmp_path, video):
    """One process decodes one video after another, each in a fork, and ends with the pool."""
    videos = [video, *(tiny_video(tmp_path / f"{count}.avi", frames=count) for count in (1, 5))]
    alone = [await decoded(path, None) for path in videos]
    before, found, pids = open_files(), [], set()
    async with DecoderPool(1) as pool:
        for path in videos * 3:
            found.append(await decoded(path, pool))
            pids |= set(children())
    assert found == alone * 3
    assert len(pids) == 1
    assert (children(), open_files()) == ([], before)


@on_linux
@pytest.mark.parametrize("end", [signal.SIGSEGV, signal.SIGSTOP, sweep(signal.SIGKILL)])
async def test_a_fault_ends_a_kept_decoder(video, end):
    """A decoder that crashes or hangs costs its own video; the next video has another process."""
    async with DecoderPool(2) as pool:
        expected = await decoded(video, pool)
        (first,) = children()

        async def decode_with_a_fault():
            async with decoder_session(video, DecoderLimits(wall_s=2), pool) as decoder:
                (fork,) = set(children()) - {first}
                os.kill(fork, end)
                await decoder.frames([0.0, 1.0], None)

        with pytest.raises((BrokenMedia, MediaTimeout)):
            await decode_with_a_fault()
        assert children() == []
        assert await decoded(video, pool) == expected
    assert children() == []


@pytest.mark.parametrize("width", [48, 90, sweep(64), sweep(96), sweep(144), sweep(192)])
async def test_narrow_videos(tmp_path, width):
    """Frames of every width are right, also where the decoder takes the padding of rows for a fourth channel."""
    frames = [tiny_picture(seed, width=width, height=64) for seed in range(3)]
    _, found = await sample_video(tiny_video(tmp_path / "a.avi", frames=frames, fps=1), interval_s=1, max_frames=0)
    for expected, frame in zip(frames, found, strict=True):
        assert frame.rgb.shape == expected.shape
        assert np.abs(frame.rgb.astype(int) - expected).mean() < 6


async def test_many_at_once_do_not_disturb_each_other(tmp_path):
    """Concurrent decoders return the frames of their own video."""
    videos = [tiny_video(tmp_path / f"{count}.avi", frames=count) for count in range(1, 7)]
    facts = await asyncio.gather(*(read_video_info(path) for path in videos))
    assert [fact.frame_count for fact in facts] == list(range(1, 7))


async def test_slices_are_the_whole_video(video):
    """Slices together are the frames, measures and times of one call."""
    facts, frames = await sample_video(video, interval_s=1, max_frames=0)
    for slice_frames in (1, 2, 3, 50):
        slices = [found async for found in iter_video(video, interval_s=1, max_frames=0, slice_frames=slice_frames)]
        assert {len(part) for _, part in slices[:-1]} <= {slice_frames}
        assert all(found == facts for found, _ in slices)
        parts = [frame for _, part in slices for frame in part]
        assert [(frame.index, frame.time_s) for frame in parts] == [(frame.index, frame.time_s) for frame in frames]
        assert all(np.array_equal(one.rgb, other.rgb) for one, other in zip(parts, frames, strict=True))


@on_linux
async def test_nothing_runs_between_two_slices(long_video):
    """No process or file stays open between slices or after the last one."""
    await read_video_info(long_video)
    before = open_files()
    slices = iter_video(long_video, interval_s=1, max_frames=0, max_side=32, slice_frames=4)
    async for _, frames in slices:
        assert len(frames) == 4
        assert (children(), open_files()) == ([], before)
        break
    await slices.aclose()
    assert (children(), open_files()) == ([], before)


async def test_limits_hold_for_each_slice(video):
    """A video that exceeds the result limit as a whole can be read in slices."""
    limits = DecoderLimits(result_bytes=64 * 48 * 3)
    with pytest.raises(MediaTooLarge):
        await sample_video(video, interval_s=1, max_frames=0, limits=limits)
    slices = [part async for _, part in iter_video(video, interval_s=1, max_frames=0, slice_frames=1, limits=limits)]
    assert [len(part) for part in slices] == [1, 1, 1]


@pytest.mark.parametrize("max_frames", [0, sweep(10**6)])
async def test_a_video_of_days_is_refused_without_a_limit(tmp_path, max_frames):
    """More captures than `MAX_CAPTURES` raise an error before they are listed."""
    days = tiny_video(tmp_path / "days.avi", frames=3, fps=Fraction(1, 86_400))
    with pytest.raises(MediaTooLarge, match="more than 86400"):
        await sample_video(days, interval_s=1, max_frames=max_frames)
    assert len((await sample_video(days, interval_s=1, max_frames=5))[1]) == 5


@pytest.mark.parametrize("max_frames", [0, 5])
async def test_a_video_of_centuries_has_no_known_length(tmp_path, max_frames):
    """Where rate and time stamps both claim years, the length is not known, and the one capture is the first frame."""
    years = tiny_video(tmp_path / "years.avi", frames=3, fps=Fraction(1, 10**8))
    facts, frames = await sample_video(years, interval_s=1, max_frames=max_frames)
    assert facts.duration_s is None
    assert [frame.index for frame in frames] == [0]


@pytest.mark.parametrize(
    "times_ms",
    [
        [*(100 * n for n in range(24)), 2**58],
        [2**60, *(100 * n for n in range(24))],
        [2**55 + 100 * n for n in range(25)],
    ],
    ids=["last", "first", "all"],
)
async def test_absurd_time_stamps_give_way_to_frames_over_rate(tmp_path, times_ms):
    """25 frames at ten a second last 2.5 s, whatever their time stamps claim; frames are picked by the rate."""
    path = stamped_video(tmp_path / "absurd.mkv", times_ms)
    facts, frames = await sample_video(path, interval_s=1, max_frames=0)
    assert (facts.duration_s, facts.frame_count) == (2.5, 25)
    assert [(frame.index, frame.time_s) for frame in frames] == [(0, 0.0), (10, 1.0), (20, 2.0)]


def number_of(rgb):
    """Return the index of the picture that a frame shows."""
    return int(np.argmin([np.abs(tiny_picture(seed).astype(int) - rgb).mean() for seed in range(40)]))


@pytest.mark.parametrize("slice_frames", [2, sweep(1), sweep(9)])
async def test_frames_without_time_stamps_are_those_of_their_time(slice_frames):
    """Without usable time stamps, the captured frames are still the right ones."""
    path = Path(__file__).with_name("without_time_stamps.avi")
    slices = iter_video(path, interval_s=1, max_frames=0, slice_frames=slice_frames)
    frames_read = [(frame.time_s, number_of(frame.rgb)) async for _, frames in slices for frame in frames]
    assert frames_read == [(0.0, 0), (1.0, 10), (2.0, 20), (3.0, 30)]


async def test_the_end_is_not_captured(tmp_path):
    """A video of exactly three seconds has captures at 0, 1 and 2 s: one at 3 s would be its end."""
    path = tiny_video(tmp_path / "three.avi", frames=30, fps=10)
    facts, frames = await sample_video(path, interval_s=1, max_frames=0)
    assert facts.duration_s == 3.0
    assert [frame.time_s for frame in frames] == [0.0, 1.0, 2.0]


async def test_time_stamps_are_followed_where_they_make_sense(tmp_path):
    """A long pause between two frames gives captures of the earlier frame."""
    path = stamped_video(tmp_path / "paused.mkv", [0, 100, 200, 5000, 5100])
    facts, frames = await sample_video(path, interval_s=2, max_frames=0)
    assert facts.duration_s == 5.2
    assert [frame.index for frame in frames] == [0, 2, 2]
