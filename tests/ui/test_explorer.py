"""The view-model of the gallery without a browser, with a real run."""

from __future__ import annotations

import json
import shutil

import pyarrow as pa
import pytest

import lightmeter as lm
from lightmeter.errors import JournalError, UsageError
from lightmeter.tables import Dataset
from lightmeter.tables.arrow.schema import schema
from lightmeter.testing import tiny_jpeg
from lightmeter.ui.gallery import gallery_columns
from lightmeter.ui.gallery.explorer import ExplorerView
from tests.engine.hostile import Hostile, listening
from tests.tables.replace_table import replace_table

ALL = ["chelsea", "coffee", "samoyed", "again", "<b>gone</b>"]


@pytest.fixture
def explorer(run):
    """A view of the run that is ready."""
    view = ExplorerView(run)
    view.wait()
    yield view
    view.close_view()


def visible_items(explorer, **traits):
    """Set traits, and return the ids of the items shown."""
    for name, value in traits.items():
        setattr(explorer, name, value)
    explorer.wait()
    page = explorer.page(explorer.result["version"], 0, 100)
    return [card["item_id"] for card in page["cards"]]


def ask(view, method, **params):
    """Call a method as the page does, and return the reply."""
    replies = []
    view.connect(replies.append)
    view.on_message({"id": "1", "method": method, "params": params})
    return next(reply for reply in replies if reply.get("id") == "1")


def test_all_rows_are_shown_in_manifest_order(explorer):
    """Without a filter the gallery shows every row, duplicates and missing files included."""
    assert visible_items(explorer) == ALL
    assert (explorer.result["items"], explorer.result["total"]) == (5, 5)


def test_of_very_many_columns_the_first_are_filters(tmp_path, monkeypatch):
    """Of more columns than the gallery has memory for, the first are filters; all are there to sort by."""
    monkeypatch.setattr(gallery_columns, "MAX_FACETS", 2)
    rows = [{"url": f"http://pictures.example/{n}.jpg", "c0": 0.5, "c1": n, "c2": "x", "c3": "x"} for n in range(2)]
    plan = lm.plan(rows, features=["tags"], precheck=False, budget=0)
    view = ExplorerView(lm.run(plan, out=tmp_path / "out"))
    view.wait()
    assert [name for name in view.result["facets"]["columns"] if name.startswith("c")] == ["c1", "c2"]
    assert {"c0", "c1", "c2", "c3"} <= set(view.result["sorts"])
    view.close_view()


def test_columns_of_the_names_that_queries_add_are_ordinary(tmp_path):
    """Columns of the manifest named as what the gallery's queries add are shown, kept, filters and orders."""
    rows = [{"id": n, "url": f"http://x.example/{n}.jpg", "lm_position": 9 - int(n), "lm_key": n} for n in "123"]
    run = lm.run(lm.plan(rows, features=["tags"], precheck=False, budget=0), out=tmp_path / "out")
    view = ExplorerView(run)
    assert visible_items(view) == ["1", "2", "3"]
    assert visible_items(view, sort={"by": "column:lm_position_manifest"}) == ["3", "2", "1"]
    assert visible_items(view, sort={"by": "severity"}) == ["1", "2", "3"]
    assert visible_items(view, filters={"values": {"lm_position_manifest": ["8"], "lm_key": ["1"]}}) == ["1"]
    assert view.rows().schema.names == run.table("assets").schema.names
    assert view.rows().column("lm_position_manifest").to_pylist() == [8]
    view.close_view()


def test_filters_combine(explorer):
    """Values of one facet are alternatives, facets combine; an empty dict shows all items again."""
    assert visible_items(explorer, filters={"tags": ["cat"]}) == ["chelsea", "again"]
    assert visible_items(explorer, filters={"tags": ["cat", "coffee"]}) == ["chelsea", "coffee", "again"]
    assert visible_items(explorer, filters={"tags": ["cat"], "values": {"status": ["duplicate"]}}) == ["again"]
    assert visible_items(explorer, filters={"severity": [0.9, 1.0]}) == []
    assert visible_items(explorer, filters={}) == ALL


def test_search_finds_parts_of_tags(explorer):
    """The search finds tags that contain a text in any case, with their number of items."""
    assert explorer.find_tags(" CA ") == [{"value": "cat", "items": 2}]
    assert explorer.find_tags("%") == []


def test_color_names_and_invalid_colors(explorer):
    """A CSS name filters as its hex value; an invalid color shows an error and keeps the items."""
    for red in ("red", "Red ", "#f00", "#ff0000ff"):
        visible_items(explorer, filters={"color": {"color": red}})
        assert (explorer.result["filters"]["color"]["color"], explorer.problem) == ("#ff0000", "")
    before = explorer.result
    visible_items(explorer, filters={"color": {"color": "reddish"}})
    assert "'reddish' is no color" in explorer.problem
    assert explorer.result == before
    visible_items(explorer, filters={})
    assert explorer.problem == ""


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("filters", {"tag": ["x"]}),
        ("filters", {"severity": [2, "a"]}),
        ("sort", {"by": "column:gone"}),
    ],
)
def test_invalid_filters_are_shown_as_an_error(explorer, name, value):
    """Invalid filters and orders of a page or a user show an error, and the next valid ones remove it."""
    visible_items(explorer, **{name: value})
    assert explorer.problem
    assert visible_items(explorer, **{name: {}}) == ALL
    assert explorer.problem == ""


def test_rows_and_sql_give_the_filtered_items(explorer, run):
    """`rows` returns the filtered rows in their order, and `run.sql(explorer.sql)` the same."""
    order = {"by": "column:url", "descending": True}
    ids = visible_items(explorer, filters={"sources": ["imagenet"]}, sort=order)
    assert ids
    assert explorer.rows().column("item_id").to_pylist() == ids
    assert run.sql(explorer.sql)["item_id"].tolist() == ids
    assert explorer.rows().schema.names == run.table("assets").schema.names


def test_rows_give_the_selection_first(explorer):
    """Items selected by hand are what `rows` returns, unless the argument says otherwise."""
    explorer.selection = ["again", "coffee"]
    assert explorer.rows().column("item_id").to_pylist() == ["coffee", "again"]
    assert explorer.rows("filtered").num_rows == 5
    explorer.selection = []
    assert explorer.rows("selected").num_rows == 0
    with pytest.raises(UsageError, match="neither"):
        explorer.rows("all")


def test_saved_views_are_kept_with_the_run(run, tmp_path):
    """A saved view shows the same items in another gallery of the run."""
    out = tmp_path / "out"
    shutil.copytree(run.folder, out)
    first, second = ExplorerView(out), None
    visible_items(first, filters={"tags": ["cat"]}, sort={"by": "severity", "descending": True})
    assert "error" not in ask(first, "save_view", name="cats")
    second = ExplorerView(str(out))
    assert "error" not in ask(second, "open_view", name="cats")
    assert visible_items(second) == visible_items(first)
    ask(second, "delete_view", name="cats")
    assert second.views == ExplorerView(out).views == {}


def test_broken_saved_views_do_not_hide_the_gallery(run, tmp_path):
    """A file of saved views that cannot be read is an error beside the gallery."""
    out = tmp_path / "out"
    shutil.copytree(run.folder, out)
    (out / "explorer-views.json").write_text("{")
    explorer = ExplorerView(out)
    assert visible_items(explorer) == ALL
    assert "explorer-views.json" in ask(explorer, "save_view", name="x")["error"]["message"]


def test_pages_of_older_filters_are_empty(explorer):
    """A page for filters that have changed has no cards, and says the version of those shown."""
    version = explorer.result["version"]
    visible_items(explorer, filters={"tags": ["cat"]})
    assert explorer.page(version, 0, 10) == {"version": explorer.result["version"], "cards": []}


def test_too_large_ranges_are_refused(explorer):
    """A range of too many items is an error that names the limit."""
    assert ask(explorer, "item_range", first=1, last=2)["result"] == ["coffee", "samoyed"]
    assert "100,000" in ask(explorer, "item_range", first=0, last=10**6)["error"]["message"]


def test_the_state_is_json(explorer):
    """The state that the page gets is plain JSON."""
    visible_items(explorer, filters={"color": {"color": "teal"}, "severity": (0, 1)}, sort={"by": "tag:cat"})
    assert json.loads(json.dumps(explorer.page_state(), allow_nan=False))["result"]["total"] == 5


def test_a_folder_opens_like_a_run(run):
    """A folder, as a path or a string, opens like the run."""
    assert visible_items(ExplorerView(run.folder)) == visible_items(ExplorerView(str(run.folder))) == ALL


def test_a_folder_without_a_run_is_an_error(tmp_path):
    """A folder without a run raises JournalError."""
    with pytest.raises(JournalError):
        ExplorerView(tmp_path)


def test_a_run_without_tables_has_no_items(run, tmp_path):
    """Without tables the gallery is empty, and names the command that writes them from the journal."""
    shutil.copy(run.folder / "journal.sqlite", tmp_path)
    explorer = ExplorerView(tmp_path)
    assert visible_items(explorer) == []
    assert "no tables yet; its journal holds the answers of 3 rows" in explorer.problem
    assert f"lightmeter rebuild {tmp_path}" in explorer.problem


def test_broken_tables_are_an_error(run, tmp_path):
    """A broken file of the tables is an error that names it."""
    out = tmp_path / "out"
    shutil.copytree(run.folder, out)
    next((out / "tables" / "tags").iterdir()).write_bytes(b"PAR1 broken")
    explorer = ExplorerView(out)
    explorer.wait()
    assert "tags" in explorer.problem


@pytest.fixture
def run_with_embeddings(run, tmp_path):
    """A copy of the run with embeddings: coffee is more similar to chelsea than samoyed is."""
    out = tmp_path / "out"
    shutil.copytree(run.folder, out)
    schema_, vectors = schema("embeddings"), {"chelsea": [1, 0], "coffee": [0.8, 0.6], "samoyed": [0.6, 0.8]}
    columns = {field.name: pa.nulls(len(vectors), field.type) for field in schema_}
    columns |= {
        "item_id": pa.array(vectors),
        "model": pa.array(["m"] * len(vectors)),
        "vector": pa.array(vectors.values(), schema_.field("vector").type),
    }
    with replace_table(Dataset(out), "embeddings", schema_) as part:
        part.write(pa.table(columns, schema=schema_))
    return out


def test_similar_items(run_with_embeddings):
    """Similar items are shown most similar first, and combine with other filters."""
    explorer = ExplorerView(run_with_embeddings)
    explorer.wait()
    assert explorer.result["has_embeddings"]
    assert "error" not in ask(explorer, "show_similar", item_id="chelsea")
    assert visible_items(explorer) == ["coffee", "samoyed"]
    assert explorer.filters["similar"]["name"] == "chelsea.jpg"
    assert visible_items(explorer, filters={**explorer.filters, "values": {"status": ["skipped"]}}) == []
    assert "again has no embedding" in ask(explorer, "show_similar", item_id="again")["error"]["message"]


def test_the_notebook_widget_is_the_same(run):
    """`lm.Explorer` is this view-model as a notebook widget, and its text representation is one line."""
    explorer = lm.Explorer(run)
    explorer.wait()
    data, _ = explorer._repr_mimebundle_()
    assert data["text/plain"].endswith("5 of 5 items)")
    assert "application/vnd.jupyter.widget-view+json" in data
    assert explorer.rows().num_rows == 5


@pytest.mark.usefixtures("charges_at_once")
async def test_pictures_of_earlier_manifests_are_shown(tmp_path, monkeypatch):
    """After another manifest ran in the same folder, earlier items show their file, or the thumbnail that was kept."""
    monkeypatch.setenv("LIGHTMETER_CACHE_DIR", str(tmp_path / "cache"))
    async with listening(Hostile(lambda *_: "answer")) as base_url:
        for name in ("first", "second", "third"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "a.jpg").write_bytes(tiny_jpeg(width=200, height=100 + 10 * len(name)))
            manifest = tmp_path / name / "rows.jsonl"
            manifest.write_text(json.dumps({"id": name, "path": "a.jpg"}) + "\n", encoding="utf-8")
            plan = await lm.aio.plan(manifest, base_url=base_url, backends=["clarifai"], features=["tags"])
            run = await lm.aio.run(plan, tmp_path / "out")
    (tmp_path / "first" / "a.jpg").unlink()
    view = ExplorerView(run)
    sources = view.thumbnail_sources(["first", "second", "third", "unknown"])
    view.close_view()
    assert {name: source.path for name, source in sources.items()} == {
        name: str(tmp_path / name / "a.jpg") for name in ("first", "second", "third")
    }
    assert all(source.kept for source in sources.values())


def test_text_of_a_new_gallery(run):
    """`str` waits until the tables are read, so that a new gallery is not only said to be loading."""
    assert str(ExplorerView(run)) == f"Explorer({str(run.folder)!r}: 5 of 5 items)"
