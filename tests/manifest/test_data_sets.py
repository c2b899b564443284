"""Data sets of several Parquet files, whose columns differ, or stand in the paths of the files too."""

from __future__ import annotations

import datetime as dt
import json

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lightmeter as lm
from lightmeter.manifest.readers import ManifestReader

URLS = ["https://e.org/1.jpg", "https://e.org/2.jpg"]


def read(folder):
    """Return the items and the types of the extra columns."""
    reader = ManifestReader(folder)
    return list(reader), reader.extra_types


def write(folder, **columns):
    """Write one Parquet file for each value of the columns: `n=[1, "x"]` gives a file with 1 and one with "x"."""
    for place, values in enumerate(zip(*columns.values(), strict=True)):
        arrays = {
            name: value if isinstance(value, pa.Array) else pa.array([value])
            for name, value in zip(columns, values, strict=True)
            if value != "missing"
        }
        (folder / "set").mkdir(exist_ok=True)
        pq.write_table(pa.table({"url": [URLS[place]], **arrays}), folder / "set" / f"{place}.parquet")
    return folder / "set"


def test_what_polars_and_duckdb_write_is_read(tmp_path):
    """Their data sets, with keys in the paths or also in the files, have the rows that were written."""
    frame = pl.DataFrame(
        {"id": ["a", "b"], "url": URLS, "country": ["de", "f r"], "day": [dt.date(2024, 1, 2)] * 2, "n": [7, 8]}
    )
    for include in (True, False):
        target = pl.PartitionBy(tmp_path / f"polars{include}", key=["country", "day", "n"], include_key=include)
        frame.write_parquet(target, mkdir=True)
    with duckdb.connect() as db:
        db.register("frame", frame.to_arrow())
        for include in ("true", "false"):
            db.execute(
                f"COPY frame TO '{tmp_path}/duckdb{include}' "
                f"(FORMAT parquet, PARTITION_BY (country, day, n), WRITE_PARTITION_COLUMNS {include})"
            )
    for folder in tmp_path.iterdir():
        items, types = read(folder)
        assert [(item.item_id, item.url, item.problem) for item in items] == [
            ("a", URLS[0], None),
            ("b", URLS[1], None),
        ]
        assert [item.extra for item in items] == [
            {"country": "de", "day": "2024-01-02", "n": 7},
            {"country": "f r", "day": "2024-01-02", "n": 8},
        ]
        assert types["n"] == "int64"


def test_keys_of_folders_keep_their_digits(tmp_path):
    """A key is a number only if its text is that of the number; `id=007` stays as it is."""
    for place, (identity, shard) in enumerate([("007", "1"), ("10", "02"), ("__HIVE_DEFAULT_PARTITION__", "-3")]):
        folder = tmp_path / f"id={identity}" / f"shard={shard}" / f"big=9{'0' * 18}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"url": [f"https://e.org/{place}.jpg"]}), folder / "x.parquet")
    items, types = read(tmp_path)
    assert [item.item_id for item in items if item.has_own_id] == ["007", "10"]
    assert [item.extra["shard"] for item in items] == [1, "02", -3]
    assert types == {"shard": "string", "big": "string"}
    run = lm.plan(tmp_path, features=["tags"], precheck=False, budget=0)
    assert run.rows == 3


PAIRS = {
    "text and category": ("x", pa.array(["y"]).dictionary_encode(), ["x", "y"], "string"),
    "null and text": (None, "y", [None, "y"], "string"),
    "null and number": (None, 1.5, [None, 1.5], "double"),
    "integer and text": (1, "y", [1, "y"], "string"),
    "integer and float": (1, 1.5, [1, 1.5], "double"),
    "long integer and float": (2**53 + 1, 1.5, [2**53 + 1, 1.5], "string"),
    "small and long integer": (pa.array([1], pa.int8()), 2**60, [1, 2**60], "int64"),
    "unsigned and signed": (pa.array([2**64 - 1], pa.uint64()), -1, [2**64 - 1, -1], "string"),
    "flag and integer": (True, 1, [True, 1], "string"),
    "date and moment": (
        dt.date(2024, 1, 2),
        pa.array([0], pa.timestamp("s")),
        ["2024-01-02", "1970-01-01T00:00:00"],
        "string",
    ),
    "list and text": ([1, None], "y", [[1, None], "y"], "json"),
    "struct and list": ({"a": 1}, [1], [{"a": 1}, [1]], "json"),
    "text and nothing": ("x", "missing", ["x", None], "string"),
    "nothing and number": ("missing", 5, [None, 5], "int64"),
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_column_may_differ_between_files(tmp_path, name):
    """Types, encodings and the presence of a column may differ between the files; each value is kept."""
    one, other, values, kind = PAIRS[name]
    items, types = read(write(tmp_path, v=[one, other]))
    assert [(item.url, item.problem) for item in items] == [(url, None) for url in URLS]
    assert ([item.extra["v"] for item in items], types) == (values, {"v": kind})


def test_a_run_stores_columns_that_differ_between_files(tmp_path):
    """The table `assets` holds all digits of what differs between files."""
    folder = write(tmp_path, v=[2**53 + 1, 1.5], w=[1, "y"], x=[[1], {"a": 2}])
    plan = lm.plan(folder, features=["tags"], precheck=False, budget=0)
    table = lm.run(plan, out=tmp_path / "out").table("assets")
    assert table["v"].to_pylist() == [str(2**53 + 1), "1.5"]
    assert table["w"].to_pylist() == ["1", "y"]
    assert [json.loads(value) for value in table["x"].to_pylist()] == [[1], {"a": 2}]


def test_addresses_may_differ_between_files_too(tmp_path):
    """Ids and addresses may be numbers, text, bytes or categories in different files; a number is a bad address."""
    (tmp_path / "set").mkdir()
    for place, (identity, address) in enumerate([(7, URLS[0]), ("008", b"https://e.org/2.jpg"), (b"9", 5)]):
        pq.write_table(pa.table({"url": [address], "id": [identity]}), tmp_path / "set" / f"{place}.parquet")
    items, _ = read(tmp_path / "set")
    assert [(item.item_id, item.url) for item in items] == [("7", URLS[0]), ("008", URLS[1]), ("9", "5")]
    assert [item.problem for item in items] == [None, None, "its url is 5, which is no text"]
