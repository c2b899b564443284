"""A plan estimates what a run costs, and the run keeps to it."""

from __future__ import annotations

import gc
import json
from pathlib import Path

import pytest

import lightmeter as lm
from lightmeter.cli.print_results import show_plan
from lightmeter.errors import ManifestError, SettingsError, UsageError
from lightmeter.testing import tiny_jpeg, tiny_video


@pytest.fixture(autouse=True)
def _no_service(monkeypatch, tmp_path, cache):
    monkeypatch.setenv("LIGHTMETER_SETTINGS", "/dev/null")
    monkeypatch.setenv("LIGHTMETER_CACHE_DIR", str(cache))
    monkeypatch.delenv("LIGHTMETER_BASE_URL", raising=False)


@pytest.fixture
def folder(tmp_path) -> Path:
    """Return a folder with two pictures, a video, and a video whose file name is that of a picture."""
    (tmp_path / "a.jpg").write_bytes(tiny_jpeg(1))
    (tmp_path / "b.jpg").write_bytes(tiny_jpeg(2))
    tiny_video(tmp_path / "c.avi", frames=25, fps=10)
    tiny_video(tmp_path / "d.avi", frames=21, fps=10)
    (tmp_path / "m.csv").write_text("path,kind\na.jpg,\nb.jpg,image\nc.avi,\nd.avi,image\n")
    return tmp_path


async def test_frames_are_counted_before_they_are_paid_for(folder):
    """A video is priced by its length, whatever its name says: 2.5 s and 2.1 s are three frames each."""
    plan = await lm.aio.plan(folder / "m.csv", features=["tags", "colors", "nsfw"])
    assert plan.credits.high == 2 + 3 + 3
    run = await lm.aio.run(plan, folder / "out")
    assert run.summary().paid == 8
    assert run.summary().paid in plan.credits


async def test_without_prechecks_the_range_is_wide_and_still_holds(folder):
    """Without pre-checks, a row is priced from one picture up to max_frames frames."""
    plan = await lm.aio.plan(folder / "m.csv", features=["tags", "colors", "nsfw"], precheck=False)
    assert plan.credits.low <= 4
    assert plan.credits.high == 1 + 1 + 3 + 1
    assert json.loads(json.dumps(plan.to_dict()))["counts"]["pending"] == 4


async def test_a_plan_says_how_much_of_its_videos_is_not_covered(folder, capsys):
    """Text, JSON, plan file, HTML and terminal say how much of the videos is covered, and advise an interval."""
    plan = await lm.aio.plan(folder / "m.csv", features=["colors"], max_frames=1)
    sentence = "2 videos: the frames cover the first 1 s of each; 57 % of 4.6 s is not covered"
    assert [line for line in str(plan).splitlines() if line.strip().startswith(sentence)]
    assert sentence in plan._repr_html_()
    show_plan(plan, err=False)
    assert sentence in capsys.readouterr().out
    advice = "Capture interval 3 spreads 1 frame over 3 s"
    assert plan.advice[-1].startswith(advice)
    saved = json.loads(plan.save(folder / "plan.json").read_text())
    assert saved["videos"] == plan.to_dict()["videos"]
    assert (saved["videos"]["seconds"], saved["videos"]["covered_s"]) == (4.6, 2)
    assert saved["videos"]["better"] == {"capture_interval": 3, "frames": 2, "covered_s": 4.6, "video_s": 3}
    spread = plan.with_options(capture_interval=3)
    assert spread.credits == plan.credits
    assert (spread.videos.covered_s, spread.videos.sentence) == (4.6, None)
    assert not any(sentence.startswith("Capture interval") for sentence in spread.advice)


async def test_a_plan_without_uncovered_videos_says_nothing_of_them(folder):
    """A plan says nothing of coverage if it has no videos or covers them in full."""
    (folder / "images.csv").write_text("path\na.jpg\n")
    plan = await lm.aio.plan(folder / "images.csv", features=["colors"])
    assert (plan.videos, plan.to_dict()["videos"]) == (None, None)
    whole = await lm.aio.plan(folder / "m.csv", features=["colors"])
    assert "not looked at" not in str(whole)


async def test_a_plan_leaves_nothing_behind(folder):
    """The temporary folder of a plan is removed with the plan, and if planning fails."""
    plan = await lm.aio.plan(folder / "m.csv")
    plan_folder = plan.folder
    assert plan_folder.exists()
    del plan
    gc.collect()
    assert not plan_folder.exists()
    with pytest.raises(ManifestError):
        await lm.aio.plan(folder / "missing.csv")


async def test_one_plan_can_be_run_into_two_folders(folder):
    """The same plan can be run into two folders."""
    plan = await lm.aio.plan(["http://127.0.0.1:9/a.jpg", "nonsense"], features=["colors"], precheck=False)
    for name in ("one", "two"):
        run = await lm.aio.run(plan, folder / name)
        assert (run.summary().counts["failed"], run.summary().counts["skipped"]) == (1, 1)


async def test_another_manifest_runs_in_the_folder_of_a_run_that_its_budget_stopped(folder):
    """A run that left rows over its budget does not refuse the next manifest for its folder."""
    stopped = await lm.aio.run(
        await lm.aio.plan(["http://127.0.0.1:9/b.jpg"], features=["colors"], precheck=False, budget=0), folder / "out"
    )
    assert stopped.summary().counts["over_budget"] == 1
    run = await lm.aio.run(
        await lm.aio.plan(["http://127.0.0.1:9/a.jpg"], features=["colors"], precheck=False), folder / "out"
    )
    assert (run.summary().rows, run.summary().counts["failed"]) == (1, 1)


async def test_a_feature_that_no_local_model_offers_is_an_error():
    """A feature that no local model offers is an error before the manifest is read."""
    with pytest.raises(SettingsError, match="offers none of: faces"):
        await lm.aio.plan(["http://x.example/a.jpg"], backends=["palette"], features=["faces"])


def test_a_run_reads_as_a_sentence_and_lists_its_tables(folder):
    """The repr of a run shows its row counts, and dir() lists its tables."""
    run = lm.run(lm.plan([{"path": str(folder / "a.jpg")}], features=["colors"]), folder / "out")
    assert "1 row, 1 ok, 1 credit paid" in repr(run)
    assert "colors" in dir(run)
    with pytest.raises(AttributeError, match="tables are assets"):
        _ = run.smells


def test_named_queries_run_by_name(folder):
    """`Run.ask` executes a named query; the error for an unknown name lists all names."""
    run = lm.run(lm.plan([{"path": str(folder / "a.jpg")}], features=["colors"]), folder / "out")
    assert run.ask("palette", most=1).num_rows == 1
    with pytest.raises(UsageError, match="no query named 'exposure'") as caught:
        run.ask("exposure")
    assert "palette" in caught.value.hint
