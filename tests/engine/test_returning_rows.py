"""Rows that return in a later run: with a picture that they had before, beside others of one URL, after a refusal."""

from __future__ import annotations

import json

import pytest

import lightmeter as lm
from lightmeter.media.image import load_rgb
from lightmeter.testing import tiny_jpeg, tiny_video
from tests.conftest import DATA
from tests.engine.hostile import gallery
from tests.engine.streaming import last, stream


@pytest.fixture(autouse=True)
def own_settings(charges_at_once, monkeypatch, cache):
    """Set a key and folders of their own; keep one earlier run."""
    monkeypatch.setenv("LIGHTMETER_CACHE_DIR", str(cache))
    monkeypatch.setenv("LIGHTMETER_KEEP_RUNS", "1")


def url(name: object) -> str:
    """Return the URL of a picture."""
    return f"http://pictures.example/{name}.jpg"


def sources(run: lm.Run) -> dict[str, str]:
    """Return item id → source of the item's only tag, which is the URL or number that the service answered."""
    tags = run.tags
    assert tags["item_id"].is_unique
    return dict(zip(tags["item_id"], tags["source"], strict=True))


async def test_a_picture_that_returns_after_its_run_was_removed_is_free(night, service):
    """A row that gets its former picture back has its facts and costs nothing; no table shows the picture before."""
    await night({"b": url("b0")})
    for number, name in enumerate(("b1", "b2", "b1", "b2")):
        run = await night({"b": url(name), "n": url(number)})
        assert set(run.assets["item_id"]) == {"b", "n"}
    run = await night({"b": url("b0")})
    assert sorted(service.charged) == sorted(map(url, ["b0", "b1", "b2", *range(4)]))
    assert sources(run) == {"b": url("b0"), "n": url(3)}
    assert run.sql("SELECT sum(credits) AS n FROM assets")["n"][0] == len(service.charged)
    assert run.sql("SELECT count(*) AS n FROM errors")["n"][0] == 0


async def test_a_row_that_is_gone_returns_for_free_with_a_former_picture(night, service):
    """A row may change, go, and return with the picture that it had first."""
    for name in ("b0", "b1", None, "b0"):
        await night({"a": url("a")} if name is None else {"a": url("a"), "b": url(name)})
    assert sorted(service.charged) == sorted(map(url, ["a", "b0", "b1"]))


async def test_a_streamed_run_finds_former_pictures(service, tmp_path):
    """With `--stream` older runs are removed before the rows are planned: what they paid for is found all the same."""
    manifest = tmp_path / "m.jsonl"
    for name in ("b0", "b1", "b0"):
        manifest.write_text(json.dumps({"id": "b", "url": url(name)}) + "\n")
        run = await last(stream(manifest, tmp_path / "out", service, precheck=False))
    assert service.charged == [url("b0"), url("b1")]
    assert sources(run) == {"b": url("b0")}


async def test_a_former_failure_that_was_charged_is_not_paid_again(night, service):
    """A picture that failed for credits fails again when it returns, and costs nothing."""
    failure = '{"credits_paid": 1, "credits": 999, "all": {"assets": [], "errors": [{"message": "no picture"}]}}'
    service.script = lambda _, body: f"raw {failure}" if "b0" in str(body) else "answer"
    for name in ("b0", "b1", "b2"):
        run = await night({"b": url(name)})
    assert len(run.table("errors")) == 0
    run = await night({"b": url("b0")})
    assert [row["message"] for row in run.table("errors").to_pylist()] == ["no picture"]
    assert sorted(service.charged) == sorted(map(url, ["b0", "b1", "b2"]))
    assert run.summary().counts["failed"] == 1


async def test_former_content_of_a_url_is_known_again(night, service):
    """Where the checks read the content, the content decides: a URL that shows a former picture costs nothing."""
    pictures = {"/a.jpg": b""}
    async with gallery(pictures) as base:
        for seed in (1, 2, 3, 1, 2):
            pictures["/a.jpg"] = tiny_jpeg(seed)
            paid = len(service.charged)
            run = await night([{"id": "a", "url": f"{base}/a.jpg", "paid": paid, "seed": seed}], precheck=True)
            assert run.summary().counts["ok"] == 1
    assert len(service.charged) == 3
    assert set(run.table("prechecks")["item_id"].to_pylist()) == {"a"}


async def test_the_frames_of_a_former_video_are_known_again(night, service, tmp_path):
    """The frames of a video that is put back after others cost nothing."""
    scenes = [load_rgb((DATA / "media" / f"{name}.jpg").read_bytes())[:256, :256] for name in ("koala", "coffee")]
    video = tmp_path / "1.avi"
    options = {"precheck": True, "video": "frames", "max_frames": 60, "url_column": "url"}
    for frames in (scenes, scenes[:1], scenes[1:], scenes):
        tiny_video(video, frames=frames, fps=1)
        run = await night([{"id": "a", "url": str(video), "paid": len(service.charged)}], **options)
    assert len(service.charged) == 4
    assert sorted(run.tags["frame"]) == [0, 1]


def numbered(number: int, _: object) -> str:
    """Answer every request with a tag of its own number."""
    tag = {"name": "thing", "score": 0.9, "source": f"answer {number}"}
    asset = {"name": url("A"), "tags": {"thing": [tag]}}
    return "raw " + json.dumps({"credits_paid": 1, "credits": 900, "all": {"assets": [asset], "errors": []}})


@pytest.mark.parametrize("cached", [False, True])
async def test_rows_of_one_url_keep_their_own_answers(night, service, tmp_path, monkeypatch, cached):
    """With `--duplicates off` each row that was paid for keeps its answer, in any order, also with an answer cache."""
    if cached:
        monkeypatch.setenv("LIGHTMETER_ANSWERS_DIR", str(tmp_path / "answers"))
    service.script = numbered
    rows = dict.fromkeys("abc", url("A"))
    first = sources(await night(rows, duplicates="off"))
    assert len(set(first.values())) == len(service.charged) == 3
    run = await night(dict.fromkeys("cxab", url("A")), duplicates="off")
    assert {item_id: source for item_id, source in sources(run).items() if item_id != "x"} == first
    await night(dict.fromkeys("ba", url("A")), duplicates="off")
    run = await night({**dict.fromkeys("cba", url("A")), "n": url("N")}, duplicates="off")
    assert {item_id: source for item_id, source in sources(run).items() if item_id in rows} == first
    assert len(service.charged) == 4


async def test_rows_of_one_url_without_ids_keep_an_answer_each(night, service):
    """Rows without ids are paired with the answers of their URL in the order of the manifest."""
    service.script = numbered
    await night([{"url": url("A")}] * 3, duplicates="off")
    run = await night([{"url": url("N")}, *[{"url": url("A")}] * 3], duplicates="off")
    assert run.tags[run.tags["url"] == url("A")]["source"].nunique() == 3
    assert len(service.charged) == 4


async def test_a_refused_row_is_sent_again_when_the_manifest_changes(night, service):
    """A run of an unchanged manifest sends no failed row again; that of a changed one sends those that were free."""
    service.script = lambda *_: "refuse"
    rows = {"a": url("a")}
    for _ in range(2):
        run = await night(rows)
        assert (run.exit_code, run.summary().counts["failed"], service.posts) == (1, 1, 1)
    service.script = lambda *_: "answer"
    run = await night({**rows, "n": url("n")})
    assert (run.exit_code, sorted(service.charged)) == (0, [url("a"), url("n")])
