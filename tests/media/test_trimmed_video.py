"""Videos whose stored frames are not the shown ones, or not in the same order: edit lists, open groups of pictures."""

import numpy as np
import pytest

from lightmeter.media.video.sample_video import iter_video, sample_video
from lightmeter.prechecks.video_check import check_video
from lightmeter.testing import tiny_picture, tiny_video
from tests.media.odd_videos import ffmpeg, needs_ffmpeg
from tests.sweeps import sweep

pytestmark = needs_ffmpeg

CODECS = {
    "h264": ("libx264", "-x264-params", "scenecut=0:keyint=10:min-keyint=10:bframes=0"),
    "h264-long": ("libx264", "-x264-params", "scenecut=0:keyint=100:min-keyint=100:bframes=2"),
    "h264-open": ("libx264", "-x264-params", "scenecut=0:keyint=10:min-keyint=10:bframes=3:open-gop=1:b-adapt=0"),
    "hevc": ("libx265", "-x265-params", "log-level=none:scenecut=0:keyint=10:min-keyint=10:bframes=3:b-adapt=0"),
    "mpeg4": ("mpeg4", "-q:v", "2", "-g", "10", "-bf", "2"),
    "mjpeg": ("mjpeg", "-q:v", "2"),
}


def number_of(rgb):
    """Return the index of the picture that a frame shows."""
    return int(
        np.argmin([np.abs(tiny_picture(seed, width=128, height=96).astype(int) - rgb).mean() for seed in range(40)])
    )


def encoded(folder, codec, name="source.mp4"):
    """Write a video of 8 s with five pictures a second, each another, and return its path."""
    pictures = [tiny_picture(seed, width=128, height=96) for seed in range(40)]
    raw = tiny_video(folder / "raw.avi", frames=pictures, fps=5)
    return ffmpeg(folder / name, "-i", str(raw), "-pix_fmt", "yuvj420p", "-c:v", *CODECS[codec])


async def shown(path, interval_s=1, slice_frames=100):
    """Return the length of a video and the numbers of the pictures in its captured frames."""
    slices = iter_video(path, interval_s=interval_s, max_frames=0, slice_frames=slice_frames)
    found = [(info.duration_s, number_of(frame.rgb)) async for info, frames in slices for frame in frames]
    return found[0][0], [number for _, number in found]


@pytest.mark.parametrize("codec", ["h264", "h264-long", "hevc", *map(sweep, ("h264-open", "mjpeg"))])
@pytest.mark.parametrize("name", ["trimmed.mp4", sweep("trimmed.mov")])
async def test_frames_before_the_start_of_an_edit_list_do_not_count(tmp_path, codec, name):
    """A video trimmed at 2.6 s without encoding has the length and the frames that players show, and no others."""
    source = encoded(tmp_path, codec)
    path = ffmpeg(tmp_path / name, "-ss", "2.6", "-i", str(source), "-c", "copy")
    assert await shown(path) == (5.4, [13, 18, 23, 28, 33, 38])
    assert await shown(path, 2, slice_frames=1) == (5.4, [13, 23, 33])
    info, frames = await sample_video(path, interval_s=1, max_frames=1)
    assert (info.frame_count, frames[0].index) == (27, 0)


async def test_a_pre_check_counts_the_frames_of_a_trimmed_video(tmp_path):
    """The pre-check states the captured frames that the service charges."""
    path = ffmpeg(tmp_path / "trimmed.mp4", "-ss", "2.6", "-i", str(encoded(tmp_path, "h264")), "-c", "copy")
    checked = await check_video(path, capture_interval_s=1, max_frames=0)
    assert checked.duration_s == 5.4
    assert [found.value for found in checked.findings if found.check == "decode"] == [6]


@pytest.mark.parametrize("codec", ["hevc", "mpeg4", sweep("h264-open"), sweep("h264-long")])
@pytest.mark.parametrize("name", ["copy.mkv", "copy.mp4", sweep("copy.mov")])
async def test_frames_that_are_shown_before_the_key_frame_stored_before_them(tmp_path, codec, name):
    """Each captured frame is that of its time, though the decoder's own seek ends at a wrong one."""
    path = ffmpeg(tmp_path / name, "-i", str(encoded(tmp_path, codec)), "-c", "copy")
    assert await shown(path) == (8.0, [0, 5, 10, 15, 20, 25, 30, 35])
    assert await shown(path, 2, slice_frames=1) == (8.0, [0, 10, 20, 30])


@pytest.mark.parametrize("options", [("-use_editlist", "0"), ("-movflags", "frag_keyframe+empty_moov")])
async def test_reordered_frames_without_an_edit_list(tmp_path, options):
    """Frames of a video whose first time stamp is not 0 are those of their time, counted from the first."""
    source = encoded(tmp_path, "h264-open")
    path = ffmpeg(tmp_path / "late.mp4", "-i", str(source), "-c", "copy", *options)
    assert await shown(path, 1, slice_frames=2) == (8.0, [0, 5, 10, 15, 20, 25, 30, 35])
