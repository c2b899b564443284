"""Tables of schema 2, which lacks size, perceptual hash and duplicate distance, beside those of this version."""

from __future__ import annotations

import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lightmeter.errors import UsageError
from lightmeter.tables import Dataset
from lightmeter.tables.arrow.schema import SCHEMA_VERSION, schema
from lightmeter.tables.compaction import compact
from lightmeter.tables.query.duckdb_query import sql
from lightmeter.tables.remote.delta import write_delta
from lightmeter.tables.remote.read import read_remote_table
from lightmeter.tables.remote.write import publish
from tests.tables.replace_table import replace_tables

NEW = ["size_bytes", "perceptual_hash", "duplicate_distance"]
ASSETS = schema("assets", {"shop": "string"})
QUERY = "SELECT item_id, shop, size_bytes, perceptual_hash, duplicate_distance FROM assets ORDER BY item_id"
NEW_SCHEMA = pa.schema([ASSETS.field(name) for name in ("item_id", "shop", *NEW)])
OLD_ROW = {"item_id": "old", "shop": "s", **dict.fromkeys(NEW)}
NEW_ROW = {**OLD_ROW, "item_id": "new", "size_bytes": 812, "perceptual_hash": "00000000000000ff"}


@pytest.fixture
def dataset(tmp_path):
    """Tables of which `assets` has a part of schema 2."""
    dataset = Dataset(tmp_path)
    with replace_tables(dataset, {"assets": ASSETS}, {"runs": {"new": ""}}):
        pass
    (path,) = dataset.parts("assets")
    old = pa.schema([field for field in ASSETS if field.name not in NEW], {b"lightmeter.schema_version": b"2"})
    row = {field.name: [{"item_id": "old", "shop": "s"}.get(field.name)] for field in old}
    pq.write_table(pa.table(row, schema=old), path)
    return dataset


@pytest.fixture
def mixed(dataset):
    """The same with a part of this version beside it."""
    with replace_tables(dataset, {"assets": ASSETS}, {"runs": {"new": ""}}, keep_others=True) as writers:
        writers["assets"].write(pa.Table.from_pylist([NEW_ROW], NEW_SCHEMA))
    assert len(dataset.parts("assets")) == 2
    return dataset


def test_queries_see_nulls_in_place_of_missing_columns(dataset):
    """A query may name the new columns of a table that an older version wrote."""
    assert sql(dataset.out, QUERY).to_pylist() == [OLD_ROW]
    types = sql(dataset.out, "SELECT size_bytes, perceptual_hash, duplicate_distance FROM assets").schema.types
    assert types == [ASSETS.field(name).type for name in NEW]
    assert dataset.read("assets").column("item_id").to_pylist() == ["old"]


def test_parts_of_both_versions_are_read_together(mixed):
    """Rows of both versions are in one table."""
    assert sql(mixed.out, QUERY).to_pylist() == [NEW_ROW, OLD_ROW]
    assert sorted(row["item_id"] for row in mixed.read("assets").to_pylist()) == ["new", "old"]


def test_compaction_makes_one_part_of_this_version(mixed):
    """Merged parts have all columns and the newer version."""
    compact(mixed)
    (path,) = mixed.parts("assets")
    assert pq.read_schema(path).metadata[b"lightmeter.schema_version"] == str(SCHEMA_VERSION).encode()
    assert sql(mixed.out, QUERY).to_pylist() == [NEW_ROW, OLD_ROW]


def test_delta_tables_get_the_new_columns(dataset, tmp_path):
    """A Delta table of schema 2 is followed by a version with the new columns."""
    deltalake = pytest.importorskip("deltalake")
    write_delta(dataset, str(tmp_path / "delta"))
    with replace_tables(dataset, {"assets": ASSETS}, {"runs": {"new": ""}}, keep_others=True) as writers:
        writers["assets"].write(pa.Table.from_pylist([NEW_ROW], NEW_SCHEMA))
    write_delta(dataset, str(tmp_path / "delta"))
    table = deltalake.DeltaTable(str(tmp_path / "delta" / "assets")).to_pyarrow_table()
    assert sorted(table.select(["item_id", "size_bytes"]).to_pylist(), key=str) == [
        {"item_id": "new", "size_bytes": 812},
        {"item_id": "old", "size_bytes": None},
    ]


def test_remote_copies_have_the_new_columns(mixed, tmp_path):
    """A copy of parts of both versions is one file with all columns."""
    place = (tmp_path / "lake").as_uri()
    publish(mixed, place)
    rows = read_remote_table(place, "assets").select([*NEW_ROW]).to_pylist()
    assert sorted(rows, key=lambda row: row["item_id"]) == [NEW_ROW, OLD_ROW]


def test_remote_copies_of_an_older_version_are_refused(dataset, tmp_path):
    """Remote tables of an older version are not misread: the error says how to replace them."""
    lake = tmp_path / "lake"
    shutil.copytree(dataset.out / "tables", lake / "tables")
    with pytest.raises(UsageError) as refused:
        sql(lake.as_uri(), QUERY)
    assert "schema version 2" in str(refused.value)
    assert "lightmeter rebuild DIR --to" in refused.value.hint
