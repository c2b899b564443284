"""Rows that return in a later run: with a picture that they had before, beside others of one URL, after a refusal."""

from __future__ import annotations

import json

import pytest

import lightmeter as lm
from tests.engine.hostile import Hostile, listening

OPTIONS = {"features": ["tags"], "backends": ["clarifai"], "precheck": False, "batch_size": 1}


@pytest.fixture(autouse=True)
def own_settings(charges_at_once, monkeypatch, cache):
    """Set a key and folders of their own; keep one earlier run."""
    monkeypatch.setenv("LIGHTMETER_CACHE_DIR", str(cache))
    monkeypatch.setenv("LIGHTMETER_KEEP_RUNS", "1")


@pytest.fixture
async def service():
    """Run a service that answers as its `script` says."""
    hostile = Hostile(lambda *_: "answer")
    async with listening(hostile) as hostile.base_url:
        yield hostile


@pytest.fixture
def night(service, tmp_path):
    """Return a function that runs a manifest into one folder: item id → URL, or rows."""

    async def run(rows, **options):
        rows = [{"id": item_id, "url": url} for item_id, url in rows.items()] if isinstance(rows, dict) else rows
        plan = await lm.plan(rows, **{**OPTIONS, "base_url": service.base_url, **options})
        return await lm.run(plan, tmp_path / "out", consent=True)

    return run


def url(name: object) -> str:
    """Return the URL of a picture."""
    return f"http://pictures.example/{name}.jpg"


def sources(run: lm.Run) -> dict[str, str]:
    """Return item id → source of the item's only tag, which is the URL or number that the service answered."""
    tags = run.tags
    assert tags["item_id"].is_unique
    return dict(zip(tags["item_id"], tags["source"], strict=True))


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
