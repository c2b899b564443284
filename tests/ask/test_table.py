"""The answers table is typed, has a row for every item, and can be rebuilt from the journal."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lightmeter as lm
from lightmeter.errors import UsageError
from lightmeter.export.export_tables import export_tables
from lightmeter.tables import Dataset
from lightmeter.tables.compaction import compact
from lightmeter.tables.remote.write import publish
from lightmeter.testing import tiny_jpeg
from tests.ask.describer import QUESTION, Describer, good, serving

BASE = "http://pictures.example/"
TYPES = {
    "what": pa.string(),
    "count": pa.int64(),
    "share": pa.float64(),
    "safe": pa.bool_(),
    "kind": pa.string(),
    "words": pa.list_(pa.string()),
    "parts": pa.list_(pa.struct([("name", pa.string())])),
}


def rows_of(run):
    return run.table("answers_product").to_pylist()


async def test_the_columns_are_those_of_the_schema(asking):
    """Parquet, Arrow, SQL and `run.answers` have the same typed columns, between the keys and the error."""
    run, _, _ = await asking(lambda *_: f"```json\n{good(words=['a', 'b'], share=1)}\n```")
    (part,) = Dataset(run.folder).parts("answers_product")
    schema = pq.read_schema(part)
    assert schema.names == ["item_id", "url", "frame", "run_id", "source", *TYPES, "error", "raw"]
    assert {name: schema.field(name).type for name in TYPES} == TYPES
    assert schema.field("what").metadata[b"description"] == b"What is seen."
    assert run.answers["share"].tolist() == [1.0] * 4
    assert run.answers_product["what"].tolist() == ["a cup"] * 4
    counted = run.sql("SELECT sum(count) AS n, list(DISTINCT parts[1].name) AS names FROM answers_product")
    assert (counted["n"][0], list(counted["names"][0])) == (8, ["handle"])


async def test_every_item_has_a_row(asking, tmp_path):
    """Items of every status have a row, with values or with a reason."""
    urls = [f"{BASE}0.jpg", f"{BASE}0.jpg", "ftp://pictures.example/1.jpg", tmp_path / "a.jpg", f"{BASE}2.mp4"]
    (tmp_path / "a.jpg").write_bytes(tiny_jpeg())
    service = Describer(lambda *_: good(), lambda post: "refuse free" if post.urls == ("a.jpg",) else None)
    run, _, _ = await asking(service, urls=urls, budget=2)
    rows = rows_of(run)
    assert [row["what"] for row in rows] == ["a cup", "a cup", None, None, None]
    assert [row["error"] and row["error"].partition(":")[0] for row in rows] == [
        *(None, None, "skipped", "failed", "over_budget"),
    ]
    assert rows[3]["error"] == "failed: refused: Invalid request format."
    assert [row["item_id"] for row in rows] == run.assets["item_id"].tolist()


async def test_no_description_is_a_reason_not_a_second_question(asking):
    """A row without any description has the service's message, and its question is not repeated."""
    run, service, _ = await asking(lambda *_: None, rows=1)
    (row,) = rows_of(run)
    assert row["error"] == "No description was answered. The service says: gemini: the provider is asleep"
    assert (row["source"], len(service.posts)) == (None, 1)


async def test_frames_of_a_video_are_rows_of_their_own(asking):
    """Each frame of a video has its own row; after a repeated question, failed frames get the second answer."""
    first = [good(what="one"), "no idea", good(what="three")]
    second = [good(what="not wanted"), good(what="two"), "no idea"]
    run, service, plan = await asking(lambda _, post: second if post.again else first, urls=[f"{BASE}a.mp4"])
    rows = [(row["frame"], row["what"], row["error"]) for row in rows_of(run)]
    assert rows == [(0, "one", None), (1, "two", None), (2, "three", None)]
    assert (len(service.posts), service.charged) == (2, 6)
    assert (plan.credits.low, plan.credits.high) == (1, 6)


async def test_repeated_questions_about_a_batch_are_separate_requests(asking):
    """Rows of a batch keep their first answers, and each row with an invalid one gets a request of its own."""
    run, service, _ = await asking(
        lambda url, post: good(what=url) if post.again or not url.endswith("5.jpg") else "no", rows=8, batch_size=4
    )
    assert max(len(post.urls) for post in service.posts) > 1
    assert [post.urls for post in service.second] == [(f"{BASE}5.jpg",)]
    assert all(row["what"] == row["url"] for row in rows_of(run))


async def test_questions_about_local_files_are_repeated(asking, tmp_path):
    """A local file is sent again with the second prompt."""
    (tmp_path / "a.jpg").write_bytes(tiny_jpeg())
    run, service, _ = await asking(lambda _, post: good() if post.again else "no", urls=[tmp_path / "a.jpg"])
    assert [post.urls for post in service.posts] == [("a.jpg",)] * 2
    assert rows_of(run)[0]["what"] == "a cup"


async def test_the_table_can_be_rebuilt_from_the_journal(asking):
    """`rebuild` writes the same rows without a request, and compacting and publishing include the table."""
    run, service, _ = await asking(lambda _, post: "bad" if not post.again else good())
    before, posts = run.table("answers_product"), len(service.posts)
    for part in Dataset(run.folder).parts("answers_product"):
        part.unlink()
    written = export_tables(run.folder, rewrite_all=True)
    assert written["answers_product"] == 4
    assert lm.open(run.folder).table("answers_product").equals(before)
    assert "answers_product" in (run.folder / "views.sql").read_text()
    assert {one.table: one.rows for one in compact(Dataset(run.folder))}["answers_product"] == 4
    place = run.folder.parent / "shared"
    publish(Dataset(run.folder), f"file://{place}")
    assert lm.open(f"file://{place}").table("answers_product").equals(before)
    assert len(service.posts) == posts


async def test_the_report_shows_a_run_with_a_question(asking):
    """The report is written as for any other run."""
    run, _, _ = await asking(lambda *_: good())
    assert (await lm.aio.report(run.folder)).stat().st_size > 0


async def test_two_runs_of_a_folder_share_the_table(asking):
    """A second manifest in the same folder adds its rows to those of the first run."""
    await asking(lambda *_: good(), urls=[f"{BASE}1.jpg"])
    run, _, _ = await asking(lambda *_: good(what="new"), urls=[f"{BASE}2.jpg"])
    assert {row["url"]: row["what"] for row in rows_of(run)} == {f"{BASE}1.jpg": "a cup", f"{BASE}2.jpg": "new"}
    stricter = {**QUESTION, "schema": {**QUESTION["schema"], "required": ["what", "count", "safe"]}}
    run, _, _ = await asking(lambda *_: good(safe=True), urls=[f"{BASE}3.jpg"], ask=stricter)
    errors = {row["url"]: row["error"] for row in rows_of(run)}
    assert errors[f"{BASE}3.jpg"] is None
    assert errors[f"{BASE}1.jpg"].startswith('the answer: "safe" is a required property.')


async def test_another_question_needs_another_folder(asking, tmp_path):
    """A run keeps its question; another question in the same folder is refused."""
    run, _, _ = await asking(lambda *_: good())
    with pytest.raises(lm.errors.SettingsError, match="other options: ask"):
        await asking(lambda *_: good(), ask={**QUESTION, "prompt": "Why?"})
    with pytest.raises(UsageError, match="there is no table 'answers_other'"):
        run.table("answers_other")
    plain, _, _ = await asking(lambda *_: good(), out="plain", ask=None)
    assert not (tmp_path / "plain" / "tables" / "answers_product").exists()
    with pytest.raises(UsageError, match="This run has no question"):
        _ = plain.answers


async def test_cached_answers_are_reused_only_for_the_same_question(tmp_path, monkeypatch):
    """Valid answers to the same prompt and schema are reused across runs; invalid ones are asked for again."""
    monkeypatch.setenv("LIGHTMETER_ANSWERS_DIR", str(tmp_path / "kept"))
    service = Describer(lambda url, _: "no idea" if url.endswith("3.jpg") else good())
    urls = [f"{BASE}{number}.jpg" for number in range(4)]
    async with serving(service) as base_url:
        how = {"features": ["descriptions"], "backends": ["gemini"], "precheck": False, "base_url": base_url}
        await lm.aio.run(await lm.aio.plan(urls, ask=QUESTION, **how), tmp_path / "first")
        assert service.charged == 5
        plan = await lm.aio.plan(urls, ask={**QUESTION, "name": "other"}, **how)
        assert (plan.counts["ok"], plan.counts["pending"], plan.credits.high) == (3, 1, 2)
        run = await lm.aio.run(plan, tmp_path / "second")
        assert [row["what"] for row in run.table("answers_other").to_pylist()] == [*["a cup"] * 3, None]
        another = await lm.aio.plan(urls, ask={**QUESTION, "prompt": "Where is it?"}, **how)
        assert another.counts["pending"] == 4


async def test_a_plan_file_contains_the_question(asking, tmp_path):
    """`run --plan` asks the planned question, also if the question's file was deleted."""
    service = Describer(lambda *_: good())
    async with serving(service) as base_url:
        urls = [f"{BASE}{number}.jpg" for number in range(2)]
        how = {"features": ["descriptions"], "backends": ["gemini"], "precheck": False, "base_url": base_url}
        plan = await lm.aio.plan(urls, ask=QUESTION, **how)
        loaded = lm.load_plan(plan.save(tmp_path / "plan.json"))
        assert (loaded.credits, loaded.options.ask) == (plan.credits, plan.options.ask)
        run = await lm.aio.run(loaded, tmp_path / "out")
    assert [row["what"] for row in rows_of(run)] == ["a cup"] * 2
