"""A video is analyzed at every interval, polled, charged by the frame, and summarized."""

from __future__ import annotations

import base64
from fractions import Fraction
from math import ceil

import pytest

from lightmeter.testing import stamped_video, tiny_video


async def whole(caller, **fields):
    """Send a request, poll it, and return its asset and the whole answer."""
    done = await caller.finished(await caller.ask(**fields))
    assert (done["status"], done["all"]["errors"]) == ("completed", [])
    (asset,) = done["all"]["assets"]
    return asset, done


@pytest.mark.parametrize("path", ["video/tiny.avi", "video/no-suffix", "video/odd.bin?x=.jpg", "video/lies.jpg"])
async def test_any_video_by_url_is_acknowledged(caller, site, path):
    """A video is recognized by suffix or content, and all its frames are charged."""
    asset, done = await whole(caller, url=site.url(path))
    assert (asset["name"], asset["kind"]) == (site.url(path), "video")
    assert [frame["time"] for frame in asset["frames"]] == [0.0, 1.0, 2.0]
    assert done["credits_paid"] == 3
    assert await caller.balance() == 997


async def test_a_single_video_by_content_is_acknowledged(caller, site):
    """An uploaded video is acknowledged, whatever its name."""
    content = base64.b64encode(site.video).decode()
    asset, done = await whole(caller, file=content, file_name="holiday.jpg")
    assert (asset["name"], done["credits_paid"], len(asset["frames"])) == ("holiday.jpg", 3, 3)


async def test_the_end_of_a_video_is_not_charged(caller, tmp_path):
    """A video of two seconds has two frames, at 0 and 1 s."""
    content = base64.b64encode(tiny_video(tmp_path / "two.avi", frames=20).read_bytes()).decode()
    asset, done = await whole(caller, file=content, max_frames=0)
    assert ([frame["time"] for frame in asset["frames"]], asset["duration"]) == ([0.0, 1.0], 2.0)
    assert (done["credits_paid"], await caller.balance()) == (2, 998)


async def test_absurd_time_stamps_are_not_charged(caller, tmp_path):
    """A file with impossible time stamps is charged for its real frames."""
    path = stamped_video(tmp_path / "absurd.mkv", [100 * n for n in range(24)] + [2**58])
    asset, done = await whole(caller, file=base64.b64encode(path.read_bytes()).decode(), max_frames=0)
    assert (asset["duration"], len(asset["frames"])) == (2.5, 3)
    assert (done["credits_paid"], await caller.balance()) == (3, 997)


async def test_a_length_that_nothing_says_is_one_frame(caller, tmp_path):
    """If no duration is plausible, the first frame is analyzed and charged, and no duration is answered."""
    path = tiny_video(tmp_path / "years.avi", frames=3, fps=Fraction(1, 10**8))
    asset, done = await whole(caller, file=base64.b64encode(path.read_bytes()).decode(), max_frames=0)
    assert ("duration" in asset, [frame["time"] for frame in asset["frames"]]) == (False, [0.0])
    assert (done["credits_paid"], await caller.balance()) == (1, 999)


async def test_an_image_with_the_suffix_of_a_video_costs_one_picture(caller, site):
    """An image with a video suffix is polled, and costs one picture."""
    done = await caller.finished(await caller.ask(url=site.url("picture/1.mp4")))
    assert (done["credits_paid"], done["all"]["assets"][0]["kind"]) == (1, "image")
    assert await caller.balance() == 999


@pytest.mark.parametrize(
    ("interval", "most", "times"),
    [
        (1, 3, [0.0, 1.0, 2.0]),
        (1, 2, [0.0, 1.0]),
        (2, 3, [0.0, 2.0]),
        (9, 3, [0.0]),
        (1, 1, [0.0]),
        (1, 0, [0.0, 1.0, 2.0]),
        (1, 500, [0.0, 1.0, 2.0]),
    ],
)
async def test_frames_are_captured_as_asked(caller, site, interval, most, times):
    """One frame is captured at each interval up to max_frames; each is charged as an image."""
    asset, done = await whole(caller, url=site.url("video/tiny.avi"), capture_interval=interval, max_frames=most)
    assert [frame["time"] for frame in asset["frames"]] == times
    assert [frame["index"] for frame in asset["frames"]] == list(range(len(times)))
    assert (done["credits_paid"], await caller.balance()) == (len(times), 1000 - len(times))


async def test_a_real_video_by_all_back_ends(calling, full_service, site):
    """A video has entries for each frame and a summary."""
    caller = await calling(full_service)
    asset, done = await whole(caller, url=site.url("media/samoyed.mp4"), tag_score=0.1)
    assert len(asset["frames"]) == min(3, ceil(asset["duration"]))
    assert done["credits_paid"] == 2 * len(asset["frames"])
    assert asset["width"] > 0 < asset["height"]
    framed = [{name: tag["score"] for name, (tag,) in frame["tags"].items()} for frame in asset["frames"]]
    assert asset["tags"]["samoyed"]
    for name, (tag,) in asset["tags"].items():
        two = sorted((each.get(name, 0) for each in framed), reverse=True)[:2]
        # A frame's score below the request's is not in the answer, and counts in the sum.
        assert sum(two) / 2 - 1e-4 <= tag["score"] <= max(two)
    for label, worst in (("nsfw", max), ("sfw", min)):
        scores = [entry["score"] for frame in asset["frames"] for entry in frame["nsfw"] if entry["label"] == label]
        assert [entry["score"] for entry in asset["nsfw"] if entry["label"] == label] == [worst(scores)]
    assert len(asset["colors"]) <= 8


async def test_a_broken_video_costs_nothing(caller, site):
    """A broken video becomes a message that names it; the image beside it is charged."""
    urls = [site.url("broken_video/x.mp4"), site.url("picture/1.png")]
    done = await caller.finished(await caller.ask(url=urls))
    assert [asset["name"] for asset in done["all"]["assets"]] == urls[1:]
    assert urls[0] in done["all"]["errors"][0]
    assert (done["credits_paid"], await caller.balance()) == (1, 999)


async def test_a_lone_broken_video_completes_with_an_error(caller, site):
    """A request with only a broken video completes with a message and without a charge."""
    done = await caller.finished(await caller.ask(url=site.url("broken_video/x.mp4")))
    assert (done["status"], done["all"]["assets"], done["credits_paid"]) == ("completed", [], 0)
    assert len(done["all"]["errors"]) == 1


@pytest.mark.parametrize("name", ["1.png", "1"])
@pytest.mark.parametrize("most", [0, 3])
async def test_an_image_may_be_asked_with_no_limit_of_frames(calling, service, site, most, name):
    """An image, with or without a file suffix, holds the price of one picture, whatever max_frames is."""
    caller = await calling(service, credits=1)
    answered = await caller.ask(url=site.url(f"picture/{name}"), max_frames=most)
    assert (answered.status, answered.body["credits"]) == (200, 0)


async def test_unlimited_frames_hold_only_the_needed_credits(calling, service, site):
    """With max_frames 0, a request needs only about the credits that it costs."""
    caller = await calling(service, credits=4)
    answered = await caller.ask(url=site.url("picture/1"), max_frames=0)
    assert (answered.status, answered.body["status"]) == (200, "completed")
    done = await caller.finished(await caller.ask(url=site.url("video/tiny.avi"), max_frames=0))
    assert (done["credits_paid"], done["credits"]) == (3, 0)


@pytest.mark.parametrize("name", ["lies.jpg", "nameless"])
async def test_a_video_is_never_looked_at_beyond_the_balance(calling, service, site, name):
    """A video without a video's name and too small a balance gets a message, and is not charged."""
    caller = await calling(service, credits=1)
    answered = await caller.ask(url=site.url(f"video/{name}"))
    if answered.status == 200 and answered.body["status"] == "queued":
        done = await caller.finished(answered)
        assert done["all"]["assets"] == []
        assert "Insufficient credits." in done["all"]["errors"][0]
    else:
        assert (answered.status, answered.body["error"]) == (402, "Insufficient credits.")
    assert await caller.balance() == 1
