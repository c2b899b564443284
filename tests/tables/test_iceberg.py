"""Tables as Iceberg tables: all tables of an export or none, in the output folder and in a user's catalog on S3."""

from __future__ import annotations

import json
import sys
import threading

import duckdb
import pyarrow as pa
import pytest
from click.testing import CliRunner

import lightmeter as lm
from lightmeter.cli import _root
from lightmeter.errors import UsageError
from lightmeter.tables import Dataset
from lightmeter.tables.arrow.schema import ALL_TABLES, schema
from lightmeter.tables.remote import iceberg
from lightmeter.tables.remote.iceberg import MARKER, read_iceberg, write_iceberg
from tests.tables.replace_table import replace_tables

pytest.importorskip("pyiceberg")


def test_an_export_has_the_rows_of_the_parquet_tables(tmp_path, add):
    """Each export adds a snapshot; the marker names that of each table, and DuckDB reads the file that it names."""
    dataset = Dataset(tmp_path)
    with replace_tables(dataset, {table: schema(table) for table in ALL_TABLES}, {"runs": {"a": ""}}):
        pass
    add(tmp_path, "b", 4)
    place = str(tmp_path / "iceberg")
    first = write_iceberg(dataset, place)
    assert first.keys() == set(dataset.tables())
    add(tmp_path, "c", 5)
    second = write_iceberg(dataset, place)
    tables = read_iceberg(place)
    assert {table: rows.num_rows for table, rows in tables.items()} == dict.fromkeys(first, 0) | {"tags": 9}
    assert sorted(tables["tags"]["name"].to_pylist()) == sorted(dataset.read("tags")["name"].to_pylist())
    assert tables["colors"].column_names == schema("colors").names
    marker = json.loads((tmp_path / "iceberg" / MARKER).read_text())["tables"]
    assert {table: one["snapshot_id"] for table, one in marker.items()} == second
    old = iceberg.import_pyiceberg().StaticTable.from_metadata(marker["tags"]["metadata"])
    assert old.scan(snapshot_id=first["tags"]).to_arrow().num_rows == 4


@pytest.mark.parametrize("name", ["a b", "x?y", "100%20", "ä#;:*'{}", "[x]^|\\", "x\ny"])
def test_a_folder_of_any_name_has_its_tables(tmp_path, add, name):
    """Tables and catalog are in the folder itself, whatever its name, and nothing is written beside it."""
    out = tmp_path / name
    out.mkdir()
    dataset, place = add(out, "a", 3), str(out / "iceberg")
    for _ in range(2):
        write_iceberg(dataset, place)
    assert read_iceberg(place)["tags"].num_rows == 3
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert {"catalog.db", "tags", MARKER} <= {path.name for path in (out / "iceberg").iterdir()}


def test_a_new_column_and_a_new_type_are_the_next_versions(tmp_path):
    """A column whose type changes is replaced, others are added; a column that is gone is null."""
    dataset, place = Dataset(tmp_path), str(tmp_path / "iceberg")
    for columns in ({"a": pa.string(), "b": pa.uint64()}, {"a": pa.int64(), "c": pa.uint8()}):
        own = pa.schema(columns)
        with replace_tables(dataset, {"tags": own}, {"runs": {"x": ""}}) as writers:
            writers["tags"].write(pa.table({name: pa.array([1]).cast(of) for name, of in columns.items()}, schema=own))
        write_iceberg(dataset, place)
    assert read_iceberg(place)["tags"].to_pylist() == [{"b": None, "a": 1, "c": 1}]


def test_a_killed_export_shows_the_tables_of_the_one_before(tmp_path, add, monkeypatch):
    """A reader never sees tables of two exports, whenever the writer stops; the next export is whole again."""
    for table in ("tags", "colors"):
        put(tmp_path, table, 1)
    place = str(tmp_path / "iceberg")
    write_iceberg(Dataset(tmp_path), place)
    for table in ("tags", "colors"):
        put(tmp_path, table, 2)
    write = iceberg._write_table
    names = []

    def write_one(catalog, name, *rest):
        if names:
            raise KeyboardInterrupt
        names.append(name)
        return write(catalog, name, *rest)

    monkeypatch.setattr(iceberg, "_write_table", write_one)
    with pytest.raises(KeyboardInterrupt):
        write_iceberg(Dataset(tmp_path), place)
    assert {table: rows.num_rows for table, rows in read_iceberg(place).items()} == {"tags": 1, "colors": 1}
    monkeypatch.undo()
    write_iceberg(Dataset(tmp_path), place)
    assert {table: rows.num_rows for table, rows in read_iceberg(place).items()} == {"tags": 2, "colors": 2}


@pytest.mark.sweep
def test_readers_meanwhile_see_tables_of_one_export(tmp_path):
    """While exports follow each other, each reading has the same number of rows in both tables."""
    place, row_counts, ended = str(tmp_path / "iceberg"), [], threading.Event()

    def read() -> None:
        while not ended.is_set():
            row_counts.append({rows.num_rows for rows in read_iceberg(place).values()})

    for rows in range(1, 8):
        for table in ("tags", "colors"):
            put(tmp_path, table, rows)
        write_iceberg(Dataset(tmp_path), place)
        if rows == 1:
            reader = threading.Thread(target=read)
            reader.start()
    ended.set()
    reader.join()
    assert row_counts
    assert all(len(counts) == 1 for counts in row_counts)


def test_a_store_needs_a_catalog_of_the_user(tmp_path, s3, add, monkeypatch):
    """On S3, the catalog in pyiceberg's settings is used; without one, the message says how to name it."""
    place = s3.uri("ice")
    with pytest.raises(UsageError, match="s3://lake/ice need a catalog"):
        write_iceberg(add(tmp_path, "a", 3), place)
    settings = {"TYPE": "sql", "URI": f"sqlite:///{tmp_path}/own.db", "NAMESPACE": "photos"}
    settings |= {"S3__ENDPOINT": s3.environment["AWS_ENDPOINT_URL"], "S3__REGION": "us-east-1"}
    settings |= {"S3__ACCESS_KEY_ID": "k", "S3__SECRET_ACCESS_KEY": "k"}
    for name, value in settings.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LIGHTMETER__{name}", value)
    written = write_iceberg(Dataset(tmp_path), place)
    with s3.there.open_input_stream(f"lake/ice/{MARKER}") as stream:
        assert json.loads(stream.read())["tables"]["tags"]["snapshot_id"] == written["tags"]
    assert read_iceberg(place)["tags"]["name"].to_pylist() == ["a"] * 3
    with pytest.raises(UsageError, match="not at s3://lake/elsewhere/tags"):
        write_iceberg(Dataset(tmp_path), s3.uri("elsewhere"))


@pytest.mark.slow
def test_a_run_writes_iceberg_tables(tmp_path, monkeypatch):
    """`run --format iceberg` and `rebuild --format iceberg` write them beside the others."""
    monkeypatch.setenv("LIGHTMETER_SETTINGS", "/dev/null")
    monkeypatch.setenv("LIGHTMETER_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("LIGHTMETER_BASE_URL", raising=False)
    manifest = tmp_path / "m.csv"
    manifest.write_text("path\ngone.jpg\n")
    out = tmp_path / "out"
    options = ["--features", "colors", "--format", "iceberg", "--yes"]
    assert CliRunner().invoke(_root, ["run", str(manifest), "--out", str(out), *options]).exit_code == 0
    assert read_iceberg(str(out / "iceberg"))["assets"]["status"].to_pylist() == ["skipped"]
    rebuilt = CliRunner().invoke(_root, ["rebuild", str(out), "--format", "iceberg", "--to", str(tmp_path / "lake")])
    assert rebuilt.exit_code == 0
    marker = json.loads((tmp_path / "lake" / MARKER).read_text())["tables"]
    assert str(marker["assets"]["snapshot_id"]) in rebuilt.stdout
    with duckdb.connect() as db:
        files = f"{tmp_path}/lake/assets/data/*.parquet"
        assert db.execute("SELECT status FROM read_parquet(?)", [files]).fetchall() == [("skipped",)]


def test_a_missing_package_is_reported_before_anything_is_spent(tmp_path, monkeypatch):
    """Without pyiceberg a plan for Iceberg tables is refused."""
    monkeypatch.setenv("LIGHTMETER_SETTINGS", "/dev/null")
    for name in [name for name in sys.modules if name.startswith("pyiceberg.catalog.sql")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyiceberg", None)  # as if it were not installed
    monkeypatch.setitem(sys.modules, "pyiceberg.catalog.sql", None)
    with pytest.raises(UsageError, match="Writing Iceberg tables needs the package pyiceberg"):
        lm.plan(["http://pictures.example/1.jpg"], precheck=False, table_format="iceberg")


def put(out, table: str, rows: int) -> None:
    """Replace a table by rows without values."""
    own = schema(table)
    with replace_tables(Dataset(out), {table: own}, {"runs": {"x": ""}}) as writers:
        writers[table].write(pa.table({field.name: pa.nulls(rows, field.type) for field in own}, schema=own))
