"""Tables as Delta tables: in the output folder, as an option of the run, and on a real S3 server."""

from __future__ import annotations

import csv
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from click.testing import CliRunner

import lightmeter as lm
from lightmeter.cli import _root
from lightmeter.errors import UsageError
from lightmeter.tables import TABLES, Dataset
from lightmeter.tables.arrow.schema import schema
from lightmeter.tables.remote.delta import write_delta
from lightmeter.tables.remote.table_formats import check_table_format
from lightmeter.tables.remote.uris import delta_place
from tests.tables.replace_table import replace_tables

deltalake = pytest.importorskip("deltalake")

DATA = Path(__file__).parents[2] / "data"


def rows(table: deltalake.DeltaTable, query: str) -> list[tuple]:
    """Return the result of a DuckDB query over a Delta table."""
    with duckdb.connect() as db:
        return db.register("here", table.to_pyarrow_dataset()).execute(query).fetchall()


def test_delta_tables_have_the_same_rows_and_a_new_version_each_time(tmp_path, add):
    """Written twice, a Delta table has two versions, the last with all rows; older ones can still be read."""
    dataset = Dataset(tmp_path)
    with replace_tables(dataset, {table: schema(table) for table in TABLES}, {"runs": {"a": ""}}):
        pass
    add(tmp_path, "b", 4)
    assert write_delta(dataset, str(tmp_path / "delta")) == dict.fromkeys(reversed(TABLES), 0)
    add(tmp_path, "c", 5)
    assert write_delta(dataset, str(tmp_path / "delta"))["tags"] == 1
    table = deltalake.DeltaTable(tmp_path / "delta" / "tags")
    assert table.to_pyarrow_table().num_rows == 9
    assert deltalake.DeltaTable(tmp_path / "delta" / "tags", version=0).to_pyarrow_table().num_rows == 4
    colors = pa.schema(deltalake.DeltaTable(tmp_path / "delta" / "colors").schema().to_arrow())
    assert colors.names == schema("colors").names


@pytest.mark.slow
def test_a_run_writes_delta_tables_and_the_next_one_a_new_version(monkeypatch, sample_rows, tmp_path):
    """`run --format delta` makes Delta tables beside the others; a second manifest's rows make the next version."""
    monkeypatch.setenv("LIGHTMETER_SETTINGS", "/dev/null")
    monkeypatch.setenv("LIGHTMETER_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("LIGHTMETER_BASE_URL", raising=False)
    out = tmp_path / "out"
    for at, part in enumerate((sample_rows[:2], sample_rows[2:5])):
        manifest = tmp_path / f"manifest{at}.csv"
        with manifest.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["id", "path"])
            writer.writerows([row["id"], DATA / row["path"]] for row in part)
        options = ("--features", "colors", "--no-precheck", "--format", "delta", "--yes")
        assert CliRunner().invoke(_root, ["run", str(manifest), "--out", str(out), *options]).exit_code == 0
        here = deltalake.DeltaTable(out / "delta" / "assets")
        assert here.version() == at
        done = [row["id"] for row in sample_rows[: 2 + 3 * at]]
        assert rows(here, "SELECT item_id FROM here WHERE status = 'ok' ORDER BY 1") == [(one,) for one in sorted(done)]
    before = deltalake.DeltaTable(out / "delta" / "assets", version=0)
    assert rows(before, "SELECT count(*) FROM here") == [(2,)]
    colors = rows(deltalake.DeltaTable(out / "delta" / "colors"), "SELECT item_id, hex, red FROM here ORDER BY ALL")
    assert len({item for item, *_ in colors}) == 5
    parquet = Dataset(out).read("colors").select(["item_id", "hex", "red"]).to_pylist()
    assert colors == sorted(tuple(row.values()) for row in parquet)


@pytest.mark.parametrize("name", ["x?y", "a b", "100%", "ä#;:*'{}"])
def test_a_folder_of_any_name_has_its_tables(tmp_path, add, name):
    """Delta tables are in the folder itself, whatever its name."""
    (tmp_path / name).mkdir()
    place = tmp_path / name / "delta"
    check_table_format("delta", tmp_path / name)
    assert write_delta(add(tmp_path / name, "a", 3), str(place)) == {"tags": 0}
    assert deltalake.DeltaTable(place / "tags").to_pyarrow_table().num_rows == 3
    assert ([path.name for path in tmp_path.iterdir()], (place / "tags" / "_delta_log").is_dir()) == ([name], True)


@pytest.mark.parametrize("name", ["[x", "x]", "x^y", "x|y", "x\\y", "x%20y", "x\ny"])
def test_a_folder_whose_name_deltalake_cannot_read_is_refused(tmp_path, add, name):
    """In such a folder, at which deltalake panics or takes another one, nothing is written."""
    (tmp_path / name).mkdir()
    dataset = add(tmp_path / name, "a", 3)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError, match="deltalake does not read") as refused:
        write_delta(dataset, str(tmp_path / name / "delta"))
    assert "Choose another folder" in refused.value.hint
    assert sorted(tmp_path.rglob("*")) == before


def test_a_run_whose_folder_deltalake_cannot_read_is_refused_before_anything_is_spent(monkeypatch, tmp_path):
    """`run --format delta` and a later `resume --format delta` end with one error, and the first leaves no folder."""
    monkeypatch.setenv("LIGHTMETER_SETTINGS", "/dev/null")
    monkeypatch.setenv("LIGHTMETER_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("LIGHTMETER_BASE_URL", raising=False)
    out = tmp_path / "[out]"
    (tmp_path / "m.csv").write_text("path\ngone.jpg\n")
    arguments = ["run", str(tmp_path / "m.csv"), "--out", str(out), "--features", "colors", "--yes"]
    refused = CliRunner().invoke(_root, [*arguments, "--format", "delta"])
    assert isinstance(refused.exception, UsageError)
    assert not out.exists()
    assert CliRunner().invoke(_root, arguments).exit_code == 0
    with pytest.raises(UsageError, match="deltalake does not read"):
        lm.resume(out, table_format="delta")
    with pytest.raises(UsageError, match="deltalake does not read"):
        lm.run(lm.plan(tmp_path / "m.csv", features=["colors"], table_format="delta"), out)


def test_delta_tables_on_s3_are_reached_as_the_parquet_ones_are(tmp_path, s3, add, monkeypatch):
    """Both formats accept the same URI; options that it lacks come from the environment."""
    place = s3.uri("reached")
    assert write_delta(add(tmp_path, "a", 3), place) == {"tags": 0}
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    assert write_delta(add(tmp_path, "b", 4), "s3://lake/reached/") == {"tags": 1}
    uri, storage = delta_place(place)
    table = deltalake.DeltaTable(f"{uri}/tags", storage_options=storage)
    assert rows(table, "SELECT name, count(*) FROM here GROUP BY 1 ORDER BY 1") == [("a", 3), ("b", 4)]


def test_of_two_writers_at_once_none_undoes_the_other_on_s3(tmp_path, s3, add):
    """Of two simultaneous writers the second gets an error, and can then write the next version."""
    place = s3.uri("shared")
    write_delta(add(tmp_path / "0", "run 0", 1), place)
    datasets = {f"run {n}": add(tmp_path / str(n), f"run {n}", 1) for n in range(1, 5)}
    refused = set()

    def write(run: str) -> None:
        try:
            write_delta(datasets[run], place)
        except UsageError:
            refused.add(run)

    with ThreadPoolExecutor() as pool:
        list(pool.map(write, datasets))
    written = ["run 0", *(datasets.keys() - refused)]
    uri, storage = delta_place(place)
    versions = [
        rows(deltalake.DeltaTable(f"{uri}/tags", version=n, storage_options=storage), "SELECT name FROM here")
        for n in range(len(written))
    ]
    assert len(written) > 1
    assert sorted(versions) == sorted([(run,)] for run in written)


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("gopher://nowhere", "Unknown scheme"),
        ("s3://k:secret@nowhere/x?{options}", "s3://nowhere/x cannot be written as Delta"),
        ("s3://lake/x?tls_verify_certificates=false", "does not know tls_verify_certificates"),
    ],
)
def test_a_place_that_delta_cannot_use_is_reported(tmp_path, s3, add, place, message):
    """A wrong scheme or a missing bucket raises a usage error that shows no key."""
    with pytest.raises(UsageError, match=message) as raised:
        write_delta(add(tmp_path, "a", 1), place.format(options=s3.options))
    assert "secret" not in str(raised.value)
    assert "\x1b" not in str(raised.value)


def test_a_missing_writer_is_reported_before_anything_is_spent(tmp_path, monkeypatch):
    """Without deltalake a plan for Delta tables is refused, whether it is new or read from a file."""
    monkeypatch.setenv("LIGHTMETER_SETTINGS", "/dev/null")
    options = {"features": ["colors"], "precheck": False, "table_format": "delta"}
    urls = ["http://pictures.example/1.jpg"]
    saved = lm.plan(urls, **options).save(tmp_path / "plan.json")
    monkeypatch.setitem(sys.modules, "deltalake", None)  # as if it were not installed
    with pytest.raises(UsageError, match="Writing Delta tables needs the package deltalake"):
        lm.plan(urls, **options)
    with pytest.raises(UsageError, match="Writing Delta tables needs the package deltalake"):
        lm.load_plan(saved)
