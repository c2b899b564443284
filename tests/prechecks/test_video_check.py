"""Checks of the content of videos, with real, odd and hostile files."""

import asyncio
import os
import signal
import struct
import sys
from fractions import Fraction

import pytest

from lightmeter.media.image import load_rgb
from lightmeter.media.perceptual_hash import perceptual_hash
from lightmeter.media.video.decoder_client import DecoderLimits
from lightmeter.media.video.video_header import read_codec
from lightmeter.prechecks.video_check import MAX_SPREAD_FRAMES, check_video
from lightmeter.testing import blank_picture, stamped_video, tiny_picture, tiny_video
from tests.media.odd_videos import (
    ENCODINGS,
    MEDIA,
    audio_only,
    encoded_video,
    needs_ffmpeg,
    still_video,
    without_length,
)
from tests.media.test_video import children, open_files, started_child

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc")


async def test_a_video_that_lacks_its_end_is_named(tmp_path):
    """A cut MP4 whose index is at its start gives a warning, also if all captured frames are before the cut."""
    content = (MEDIA / "city.mp4").read_bytes()
    (tmp_path / "cut.mp4").write_bytes(content[:-2000])
    (tmp_path / "padded.mp4").write_bytes(content + b"some text after the last box")
    video = await checked(tmp_path / "cut.mp4")
    assert findings(video) == [("decode", "info"), ("size", "warning")]
    assert (video.findings[1].value, video.findings[1].facts) == (len(content) - 2000, {"needed_bytes": len(content)})
    assert findings(await checked(tmp_path / "padded.mp4")) == [("decode", "info")]


COMMON = ("hevc.mp4", "vp9.webm", "av1.mkv", "mpeg4.avi", "rotated.mp4", "varying_rate.mp4")
"""Encodings of which every test run makes a video."""


async def checked(path, *, max_frames=0, **more):
    return await check_video(path, capture_interval_s=1, max_frames=max_frames, **more)


def findings(video):
    return [(finding.check, finding.severity) for finding in video.findings]


async def test_a_sound_video_gives_its_facts():
    """A real video gives metadata, codec, scene cuts, the share of near-identical frames, a hash and a thumbnail."""
    video = await checked(MEDIA / "city.mp4")
    assert findings(video) == [("decode", "info")]
    facts = video.findings[0].facts
    assert (facts["width"], facts["height"], facts["duration_s"], facts["fps"]) == (720, 404, 7.6, 25.0)
    assert (facts["codec"], facts["size_bytes"]) == ("h264", (MEDIA / "city.mp4").stat().st_size)
    assert (facts["captured_frames"], facts["sampled_frames"]) == (8, 8)
    assert (facts["scene_cuts_s"], facts["near_identical_share"]) == ([5.0], 0.0)
    assert (video.width, video.height, video.duration_s) == (720, 404, 7.6)
    picture = load_rgb(video.thumbnail)
    assert max(picture.shape) == 160
    assert (perceptual_hash(picture) ^ video.perceptual_hash).bit_count() <= 6


@needs_ffmpeg
@pytest.mark.parametrize("noise", [0, 8])
async def test_a_still_picture_is_frozen(tmp_path, noise):
    """A video of one photograph is frozen, with and without noise of a camera."""
    video = await checked(still_video(tmp_path / "still.mp4", noise=noise))
    assert findings(video) == [("decode", "info"), ("frozen", "warning")]
    assert (video.findings[1].value, video.findings[1].facts["near_identical_at_s"]) == (1.0, [0, 1, 2, 3, 4, 5])
    assert video.findings[0].facts["near_identical_share"] == 1.0


async def test_frames_that_repeat_are_counted(tmp_path):
    """A video that changes once is not frozen: the share of near-identical frames and the cut are facts."""
    frames = [tiny_picture(1)] * 30 + [tiny_picture(2)] * 20
    video = await checked(tiny_video(tmp_path / "two.avi", frames=frames))
    assert findings(video) == [("decode", "info")]
    assert (video.findings[0].facts["near_identical_share"], video.findings[0].facts["scene_cuts_s"]) == (0.75, [3.0])


async def test_a_slow_fade_is_not_frozen(tmp_path):
    """Frames that each resemble the one before are not frozen if the last one differs from the first."""
    frames = [tiny_picture(1) // 2 + 4 * second for second in range(8) for _ in range(2)]
    video = await checked(tiny_video(tmp_path / "fade.avi", frames=frames, fps=2))
    assert findings(video) == [("decode", "info")]
    assert video.findings[0].facts["near_identical_share"] == 1.0


async def test_one_sampled_frame_is_never_frozen(tmp_path):
    """A video of which one frame is captured has nothing to compare."""
    path = tiny_video(tmp_path / "still.avi", frames=[tiny_picture()] * 30)
    assert findings(await checked(path, max_frames=1)) == [("decode", "info")]


async def test_blank_frames_give_way_to_the_first_picture(tmp_path):
    """Hash and thumbnail of a video that begins in black are those of its first picture."""
    frames = [blank_picture()] * 20 + [tiny_picture(3)] * 20
    video = await checked(tiny_video(tmp_path / "begin.avi", frames=frames))
    plain = await checked(tiny_video(tmp_path / "plain.avi", frames=[tiny_picture(3)] * 10))
    assert findings(video) == [("decode", "info"), ("frames", "warning")]
    assert (video.findings[1].value, video.findings[1].facts) == (0.5, {"blank_at_s": [0.0, 1.0]})
    assert (video.perceptual_hash, video.thumbnail) == (plain.perceptual_hash, plain.thumbnail)


async def test_a_blank_video_is_one_error(tmp_path):
    """A wholly blank video is blank, not frozen too; it has a thumbnail and no hash that others would share."""
    video = await checked(tiny_video(tmp_path / "blank.avi", frames=[blank_picture()] * 30))
    assert findings(video) == [("decode", "info"), ("blank", "error")]
    assert (video.perceptual_hash, video.thumbnail is None) == (None, False)


async def test_a_long_video_is_checked_from_end_to_end(tmp_path):
    """A video that begins with two minutes of black is not refused, as checked frames are spread over its length."""
    frames = [blank_picture()] * 120 + [tiny_picture(seed) for seed in range(40)]
    video = await checked(tiny_video(tmp_path / "long.avi", frames=frames, fps=1))
    assert findings(video) == [("decode", "info"), ("frames", "warning")]
    facts = video.findings[0].facts
    assert (facts["captured_frames"], facts["sampled_frames"]) == (160, MAX_SPREAD_FRAMES)


@needs_ffmpeg
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in COMMON else pytest.mark.sweep)
        for name in ENCODINGS
        if not name.endswith(".ts")
    ],
)
async def test_no_sound_encoding_is_refused(tmp_path, name):
    """Every container and codec that the service reads passes, with its codec and without a false cut."""
    video = await checked(encoded_video(tmp_path, name, seconds=2))
    assert findings(video) == [("decode", "info")]
    assert video.findings[0].facts["codec"] == ENCODINGS[name][0]
    assert (video.width, video.height) == ((96, 160) if name == "rotated.mp4" else (160, 96))
    assert video.duration_s == pytest.approx(2, abs=0.1)
    assert video.findings[0].facts["scene_cuts_s"] == []


def test_the_codec_of_a_file_without_one_is_unknown(tmp_path):
    """Text, an empty file and a header that ends early have no codec; boxes of length 0 or beyond the end stop it."""
    boxes = [b"\0\0\0\x14ftypmp42" + bytes(8), struct.pack(">I4s", 0, b"free"), struct.pack(">I4sQ", 1, b"free", 2**63)]
    for content in (b"", b"text", boxes[0], boxes[0] + boxes[1], boxes[0] + boxes[2], b"RIFF\0\0\0\0AVI LISTvids"):
        path = tmp_path / "a.mp4"
        path.write_bytes(content)
        assert read_codec(path) is None


def hostile_files(folder):
    """Return files that no decoder can use, by name."""
    whole = encoded_video(folder, "h264.mp4", seconds=2).read_bytes()
    front = encoded_video(folder, "front.mp4", seconds=4).read_bytes()
    contents = {
        "text.mp4": b"This is not a video.\n" * 100,
        "empty.mp4": b"",
        "zero_bytes.mp4": bytes(5000),
        "moov_missing.mp4": whole[: len(whole) // 2],
        "truncated.mp4": front[: len(front) // 3],
        "header_only.mp4": whole[:32],
        "brand_and_noise.mp4": whole[:32] + bytes(range(256)) * 40,
        "playlist.mp4": b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n",
        "no_frames.avi": tiny_video(folder / "one.avi", frames=1).read_bytes()[:300],
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return [*(folder / name for name in contents), audio_only(folder / "audio_only.mp4"), folder / "missing.mp4"]


@needs_ffmpeg
@on_linux
async def test_hostile_files_cost_one_finding_each(tmp_path):
    """Each broken file gives one finding of the decoder, a sentence without a path, and leaves no process or file."""
    paths = hostile_files(tmp_path)
    await checked(paths[0])
    before, files = open_files(), sorted(tmp_path.iterdir())
    for path in paths:
        video = await checked(path, limits=DecoderLimits(wall_s=20))
        (check, severity), *others = findings(video)
        assert check == "decode", path.name
        # What comes before the cut may decode as a shorter video; that the file is too short is a warning then.
        assert others in ([], [("size", "warning")] if path.name == "truncated.mp4" else []), path.name
        assert severity in {"error", "warning"} or path.name == "truncated.mp4", path.name
        message = video.findings[0].message
        assert message.endswith(".")
        assert str(tmp_path) not in message
        assert "Check failed" not in message
    assert (children(), open_files(), sorted(tmp_path.iterdir())) == ([], before, files)


@needs_ffmpeg
async def test_a_sound_track_alone_is_named(tmp_path):
    """A file with sound only is an error that says so."""
    video = await checked(audio_only(tmp_path / "audio.mp4"))
    assert [(one.severity, one.message) for one in video.findings] == [("error", "The file has no video track.")]


@needs_ffmpeg
async def test_a_video_without_a_length_may_be_sent(tmp_path):
    """A video that states no length is a warning, because a service may read it."""
    video = await checked(without_length(tmp_path / "live.webm"))
    assert [one.severity for one in video.findings] == ["warning"]
    assert video.findings[0].message == (
        "The file states no length, which the decoder needs. The service may still read it."
    )


async def test_absurd_headers_cost_one_finding(tmp_path):
    """Time stamps of centuries are no length, and frames of too many pixels are a warning with their size."""
    years = await checked(tiny_video(tmp_path / "years.avi", frames=3, fps=Fraction(1, 10**8)))
    assert (findings(years), years.duration_s) == ([("decode", "warning")], None)
    stamped = await checked(stamped_video(tmp_path / "stamped.mkv", [100 * n for n in range(24)] + [2**58]))
    assert (findings(stamped), stamped.duration_s) == ([("decode", "info")], 2.5)
    huge = await checked(tiny_video(tmp_path / "huge.avi", frames=2), limits=DecoderLimits(max_pixels=1000))
    assert findings(huge) == [("decode", "warning")]
    assert "64 x 48 pixels" in huge.findings[0].message


@on_linux
async def test_a_decoder_that_hangs_costs_its_deadline_and_one_finding(tmp_path):
    """A decoder that hangs is killed at the deadline; the row gets one warning and stays payable."""
    path = tiny_video(tmp_path / "a.avi", frames=600)
    task = asyncio.create_task(checked(path, limits=DecoderLimits(wall_s=1.0)))
    os.killpg(await started_child(), signal.SIGSTOP)
    video = await task
    assert findings(video) == [("decode", "warning")]
    assert "did not finish within 1 s" in video.findings[0].message
    assert children() == []


@on_linux
async def test_a_cancelled_check_leaves_no_process(tmp_path):
    """The decoder of a check that is cancelled is killed."""
    task = asyncio.create_task(checked(tiny_video(tmp_path / "a.avi", frames=600)))
    await started_child()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert children() == []
