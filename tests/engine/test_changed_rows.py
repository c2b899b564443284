"""Rows that name another picture or video than in an earlier run: which facts the tables show under their items."""

from __future__ import annotations

import json

import pytest

import lightmeter as lm
from lightmeter.export.export_tables import export_tables
from lightmeter.media.image import load_rgb
from lightmeter.testing import tiny_jpeg, tiny_video
from tests.conftest import DATA
from tests.engine.hostile import gallery


@pytest.fixture(autouse=True)
def own_settings(charges_at_once, monkeypatch, cache):
    """Set a key and a cache folder of their own."""
    monkeypatch.setenv("LIGHTMETER_CACHE_DIR", str(cache))


@pytest.fixture
def night(night):
    """As `night` of the other tests; in each folder, the end of a run and a rebuild must write the same facts."""

    async def run(rows, **options):
        result = await night(rows, **options)
        before = facts(result)
        export_tables(result.folder, rewrite_all=True)
        assert facts(result) == before
        return result

    return run


def url(name: object) -> str:
    """Return the URL of a picture."""
    return f"http://pictures.example/{name}.jpg"


def facts(run: lm.Run) -> list[tuple[str, str, str]]:
    """Return (item id, URL, source) of each tag; the source is the URL that the service answered."""
    return sorted(zip(*(run.tags[name] for name in ("item_id", "url", "source")), strict=True))


def sources(run: lm.Run) -> dict[str, str]:
    """Return item id → source of its only tag."""
    return {item_id: source for item_id, _, source in facts(run)}


def statuses(run: lm.Run) -> dict[str, str]:
    """Return item id → status."""
    return dict(zip(run.assets["item_id"], run.assets["status"], strict=True))


@pytest.mark.parametrize(("script", "status"), [("refuse", "failed"), ("drop", "in_doubt"), ("deny", "pending")])
async def test_a_row_with_another_url_has_no_facts_of_its_former_picture(night, service, script, status):
    """Until the new picture is answered, its item has no facts; the former picture returns with its own, for free."""
    await night({"a": url("a0"), "b": url("b"), "copy": url("a0")})
    service.script = lambda *_: script
    run = await night({"a": url("a1"), "b": url("b"), "copy": url("a0")})
    assert statuses(run) == {"a": status, "b": "ok", "copy": "ok"}
    assert sources(run) == {"b": url("b"), "copy": url("a0")}
    assert run.sql("SELECT credits FROM assets WHERE item_id = 'a'")["credits"][0] == 1
    run = await night({"a": url("a0"), "b": url("b")})
    assert sources(run) == {"a": url("a0"), "b": url("b"), "copy": url("a0")}
    assert sorted(service.charged) == [url("a0"), url("b")]


async def test_an_older_answer_about_the_present_picture_counts(night, service):
    """A run that pays for all rows again leaves unanswered rows the answers about the same picture, from any run."""
    await night({"a": url("a0"), "b": url("b0")})
    await night({"a": url("a1"), "b": url("b0")})
    service.script = lambda *_: "refuse"
    run = await night({"a": url("a0"), "b": url("b0"), "n": url("n")}, reuse=False)
    assert statuses(run) == dict.fromkeys("abn", "failed")
    assert sources(run) == {"a": url("a0"), "b": url("b0")}


@pytest.mark.parametrize("broken", [(), ("/a.jpg", "/b.jpg")])
async def test_a_row_with_other_content_has_no_facts_of_its_former_content(night, broken):
    """The content of a URL counts, and where its transfer breaks off, the size and the entity tag."""
    pictures = {"/a.jpg": tiny_jpeg(1), "/b.jpg": tiny_jpeg(2)}
    async with gallery(pictures, broken) as base:
        rows = [{"id": name, "url": f"{base}/{name}.jpg"} for name in "ab"]
        await night(rows, precheck=True)
        pictures["/a.jpg"] = tiny_jpeg(3)
        run = await night([*rows, {"id": "c", "url": f"{base}/b.jpg"}], precheck=True, budget=0)
        assert statuses(run) == {"a": "over_budget", "b": "ok", "c": "duplicate"}
        assert set(sources(run)) == {"b", "c"}
        pictures["/a.jpg"] = tiny_jpeg(1)
        run = await night([*rows, {"id": "c", "url": f"{base}/b.jpg", "night": 3}], precheck=True, budget=0)
        assert set(sources(run)) == {"a", "b", "c"}


async def test_a_row_with_another_video_has_no_facts_of_its_former_frames(night, service, tmp_path):
    """The tags of the frames of a former video leave the tables; those of the present video stay."""
    scenes = [load_rgb((DATA / "media" / f"{name}.jpg").read_bytes())[:256, :256] for name in ("koala", "coffee")]
    videos = [tmp_path / "1.avi", tmp_path / "2.avi"]
    options = {"precheck": True, "video": "frames", "max_frames": 60, "url_column": "url"}
    for video in videos:
        tiny_video(video, frames=scenes, fps=1)
    rows = [{"id": str(number), "url": str(video)} for number, video in enumerate(videos)]
    run = await night(rows, duplicates="off", **options)
    assert sorted(run.tags["frame"]) == [0, 0, 1, 1]
    tiny_video(videos[0], frames=scenes[::-1], fps=1)
    service.script = lambda *_: "refuse"
    run = await night([{**row, "night": 2} for row in rows], duplicates="off", **options)
    assert set(run.tags["item_id"]) == {"1"}


async def test_a_row_that_names_no_picture_has_no_facts(night):
    """A row whose cell is no URL any more has no picture, so no facts of the picture before."""
    await night({"a": url("a0"), "b": url("b")})
    run = await night({"a": "nonsense", "b": url("b")})
    assert statuses(run) == {"a": "skipped", "b": "ok"}
    assert sources(run) == {"b": url("b")}


def described(_: int, body: dict) -> str:
    """Answer each request with a title that names its picture."""
    title = json.dumps({"title": body["url"]})
    asset = {"name": body["url"], "descriptions": [{"description": title, "source": "gemini"}]}
    return "raw " + json.dumps({"credits_paid": 1, "credits": 900, "all": {"assets": [asset], "errors": []}})


async def test_a_question_has_no_answer_about_a_former_picture(night, service):
    """The table of the user's question has one row for each item, about its present picture, or with an error."""
    schema = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}
    ask = lm.Ask(name="titles", prompt="What is it?", schema=schema)
    options = {"ask": ask, "features": ["descriptions"], "backends": ["gemini"]}
    service.script = described
    await night({"a": url("a0"), "b": url("b")}, **options)
    service.script = lambda *_: "refuse"
    run = await night({"a": url("a1"), "b": url("b")}, **options)
    rows = run.table("answers_titles").to_pylist()
    assert {row["item_id"]: row["title"] for row in rows} == {"a": None, "b": url("b")}
    assert [(row["url"], "refused" in row["error"]) for row in rows if row["error"]] == [(url("a1"), True)]
