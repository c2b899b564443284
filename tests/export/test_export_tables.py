"""Export of one or more runs in a folder: each item once, with all credits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lightmeter as lm
from lightmeter.errors import TablesError
from lightmeter.export.export_tables import export_tables
from lightmeter.facts.columns import ITEMS
from lightmeter.journal.queries.latest_runs import CREDIT_STEP, credit_share
from lightmeter.money.statement import requests_frame
from lightmeter.tables import TABLES, Dataset
from tests.engine.hostile import Hostile, listening


@given(paid=st.integers(0, 10**6), sharers=st.integers(1, 200))
def test_shares_add_up_to_what_was_paid(paid, sharers):
    """However the price divides, the doubles sum to it exactly, in any order, and no share is far from another."""
    shares = [credit_share(paid, sharers, place) for place in range(sharers)]
    assert sum(shares) == sum(reversed(shares)) == paid
    assert max(shares) - min(shares) <= CREDIT_STEP


@pytest.fixture
def run_into(tmp_path, monkeypatch):
    """Run rows (id, url, colour) into one folder against a service that answers a script."""
    monkeypatch.setenv("LIGHTMETER_API_KEY", "key")
    monkeypatch.setenv("LIGHTMETER_CHARGES_FINAL_S", "0")
    monkeypatch.setenv("LIGHTMETER_SETTINGS", "/dev/null")
    monkeypatch.setenv("LIGHTMETER_CACHE_DIR", str(tmp_path / "cache"))

    async def run(rows, script=lambda *_: "answer", column="team", features=("tags",), **more):
        manifest = tmp_path / "manifest.csv"
        lines = [f"id,url,{column}", *(f"{item},http://pictures.example/{name},x" for item, name in rows)]
        manifest.write_text("\n".join(lines) + "\n", encoding="utf-8")
        options = {"features": features, "backends": ["clarifai"], "precheck": False, "batch_size": 3, **more}
        async with listening(script if isinstance(script, Hostile) else Hostile(script)) as base_url:
            return await lm.aio.run(await lm.aio.plan(manifest, base_url=base_url, **options), tmp_path / "out")

    return run


def sorted_rows(out: Path, table: str, *names: str) -> list[tuple]:
    rows = Dataset(out).read(table).select(list(names)).to_pylist()
    return sorted((tuple(row.values()) for row in rows), key=str)


def parts(out: Path) -> dict[str, int]:
    return {table: len(Dataset(out).parts(table)) for table in TABLES}


async def test_a_run_of_other_items_adds_parts_of_its_own(run_into):
    """A second manifest with new items keeps the first run's facts as they are, and marks its rows; so does a third."""
    first = await run_into([("1", "a"), ("2", "b")])
    out = first.folder
    before = {table: Dataset(out).parts(table)[0].read_bytes() for table in TABLES}
    assets = Dataset(out).read("assets")
    await run_into([("3", "c")])
    assert parts(out) == dict.fromkeys(TABLES, 2)
    after = {table: Dataset(out).parts(table)[0].read_bytes() for table in TABLES}
    assert {table for table in TABLES if after[table] != before[table]} == {"assets"}
    marked = Dataset(out).read("assets").slice(0, 2)
    fields = [table.schema.remove_metadata() for table in (assets, marked)]
    assert fields[0].equals(fields[1], check_metadata=True)
    assert marked.drop_columns("reason").equals(assets.drop_columns("reason"))
    assert sorted_rows(out, "assets", "item_id", "reason") == [("1", "gone"), ("2", "gone"), ("3", None)]
    marked_once = Dataset(out).parts("assets")[0].stat().st_ino
    last = await run_into([("4", "d")])
    assert Dataset(out).parts("assets")[0].stat().st_ino == marked_once
    assert sorted_rows(out, "assets", "item_id", "reason") == [*((item, "gone") for item in "123"), ("4", None)]
    assert parts(out) == dict.fromkeys(TABLES, 3)
    assert sorted_rows(out, "assets", "item_id", "status") == [(item, "ok") for item in "1234"]
    assert sorted_rows(out, "tags", "item_id") == [(item,) for item in "1234"]
    assert last.sql("SELECT sum(credits) AS n FROM assets")["n"][0] == 4
    assert last.sql("SELECT sum(credits_paid) AS n FROM requests")["n"][0] == 4


async def test_an_item_that_comes_again_is_updated_and_stands_once(run_into):
    """An item has its latest status, the facts of the latest answer about its picture, and the credits of all runs."""
    first = await run_into([("1", "a"), ("2", "b"), ("3", "c")])
    again = await run_into([("2", "b2"), ("3", "c"), ("4", "d")], lambda *_: "refuse", reuse=False)
    out = again.folder
    assert parts(out) == dict.fromkeys(TABLES, 1)
    old, new = first.header.run_id, again.header.run_id
    assert sorted_rows(out, "assets", "item_id", "status", "run_id", "credits") == [
        ("1", "ok", old, 1.0),
        ("2", "failed", new, 1.0),
        ("3", "failed", new, 1.0),
        ("4", "failed", new, 0.0),
    ]
    assert sorted_rows(out, "tags", "item_id", "run_id") == [("1", old), ("3", old)]
    last = await run_into([("2", "b3")])
    assert sorted_rows(out, "tags", "item_id", "run_id")[1] == ("2", last.header.run_id)
    assert sorted_rows(out, "assets", "item_id", "credits", "url")[1] == ("2", 2.0, "http://pictures.example/b3")
    assert last.sql("SELECT sum(credits) AS n FROM assets")["n"][0] == 4
    assert last.sql("SELECT count(DISTINCT run_id) AS n FROM requests")["n"][0] == 3


async def test_another_schema_is_written_whole(run_into):
    """When the second manifest has columns of its own, all rows get them: no reader meets two kinds of parts."""
    await run_into([("1", "a")], column="team")
    out = (await run_into([("2", "b")], column="colour")).folder
    assert parts(out)["assets"] == 1
    assert sorted_rows(out, "assets", "item_id", "team", "colour") == [("1", "x", None), ("2", None, "x")]


async def test_a_rebuild_gives_equal_tables(run_into):
    """Whatever wrote the tables, the journals give the same rows again, in one part each."""
    await run_into([("1", "a"), ("2", "b")])
    out = (await run_into([("3", "c"), ("4", "c")])).folder

    def rows():
        return {table: sorted(map(json.dumps, strings(table))) for table in (*TABLES, ITEMS)}

    def strings(table):
        return [{name: str(value) for name, value in row.items()} for row in Dataset(out).read(table).to_pylist()]

    before = rows()
    written = export_tables(out, rewrite_all=True)
    assert rows() == before
    assert sorted_rows(out, "assets", "item_id", "reason")[:2] == [("1", "gone"), ("2", "gone")]
    assert written == {table: len(before[table]) for table in (*TABLES, ITEMS)}
    assert parts(out) == dict.fromkeys(TABLES, 1)
    assert export_tables(out) == written  # one part has both runs: the last is not told twice
    assert rows() == before


class Silent(Hostile):
    """Answers without naming the charge or the balance."""

    def answer(self, urls, names=None):
        return {"all": super().answer(urls, names)["all"]}


async def test_a_charge_that_no_answer_names_is_null(run_into):
    """What was reserved for a request counts as paid at most, but no table shows it as the charge; later runs too."""
    run = await run_into([("1", "a"), ("2", "b")], Silent(lambda *_: "answer"))
    assert run.summary().paid >= 2
    requests = run.summary().requests
    assert run.summary().to_dict()["unreported_charges"] == run.statement().to_dict()["unreported_charges"] == requests
    assert f"paid        at most {run.summary().paid} credits for" in str(run.statement())
    assert sorted_rows(run.folder, "requests", "credits_paid") == [(None,)] * requests
    assert requests_frame(run.folder)["credits_paid"].isna().all()
    assert sorted_rows(run.folder, "assets", "item_id", "credits") == [("1", None), ("2", None)]
    run = await run_into([("2", "b"), ("3", "c")])
    assert sorted_rows(run.folder, "assets", "item_id", "credits") == [("1", None), ("2", None), ("3", 1.0)]
    assert "unreported_charges" not in run.summary().to_dict()


class Vectors(Hostile):
    """Answers an embedding of each picture, whether it is asked for or not."""

    def answer(self, urls, names=None):
        answer = super().answer(urls, names)
        for asset in answer["all"]["assets"]:
            asset["embeddings"] = [{"model": "m", "vector": [0.6, 0.8]}]
        return answer


def embeddings_of(out: Path) -> list[tuple] | None:
    """Its rows, the same in every place that tells of the tables; None where there is no such table."""
    dataset = Dataset(out)
    listed = json.loads((out / "tables" / "parts.json").read_text())["tables"].get("embeddings", [])
    there = (out / "tables" / "embeddings").exists()
    assert there == bool(listed) == ("embeddings" in (out / "views.sql").read_text())
    assert sum(part["rows"] for part in listed) == dataset.read("embeddings").num_rows
    return sorted_rows(out, "embeddings", "item_id", "model") if there else None


async def test_embeddings_have_a_table_once_they_are_requested_or_answered(run_into):
    """Before that nothing tells of the table but its empty view; from then on each further run has a part of it."""
    out = (await run_into([("1", "a")])).folder
    assert embeddings_of(out) is None
    assert lm.open(out).embeddings.empty
    await run_into([("2", "b")], features=("tags", "embeddings"))
    assert (embeddings_of(out), parts(out)) == ([], dict.fromkeys(TABLES, 2))
    await run_into([("3", "c")], Vectors(lambda *_: "answer"))
    assert (embeddings_of(out), parts(out)) == ([("3", "m")], dict.fromkeys(TABLES, 3))
    run = await run_into([("4", "d")])
    assert (embeddings_of(out), parts(out)) == ([("3", "m")], dict.fromkeys(TABLES, 4))
    assert len(Dataset(out).parts("embeddings")) == 3
    assert export_tables(out, rewrite_all=True)["embeddings"] == 1
    assert (embeddings_of(out), len(Dataset(out).parts("embeddings"))) == ([("3", "m")], 1)
    assert run.sql("SELECT vector FROM embeddings")["vector"][0] == pytest.approx([0.6, 0.8])
    Dataset(out).parts("embeddings")[0].unlink()
    await run_into([("5", "e")])
    assert (embeddings_of(out), parts(out)) == ([("3", "m")], dict.fromkeys(TABLES, 1))


async def test_tables_that_were_lost_come_back_whole(run_into):
    """A second run into a folder whose tables are not those of the first run's journal writes everything anew."""
    out = (await run_into([("1", "a")])).folder
    Dataset(out).parts("tags")[0].unlink()
    await run_into([("2", "b")])
    assert parts(out) == dict.fromkeys(TABLES, 1)
    assert sorted_rows(out, "tags", "item_id") == [("1",), ("2",)]


async def test_tables_that_cannot_be_written_are_named_and_can_be_made_later(run_into):
    """A full disk raises an error that names the command to continue, and the journal is unchanged."""
    out = (await run_into([("1", "a")])).folder
    catalog = out / "catalog.duckdb"
    catalog.unlink()
    catalog.mkdir()  # in the way of the file that would be put there
    with pytest.raises(TablesError, match="cannot be written") as caught:
        export_tables(out)
    assert "lightmeter rebuild" in caught.value.hint
    catalog.rmdir()
    assert export_tables(out, rewrite_all=True)["assets"] == 1


async def test_pictures_by_url_and_files_have_their_size(tmp_path, monkeypatch, cache, data_server, sample_rows):
    """`assets` has width, height and bytes both of local files and of URLs."""
    monkeypatch.setenv("LIGHTMETER_CACHE_DIR", str(cache))
    monkeypatch.setenv("LIGHTMETER_SETTINGS", "/dev/null")
    own = [row for row in sample_rows if row["id"] in ("coffee", "samoyed")]
    files = [Path(__file__).parents[2] / "data" / row["path"] for row in own]
    manifest = tmp_path / "both.csv"
    lines = [*(f"{data_server}/{row['path']}," for row in own), *(f",{path}" for path in files)]
    manifest.write_text("url,path\n" + "\n".join(lines) + "\n")
    plan = await lm.aio.plan(str(manifest), features=["colors"], budget=50)
    assets = (await lm.aio.run(plan, tmp_path / "out")).table("assets").to_pylist()
    assert [row["content_bytes"] for row in assets] == [path.stat().st_size for path in (*files, *files)]
    sizes = [(row["width"], row["height"]) for row in assets]
    assert sizes[:2] == sizes[2:]
    assert all(min(size) > 0 for size in sizes)
