"""Folders, globs, partitioned data sets and named columns work from the plan to the tables."""

from __future__ import annotations

import os
import shutil

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lightmeter as lm
from lightmeter.api.prepared_run import prepare_run
from lightmeter.errors import ManifestError, PlanChanged, SettingsError
from lightmeter.options import make_options
from lightmeter.planning.plan_file import is_plan_file
from lightmeter.run_session.session import find_run_of_manifest
from lightmeter.testing import tiny_jpeg

OPTIONS = {"features": ["colors"], "budget": 9}


@pytest.fixture(autouse=True)
def _no_service(monkeypatch, tmp_path, cache):
    monkeypatch.setenv("LIGHTMETER_SETTINGS", "/dev/null")
    monkeypatch.setenv("LIGHTMETER_CACHE_DIR", str(cache))
    monkeypatch.delenv("LIGHTMETER_BASE_URL", raising=False)


@pytest.fixture
def photos(tmp_path):
    """A folder with two images, one of them in a subfolder, and a text file."""
    folder = tmp_path / "my [photos]"
    (folder / "b").mkdir(parents=True)
    (folder / "a.jpg").write_bytes(tiny_jpeg(1))
    (folder / "b" / "c.jpg").write_bytes(tiny_jpeg(2))
    (folder / "notes.txt").write_text("x")
    return folder


@pytest.fixture
def parts(tmp_path, photos):
    """The same images as rows of partitioned Parquet files."""
    for day, name in ((1, "a.jpg"), (2, "b/c.jpg")):
        (tmp_path / "set" / f"day={day}").mkdir(parents=True)
        pq.write_table(pa.table({"path": [str(photos / name)]}), tmp_path / "set" / f"day={day}" / "part.parquet")
    return tmp_path / "set"


@pytest.mark.parametrize("written", ["{photos}", "{parts}", "{photos}/b/c.jpg", "b/*.jpg", "**/*.jpg", "."])
async def test_each_kind_of_manifest_is_planned_saved_loaded_and_begun_again(
    photos, parts, tmp_path, monkeypatch, written
):
    """A saved plan finds its files from any folder, a second run continues the first, and a changed file is noticed."""
    monkeypatch.chdir(photos)
    source = written.format(photos=photos, parts=parts)
    plan = await lm.aio.plan(source, **OPTIONS)
    assert (plan.counts["pending"], plan.counts["skipped"]) == (plan.rows, 0)
    assert plan.rows == (1 if "b/" in written else 2)
    await prepare_run(source, tmp_path / "out", **OPTIONS)
    assert find_run_of_manifest(tmp_path / "out", source, make_options(**OPTIONS))
    assert (await prepare_run(source, tmp_path / "out", **OPTIONS)).summary.rows == plan.rows
    path = plan.save(tmp_path / "plan.json")
    monkeypatch.chdir(tmp_path)
    assert lm.load_plan(path) == plan
    os.utime(photos / "b" / "c.jpg", ns=(0, 0))
    pq.write_table(pa.table({"path": ["x.jpg"]}), parts / "day=2" / "part.parquet")
    with pytest.raises(PlanChanged, match="changed since it was planned"):
        lm.load_plan(path)
    monkeypatch.chdir(photos)
    assert not find_run_of_manifest(tmp_path / "out", source, make_options(**OPTIONS))


async def test_a_folder_is_analysed_from_plan_to_tables(photos):
    """Rows of a folder have relative paths, and an output folder inside it adds no rows."""
    run = await lm.aio.run(await lm.aio.plan(photos, **OPTIONS), photos / "out")
    assert run.summary().counts["ok"] == 2
    assert run.table("assets").column("url").to_pylist() == ["a.jpg", "b/c.jpg"]
    assert find_run_of_manifest(photos / "out", photos, make_options(**OPTIONS))


async def test_keys_of_partitions_are_columns_of_the_assets(parts, tmp_path):
    """Partition keys such as `year=2024` become typed columns of the assets table."""
    run = await lm.aio.run(await lm.aio.plan(parts, **OPTIONS), tmp_path / "out")
    assert run.sql("SELECT day, status FROM assets ORDER BY day").to_numpy().tolist() == [[1, "ok"], [2, "ok"]]


async def test_a_plan_moved_with_its_folder_finds_it(photos, tmp_path):
    """A plan finds its folder after both were moved together."""
    plan = await lm.aio.plan(photos, **OPTIONS)
    moved = tmp_path / "elsewhere"
    plan.save(tmp_path / "plan.json")
    moved.mkdir()
    shutil.move(tmp_path / "plan.json", moved)
    photos.rename(moved / photos.name)
    assert lm.load_plan(moved / "plan.json") == plan


async def test_a_named_column_belongs_to_the_run(tmp_path, photos):
    """A run stores the named columns, and refuses the same manifest with other ones."""
    manifest = tmp_path / "m.csv"
    manifest.write_text(f"image,sku,url\n{photos / 'a.jpg'},7,shop/1\n")
    named = {"url_column": "image", "id_column": "sku", **OPTIONS}
    run = await lm.aio.run(await lm.aio.plan(manifest, **named), tmp_path / "out")
    assert run.sql("SELECT item_id, status, url_manifest FROM assets").to_numpy().tolist() == [["7", "ok", "shop/1"]]
    assert (await prepare_run(manifest, tmp_path / "out", **named)).summary.rows == 1
    with pytest.raises(SettingsError, match="other options: id-column"):
        await prepare_run(manifest, tmp_path / "out", **{**named, "id_column": None})
    with pytest.raises(ManifestError, match="its columns are image, sku, url"):
        await lm.aio.plan(manifest, url_column="picture", **OPTIONS)
    path = (await lm.aio.plan(manifest, **named)).save(tmp_path / "plan.json")
    assert lm.load_plan(path).options.url_column == "image"


@pytest.mark.parametrize("convert", [pd.Series, list, iter, lambda urls: pa.table({"url": urls})])
async def test_a_manifest_in_memory_can_be_planned(convert):
    """A Series, a list, a generator and an Arrow table can be planned."""
    plan = await lm.aio.plan(
        convert(["https://example.org/a.jpg", "https://example.org/b.jpg"]), precheck=False, **OPTIONS
    )
    assert plan.counts["pending"] == 2


async def test_a_generator_is_planned_into_a_used_folder(photos, tmp_path):
    """A generator with more rows than the run in the folder has begins a new run of all its rows."""
    paths = [photos / "a.jpg", photos / "b" / "c.jpg"]
    for rows in (1, 2, 2):
        prepared = await prepare_run((path for path in paths[:rows]), tmp_path / "out", **OPTIONS)
        assert prepared.summary.rows == rows


def test_a_json_array_is_a_manifest_and_no_plan(tmp_path):
    """A .json file is recognized as a plan or a manifest by its content."""
    (tmp_path / "m.json").write_text(' \n["https://example.org/a.jpg"]')
    (tmp_path / "plan.json").write_text('{"plan_version": 2}')
    assert [is_plan_file(str(tmp_path / name)) for name in ("m.json", "plan.json", "none.json", "m.csv")] == [
        *(False, True, True, False)
    ]
    assert not is_plan_file("s3://bucket/m.json")
