"""`--video frames`: only the distinct frames of a video are sent, as files, and come back as its frames."""

from __future__ import annotations

import asyncio
import signal
from contextlib import nullcontext

import numpy as np
import pytest

import lightmeter as lm
from lightmeter.cli.commands.demo import serve_folder
from lightmeter.errors import BudgetReached, SettingsError, UsageError
from lightmeter.media.image import load_rgb
from lightmeter.testing import tiny_jpeg, tiny_video
from lightmeter.wire.constants import MAX_FILE_BYTES
from tests.conftest import DATA
from tests.e2e.kills.processes import KILLED, settings_of_the_test
from tests.engine.hostile import Hostile, listening
from tests.sweeps import sweep

_PICTURES = [
    load_rgb((DATA / "media" / f"{name}.jpg").read_bytes())[:256, :256] for name in ("astronaut", "coffee", "koala")
]
_ORDER = (0, 0, 1, 1, 0, 2)
"""The picture that the video shows in each second: the frames 0, 2 and 5 are distinct."""


@pytest.fixture
def video(tmp_path):
    """A video of six seconds with three scenes, one of them twice."""
    noise = np.random.default_rng(0)
    frames = [
        np.clip(_PICTURES[number] + noise.integers(-2, 3, (256, 256, 3)), 0, 255).astype(np.uint8) for number in _ORDER
    ]
    return tiny_video(tmp_path / "scenes.avi", frames=frames, fps=1)


@pytest.fixture
def run_frames(tmp_path, video, charges_at_once):
    """Plan and run the video and an image against a scripted service; returns (the run, the plan, the service)."""

    async def run(script, *, more=(), paths=None, out="out", base_url=None, **options):
        hostile = script if isinstance(script, Hostile) else Hostile(script)
        picture = tmp_path / "picture.jpg"
        picture.write_bytes(tiny_jpeg(1))
        async with nullcontext(base_url) if base_url else listening(hostile) as base_url:  # noqa: PLR1704
            usual = {"features": ["tags"], "backends": ["clarifai"], "max_frames": 60, "video": "frames"}
            manifest = _manifest(tmp_path, paths or [video, picture, *more])
            plan = await lm.aio.plan(manifest, base_url=base_url, **{**usual, **options})
            return await lm.aio.run(plan, tmp_path / out), plan, hostile

    return run


def _manifest(folder, paths):
    manifest = folder / "manifest.csv"
    manifest.write_text("\n".join(["path", *map(str, paths)]))
    return manifest


def _facts(run):
    """Return (number of the video's frame, source) of each tag, sorted."""
    tags = run.table("tags").to_pylist()
    return sorted((-1 if tag["frame"] is None else tag["frame"], tag["source"]) for tag in tags)


def _video(run):
    return next(row for row in run.table("assets").to_pylist() if row["kind"] == "video")


async def test_only_distinct_frames_are_sent_and_paid_for(run_frames):
    """Three of six frames are sent, each once; they have the video's item id and their number; the plan says so."""
    run, plan, hostile = await run_frames(lambda *_: "fine")
    assert sorted(hostile.charged) == ["picture.jpg", "row0-frame0.jpg", "row0-frame2.jpg", "row0-frame5.jpg"]
    assert (plan.frame_savings.frames, plan.frame_savings.whole_frames, str(plan.credits)) == (3, 6, "4 credits")
    assert "3 of 6 captured frames of 1 video are sent: 3 instead of 1 to 6 credits" in str(plan)
    assert run.summary().counts["ok"] == run.summary().rows == 2
    row = _video(run)
    assert (row["status"], row["credits"], row["duration_s"], row["reason"]) == ("ok", 3.0, 6.0, None)
    assert _facts(run) == [(-1, "picture.jpg"), *((one, f"row0-frame{one}.jpg") for one in (0, 2, 5))]
    tags = [tag for tag in run.table("tags").to_pylist() if tag["frame"] is not None]
    assert {tag["item_id"] for tag in tags} == {row["item_id"]}
    found = [one for one in run.table("prechecks").to_pylist() if one["finding"] == "distinct_frames"]
    assert [one["value"] for one in found] == [3.0]


async def test_the_frame_limit_keeps_those_that_differ_most(run_frames):
    """With a limit of two frames, two are sent: the first and the one that differs most from it."""
    run, _, hostile = await run_frames(lambda *_: "fine", max_distinct_frames=2)
    frames = [name for name in hostile.charged if name.startswith("row0")]
    assert len(frames) == 2
    assert "row0-frame0.jpg" in frames
    assert _video(run)["credits"] == 2


async def test_a_lost_frame_is_in_doubt_alone_and_the_rest_is_paid_once(run_frames, tmp_path):
    """The lost request of one frame holds its price alone; a resume pays for no frame again."""
    lost = "row0-frame2.jpg"

    def script(_, body):
        return "charge and drop" if body.get("file_name") == lost else "fine"

    run, _, hostile = await run_frames(script)
    assert sorted(hostile.charged) == ["picture.jpg", "row0-frame0.jpg", lost, "row0-frame5.jpg"]
    row = _video(run)
    assert (row["status"], run.summary().held, run.summary().paid) == ("in_doubt", 1, 3)
    assert row["error"].startswith("Frame 2: ")
    assert [frame for frame, _ in _facts(run)] == [-1, 0, 5]
    hostile.script = lambda *_: "fine"
    async with listening(hostile) as base_url:
        again = await lm.aio.resume(tmp_path / "out", base_url=base_url, sole_spender=True)
    assert len(hostile.charged) == 4
    assert (_video(again)["status"], _video(again)["reason"]) == ("failed", "paid_and_lost")
    assert (_video(again)["credits"], again.summary().paid) == (3, 4)


async def test_a_dropped_frame_is_sent_again_alone(run_frames):
    """The balance proves that a dropped frame was not charged: it alone is sent again."""
    dropped = []

    def script(_, body):
        if body.get("file_name") == "row0-frame5.jpg" and not dropped:
            dropped.append(1)
            return "drop"
        return "fine"

    run, _, hostile = await run_frames(script)
    assert dropped
    assert sorted(hostile.charged) == ["picture.jpg", "row0-frame0.jpg", "row0-frame2.jpg", "row0-frame5.jpg"]
    assert _video(run)["status"] == "ok"


async def test_a_budget_stops_between_frames_and_resume_sends_the_missing_ones(run_frames, tmp_path):
    """A budget below the price leaves the video over budget; a higher one pays for the missing frames only."""
    hostile = Hostile(lambda *_: "fine")
    run, _, _ = await run_frames(hostile, budget=2)
    assert isinstance(run.stopped_by, BudgetReached)
    summary = run.summary()
    assert (summary.paid, summary.counts["over_budget"], sum(summary.counts.values())) == (2, 2, 2)
    assert sorted(hostile.charged) == ["row0-frame0.jpg", "row0-frame2.jpg"]
    assert _video(run)["status"] == "over_budget"
    async with listening(hostile) as base_url:
        run = await lm.aio.resume(tmp_path / "out", base_url=base_url, budget=10)
    assert sorted(hostile.charged) == ["picture.jpg", "row0-frame0.jpg", "row0-frame2.jpg", "row0-frame5.jpg"]
    assert (_video(run)["status"], run.summary().paid) == ("ok", 4)


async def test_refused_and_renamed_frames(run_frames):
    """A name that the service invents loses no frame; a refused frame fails the video and keeps the other facts."""
    run, _, _ = await run_frames(lambda *_: "rename")
    assert run.summary().counts["ok"] == 2

    def refuse(_, body):
        return "refuse" if body.get("file_name") == "row0-frame2.jpg" else "fine"

    run, _, _ = await run_frames(refuse, out="refused")
    assert (_video(run)["status"], _video(run)["credits"]) == ("failed", 2)
    assert [frame for frame, _ in _facts(run)] == [-1, 0, 5]


async def test_a_changed_manifest_pays_no_frame_again(run_frames, tmp_path, video):
    """The next run of the folder has more rows and the same video: only the new row is paid for."""
    hostile = Hostile(lambda *_: "fine")
    await run_frames(hostile)
    other = tmp_path / "other.jpg"
    other.write_bytes(tiny_jpeg(2))
    twin = tmp_path / "twin.avi"
    twin.write_bytes(video.read_bytes())
    run, _, _ = await run_frames(hostile, more=[other, twin])
    assert len(hostile.charged) == 5
    assert run.summary().counts["ok"] == 3
    assert run.summary().counts["duplicate"] == 1
    assert sorted(frame for frame, _ in _facts(run)) == [-1, -1, 0, 0, 2, 2, 5, 5]
    assert _video(run)["credits"] == 3
    run, _, _ = await run_frames(hostile, paths=[other])  # the video is gone
    assert len(hostile.charged) == 5


async def test_a_changed_video_is_not_sent(run_frames, tmp_path, video):
    """If the file changes after the plan, its frames fail unpaid."""
    hostile = Hostile(lambda *_: "fine")
    async with listening(hostile) as base_url:
        options = {"features": ["tags"], "backends": ["clarifai"], "base_url": base_url, "video": "frames"}
        plan = await lm.aio.plan(_manifest(tmp_path, [video]), max_frames=60, **options)
        tiny_video(video, frames=[_PICTURES[2]] * 4, fps=1)
        run = await lm.aio.run(plan, tmp_path / "out")
    assert hostile.charged == []
    assert (_video(run)["status"], _video(run)["reason"]) == ("failed", "unreadable_file")


async def test_a_saved_plan_runs_with_the_same_frames(run_frames, tmp_path, video):
    """A plan file keeps the chosen frames; other frames need a new plan."""
    hostile = Hostile(lambda *_: "fine")
    async with listening(hostile) as base_url:
        options = {"features": ["tags"], "backends": ["clarifai"], "base_url": base_url, "video": "frames"}
        plan = await lm.aio.plan(_manifest(tmp_path, [video]), max_frames=60, **options)
        with pytest.raises(UsageError, match="Other frames"):
            plan.with_options(max_frames=2)
        loaded = lm.load_plan(plan.save(tmp_path / "plan.json"))
        assert (loaded.rows, loaded.credits, loaded.frame_savings) == (1, plan.credits, plan.frame_savings)
        await lm.aio.run(loaded, tmp_path / "out")
    assert sorted(hostile.charged) == ["row0-frame0.jpg", "row0-frame2.jpg", "row0-frame5.jpg"]


def test_frames_need_the_pre_checks():
    """Without pre-checks no frame can be chosen: the options are refused."""
    with pytest.raises(SettingsError, match="pre-checks"):
        lm.plan([], video="frames", precheck=False)


async def test_the_embedded_service_answers_frames_as_those_of_the_whole_video(tmp_path, charges_at_once):
    """The frames of a real video have the numbers and, but for JPEG, the colors of the answer to the whole video."""
    manifest = _manifest(tmp_path, [DATA / "media" / "samoyed.mp4"])
    options = {"features": ["colors"], "backends": ["palette"], "max_frames": 4}
    whole = await lm.aio.run(await lm.aio.plan(manifest, **options), tmp_path / "whole")
    plan = await lm.aio.plan(manifest, video="frames", **options)
    frames = await lm.aio.run(plan, tmp_path / "frames")
    assert frames.summary().counts["ok"] == 1
    assert frames.summary().paid == plan.frame_savings.frames == plan.frame_savings.credits

    def reds(run):
        found = {}
        for color in run.table("colors").to_pylist():
            if color["frame"] is not None:
                found.setdefault(color["frame"], color)
        return found

    analyzed_frames, analyzed_whole = reds(frames), reds(whole)
    assert set(analyzed_frames) <= set(analyzed_whole)
    assert 1 <= len(analyzed_frames) == plan.frame_savings.frames
    for frame, color in analyzed_frames.items():
        assert color["item_id"] == analyzed_whole[frame]["item_id"]
        assert all(abs(color[name] - analyzed_whole[frame][name]) <= 12 for name in ("red", "green", "blue"))


@pytest.mark.parametrize(("post", "charged"), [(2, False), sweep(3, True)])
async def test_a_killed_run_pays_no_frame_twice(fork_server, tmp_path, video, charges_at_once, post, charged):
    """A process is killed during a request, before or after the charge: resumed, it pays for each frame once."""
    process = None

    def script(number, _):
        if number != post:
            return "fine"
        process.signal(signal.SIGKILL)
        return "charge and drop" if charged else "drop"

    hostile = Hostile(script)
    async with listening(hostile) as base_url:
        options = ["--features", "tags", "--backends", "clarifai", "--video", "frames", "--max-frames", "60", "--yes"]
        command = ["run", _manifest(tmp_path, [video]), "--out", tmp_path / "out", "--careful", "--base-url", base_url]
        process = fork_server.start(*command, *options, env=settings_of_the_test())
        assert (await asyncio.to_thread(process.wait)).code == KILLED
        run = await lm.aio.resume(tmp_path / "out", base_url=base_url, sole_spender=True)
    names = [f"row0-frame{frame}.jpg" for frame in (0, 2, 5)]
    assert sorted(hostile.charged) == names
    assert (_video(run)["status"], _video(run)["reason"]) == (("failed", "paid_and_lost") if charged else ("ok", None))
    assert run.summary().paid == 3


async def test_a_question_is_answered_for_each_frame(run_frames):
    """The answers to the user's question stand in a row for each frame that was sent."""
    ask = {"name": "count", "prompt": "How many?", "schema": {"properties": {"people": {"type": "integer"}}}}
    run, _, _ = await run_frames(lambda *_: "fine", ask=ask, features=["tags", "descriptions"], backends=["gemini"])
    rows = run.table("answers_count").to_pylist()
    assert sorted(-1 if row["frame"] is None else row["frame"] for row in rows) == [-1, 0, 2, 5]
    assert {row["item_id"] for row in rows} == {row["item_id"] for row in run.table("assets").to_pylist()}


async def test_a_video_at_a_url_is_downloaded_and_its_frames_are_sent(run_frames, tmp_path, video):
    """The frames of a video at a URL are sent as files too, and the table has its URL."""
    with serve_folder(video.parent) as base:
        manifest = tmp_path / "urls.csv"
        manifest.write_text(f"url\n{base}/{video.name}\n")
        hostile = Hostile(lambda *_: "ack")
        async with listening(hostile) as base_url:
            options = {"features": ["tags"], "backends": ["clarifai"], "base_url": base_url, "video": "frames"}
            run = await lm.aio.run(await lm.aio.plan(manifest, max_frames=60, **options), tmp_path / "out")
    assert sorted(hostile.charged) == ["row0-frame0.jpg", "row0-frame2.jpg", "row0-frame5.jpg"]
    assert {tag["url"] for tag in run.table("tags").to_pylist()} == {f"{base}/{video.name}"}


@pytest.mark.sweep
async def test_a_frame_in_doubt_moves_to_the_next_run(run_frames, tmp_path, video, monkeypatch):
    """A changed manifest keeps the doubt about a frame, and its hold, whether it has the video or not."""
    monkeypatch.setenv("LIGHTMETER_KEEP_RUNS", "1")
    hostile = Hostile(lambda _, body: "charge and drop" if body.get("file_name") == "row0-frame2.jpg" else "fine")
    other = tmp_path / "other.jpg"
    other.write_bytes(tiny_jpeg(2))
    async with listening(hostile) as base_url:
        await run_frames(hostile, base_url=base_url)
        hostile.script = lambda *_: "fine"
        run, _, _ = await run_frames(hostile, more=[other], base_url=base_url)
        assert len(hostile.charged) == 5
        assert (_video(run)["status"], run.summary().held) == ("in_doubt", 1)
        run, _, _ = await run_frames(hostile, paths=[other], base_url=base_url)
        run, _, _ = await run_frames(hostile, paths=[tmp_path / "picture.jpg"], base_url=base_url)
        assert [frame for frame, _ in _facts(run)] == [-1, -1, 0, 5]
    assert len(hostile.charged) == 5
    assert (run.summary().counts["in_doubt"], run.summary().held, run.summary().rows) == (1, 1, 2)
    latest = {row["item_id"]: row["status"] for row in run.table("assets").to_pylist()}
    assert "in_doubt" in latest.values()


async def test_another_folder_reuses_cached_frames(run_frames, tmp_path, video, monkeypatch):
    """Frames that another run paid for are answered from the cache; a frame that is missing there is paid for."""
    monkeypatch.setenv("LIGHTMETER_ANSWERS_DIR", str(tmp_path / "answers"))
    hostile = Hostile(lambda *_: "fine")
    async with listening(hostile) as base_url:
        await run_frames(hostile, max_distinct_frames=2, base_url=base_url)
        run, plan, _ = await run_frames(hostile, out="second", base_url=base_url)
    assert len(hostile.charged) == 4
    assert (plan.credits.high, plan.frame_savings.frames) == (1, 3)
    assert _facts(run)[1:] == [(frame, f"row0-frame{frame}.jpg") for frame in (0, 2, 5)]
    assert _video(run)["credits"] == 1


@pytest.mark.sweep
async def test_a_large_video_file_is_sent_as_frames(run_frames, video):
    """A file above the upload limit, which could not be sent whole, is sent as frames."""
    with video.open("ab") as file:
        file.write(bytes(MAX_FILE_BYTES))
    run, _, _ = await run_frames(lambda *_: "fine")
    assert (_video(run)["status"], _video(run)["credits"]) == ("ok", 3)


@pytest.mark.parametrize("seed", [0, *map(sweep, (1, 2, 3))])
async def test_a_sample_sends_the_frames_of_a_chosen_video(run_frames, tmp_path, seed):
    """In a random order, a small budget buys whole rows in that order; a video of which a frame lacks is not bought."""
    run, plan, hostile = await run_frames(
        lambda *_: "fine", sample="random", sample_seed=seed, budget=3, upload="never"
    )
    bought = sorted(hostile.charged)
    assert bought in (
        ["row0-frame0.jpg", "row0-frame2.jpg", "row0-frame5.jpg"],
        ["picture.jpg", "row0-frame0.jpg", "row0-frame2.jpg"],
    )
    assert _video(run)["status"] == ("over_budget" if "picture.jpg" in bought else "ok")
    shares = run.shares("tags")
    assert (shares.population, shares.sampled) == (2, 1)
    assert plan.rows == 2


async def test_a_screen_rejects_a_video_with_its_frames(run_frames, tmp_path, monkeypatch):
    """The frames of a video that does not match are not paid for; with a rule that it matches, they are."""
    monkeypatch.setenv("LIGHTMETER_CACHE_DIR", str(tmp_path / "cache"))
    screen = {"screen": "palette", "screen_audit": 0.0}
    hostile = Hostile(lambda *_: "fine")
    rule = "assets.kind = 'image' AND colors.red >= 0"
    run, plan, _ = await run_frames(hostile, screen_rule=rule, **screen)
    assert hostile.charged == ["picture.jpg"]
    assert (plan.screen.passed, plan.screen.rejected, plan.screen.undecided) == (1, 1, 0)
    assert (plan.saved_by_screen.high, plan.frame_savings, plan.credits.high) == (3, None, 1)
    assert (_video(run)["status"], _video(run)["reason"]) == ("skipped", "screened")
    run, plan, _ = await run_frames(hostile, out="second", screen_rule="colors.red >= 0", **screen)
    assert (plan.screen.passed, plan.frame_savings.frames) == (2, 3)
    assert len(hostile.charged) == 5


async def test_only_a_video_without_a_choice_of_frames_is_skipped(run_frames, monkeypatch):
    """`--skip distinct_frames` keeps videos from being sent whole, and no others; nor does `--skip frames`."""
    run, _, _ = await run_frames(lambda *_: "fine", skip="frames,distinct_frames")
    assert _video(run)["status"] == "ok"
    monkeypatch.setattr("lightmeter.media.video.distinct_frames.MAX_COMPARED_FRAMES", 2)
    run, _, hostile = await run_frames(lambda *_: "fine", out="whole", reuse=False)
    assert sorted(hostile.charged) == ["picture.jpg", "scenes.avi"]
    run, _, _ = await run_frames(lambda *_: "fine", out="skipped", skip="distinct_frames", reuse=False)
    assert (_video(run)["status"], _video(run)["reason"]) == ("skipped", "distinct_frames")


async def test_checks_that_were_kept_have_the_frames(run_frames, tmp_path, monkeypatch):
    """A second plan uses kept results of checks, with the chosen frames; other options choose again."""
    monkeypatch.setenv("LIGHTMETER_CACHE_DIR", str(tmp_path / "cache"))
    hostile = Hostile(lambda *_: "fine")
    async with listening(hostile) as base_url:
        manifest = _manifest(tmp_path, [next(tmp_path.glob("*.avi"))])
        options = {"features": ["tags"], "backends": ["clarifai"], "base_url": base_url, "max_frames": 60}
        for most, frames in ((0, 3), (0, 3), (2, 2)):
            plan = await lm.aio.plan(manifest, video="frames", max_distinct_frames=most, **options)
            assert plan.frame_savings.frames == frames
        assert (await lm.aio.plan(manifest, **options)).frame_savings is None


@pytest.mark.parametrize("duplicates", ["exact", sweep("near")])
@pytest.mark.parametrize("case", [sweep((9, "ok", [0, 2, 5])), (2, "skipped", [0, 2])])
async def test_a_rejected_video_keeps_what_was_paid_for(run_frames, tmp_path, monkeypatch, duplicates, case):
    """A changed manifest whose screen rejects the video still has its answers; of a video half paid for, too."""
    monkeypatch.setenv("LIGHTMETER_CACHE_DIR", str(tmp_path / "cache"))
    budget, status, frames = case
    other = tmp_path / "other.jpg"
    other.write_bytes(tiny_jpeg(2))
    rejecting = {"screen": "palette", "screen_rule": "colors.red > 255", "screen_audit": 0.0}
    hostile = Hostile(lambda *_: "fine")
    await run_frames(hostile, budget=budget, duplicates=duplicates)
    paid = len(hostile.charged)
    run, _, _ = await run_frames(hostile, more=[other], duplicates=duplicates, **rejecting)
    assert len(hostile.charged) == paid
    assert _video(run)["status"] == status
    assert [frame for frame, _ in _facts(run) if frame >= 0] == frames
