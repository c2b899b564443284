"""The table `items` after real runs: one row for each row of the manifest."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import duckdb
import pytest

import lightmeter as lm
from lightmeter.export.export_tables import export_tables
from lightmeter.facts.columns import TABLE_COLUMNS
from lightmeter.tables import Dataset
from lightmeter.tables.compaction import compact

MEDIA = Path(__file__).resolve().parents[2] / "data" / "media"
FEATURES = ["tags", "colors", "nsfw", "faces", "texts"]


@pytest.fixture(scope="module", params=["whole", "frames"])
def finished(request, tmp_path_factory, cache):
    """A finished run over pictures, a video, duplicates and bad rows, with the column names of `items`."""
    folder = tmp_path_factory.mktemp("items")
    for name in ("coffee.jpg", "astronaut.jpg", "samoyed.mp4"):
        shutil.copy(MEDIA / name, folder / name)
    (folder / "copy.mp4").write_bytes((folder / "samoyed.mp4").read_bytes())
    (folder / "broken.jpg").write_bytes(b"no picture")
    names = ["coffee.jpg", "astronaut.jpg", "samoyed.mp4", "coffee.jpg", "copy.mp4", "missing.jpg", "broken.jpg"]
    rows = [f"{number},{name},mine,shelf {number % 2}" for number, name in enumerate(names)]
    manifest = folder / "manifest.csv"
    manifest.write_text("\n".join(["id,path,tags,folder", *rows]) + "\n", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LIGHTMETER_CACHE_DIR", str(cache))
        patch.setenv("LIGHTMETER_SETTINGS", "/dev/null")
        patch.delenv("LIGHTMETER_PRICES", raising=False)  # local back ends are free
        run = lm.run(manifest, folder / "out", features=FEATURES, tag_score=0.05, video=request.param)
    return run, names


def test_every_row_of_the_manifest_has_a_row(finished):
    """Answered, duplicate, skipped or broken: each row is there once, in the manifest's order, with its own columns."""
    run, names = finished
    items = run.table("items").to_pylist()
    assert [row["url"] for row in items] == names
    assert [row["item_id"] for row in items] == [str(number) for number in range(len(names))]
    assets = {row["item_id"]: row for row in run.table("assets").to_pylist()}
    for row in items:
        same = ("status", "reason", "kind", "credits", "duplicate_of", "run_id", "folder")
        assert [row[name] for name in same] == [assets[row["item_id"]][name] for name in same]
        assert (row["tags_manifest"], row["usd"], row["frame"]) == ("mine", None, None)
    assert [row["file"] for row in items] == [str(run.folder.parent.resolve() / name) for name in names]
    assert [row["status"] for row in items[:5]] == ["ok", "ok", "ok", "duplicate", "duplicate"]
    assert all(row["tags"] is None and row["faces"] is None and row["reason"] for row in items[5:])


def test_pictures_videos_and_duplicates_are_summed_up(finished):
    """A video has one row with tags, a color and a severity, and a duplicate has the answers of its original."""
    run, _ = finished
    items = run.items.to_dict("records")
    facts = ("tags", "top_tag", "color", "color_name", "nsfw", "faces", "people", "text", "description")
    for duplicate, original in ((3, 0), (4, 2)):
        assert [repr(items[duplicate][name]) for name in facts] == [repr(items[original][name]) for name in facts]
    assert "space shuttle" in items[1]["tags"] or items[1]["faces"] == 1
    assert [row["nsfw"] >= 0 and row["color"].startswith("#") for row in items[:5]] == [True] * 5
    assert items[2]["top_tag"] == items[2]["tags"][0]
    worst = run.sql("SELECT item_id, max(severity) AS worst FROM nsfw GROUP BY 1 ORDER BY 1")["worst"].tolist()
    assert items[1]["nsfw"] == worst[1]


def test_items_are_in_sql_and_in_the_catalog(finished, command):
    """`lightmeter sql`, `catalog.duckdb` and a plain glob show the same rows, also after a rebuild and a compaction."""
    run, names = finished
    before = run.table("items").to_pylist()
    export_tables(run.folder, rewrite_all=True)
    compact(Dataset(run.folder))
    assert run.table("items").to_pylist() == before
    counted = command("sql", run.folder, "SELECT count(*) AS n FROM items", "--format", "json")
    assert json.loads(counted.out) == [{"n": len(names)}]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(run.folder)
        with duckdb.connect("catalog.duckdb", read_only=True) as db:
            assert db.execute("SELECT count(*) FROM items").fetchone() == (len(names),)
            assert db.execute("SELECT count(*) FROM 'tables/items/*.parquet'").fetchone() == (len(names),)


def test_a_guide_stands_beside_the_tables(finished):
    """`tables/README.md` describes every table, names the manifest, and its queries run on the tables."""
    run, _ = finished
    text = (run.folder / "tables" / "README.md").read_text(encoding="utf-8")
    assert f"a file in `{run.folder.parent.resolve()}`" in text
    assert all(f"<b>{table}</b>" in text for table in TABLE_COLUMNS)
    queries = re.findall(r"```sql\n(.*?)```", text, re.DOTALL)
    assert [len(run.sql(query)) > 0 for query in queries] == [False, True, True]
