"""SQL queries over the tables."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from lightmeter.errors import UsageError
from lightmeter.tables import TABLES, Dataset
from lightmeter.tables.arrow.row_tables import ConstantColumn, RowTables
from lightmeter.tables.arrow.schema import ALL_TABLES, SCHEMA_VERSION, schema
from lightmeter.tables.query import duckdb_query
from tests.tables.replace_table import replace_table

DAILY_TABLES = {"assets", "tags", "requests"}
"""Tables that are looked at daily: of items, of entries and of the run."""


@pytest.fixture
def out(tmp_path):
    folder = tmp_path / "it's [a] *run?"
    moment = datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)
    columns = {
        "item_id": ["0", "1", "2"],
        "status": ConstantColumn("ok"),
        "answered_at": ConstantColumn(moment),
        "extra": [f'{{"Status": "mine", "n": {place}}}' for place in range(3)],
        "run_id": ConstantColumn("run"),
    }
    rows = RowTables({"Status": "string", "n": "int64"}).build("assets", columns, 3)
    with replace_table(Dataset(folder), "assets", rows.schema) as part:
        part.write(rows)
    return folder


def test_queries_answer_in_arrow(out):
    """A query over a view gives an Arrow table; parameters are bound, not pasted."""
    answer = duckdb_query.sql(
        out, "SELECT item_id, status, Status_manifest AS own, n FROM assets WHERE n >= ? ORDER BY n", [1]
    )
    assert isinstance(answer, pa.Table)
    assert answer.to_pylist() == [
        {"item_id": "1", "status": "ok", "own": "mine", "n": 1},
        {"item_id": "2", "status": "ok", "own": "mine", "n": 2},
    ]


def test_the_error_of_a_query_names_the_tables_that_are_there(out):
    """The hint lists all that can be queried, also answers to a question, and nothing else."""
    with replace_table(Dataset(out), "answers_car", pa.schema([("item_id", pa.string())])) as part:
        part.write(pa.table({"item_id": ["0"]}))
    with pytest.raises(UsageError) as raised:
        duckdb_query.sql(out, "FROM labels")
    tables = raised.value.hint.removeprefix("Tables: ").removesuffix(".").split(", ")
    assert {*DAILY_TABLES, "duplicates", "answers_car"} <= {*tables}
    for table in tables:
        duckdb_query.sql(out, f"FROM {table}")


@pytest.mark.parametrize(
    ("name", "sibling"),
    [("status=new/out", "out"), ("added=1/out", "out"), ("item_id=x/out", "out"), ("out[1]", "out1"), ("a?b*", "a-b-")],
)
def test_the_path_of_the_folder_does_not_change_an_answer(out, tmp_path, name, sibling):
    """Names of folders are neither columns nor patterns, also where a pattern would match another run's folder."""
    query = "SELECT * FROM assets ORDER BY item_id"
    expected = duckdb_query.sql(out, query)
    shutil.copytree(out, tmp_path / "moved" / name)
    shutil.copytree(out, tmp_path / "moved" / sibling)
    assert duckdb_query.sql(tmp_path / "moved" / name, query).equals(expected)


def test_moments_are_in_utc(out):
    """Timestamps do not depend on the time zone of the machine."""
    (row,) = duckdb_query.sql(
        out, "SELECT max(answered_at) AS at, max(answered_at)::VARCHAR AS text FROM assets"
    ).to_pylist()
    assert row["at"] == datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)
    assert row["text"] == "2024-05-06 07:08:09+00"


def test_a_slow_query_draws_nothing(out):
    """A slow query writes no progress bar to standard output."""
    (row,) = duckdb_query.sql(out, "SELECT current_setting('enable_progress_bar') AS drawn").to_pylist()
    assert row["drawn"] is False


@pytest.mark.parametrize(
    "table", [pytest.param(table, marks=[pytest.mark.sweep] * (table not in DAILY_TABLES)) for table in TABLES]
)
def test_every_table_is_a_view_even_before_it_is_written(out, tmp_path, table):
    """A query does not fail for a table that has no rows yet: its columns are there, of the right types."""
    empty = tmp_path / "empty"
    empty.mkdir()
    answer = duckdb_query.sql(empty, f"FROM {table}")
    assert answer.schema.names == schema(table).names
    assert answer.num_rows == 0
    written = duckdb_query.sql(out, f"FROM {table}")
    assert set(answer.schema.names) <= set(written.schema.names)
    with replace_table(Dataset(empty), table, schema(table)):
        pass
    assert duckdb_query.sql(empty, f"FROM {table}").schema.equals(answer.schema)


@pytest.mark.parametrize(
    "query",
    [
        "SELEC 1",
        "SELECT nothing FROM assets",
        "SELECT * FROM folder",
        "SELECT 1 WHERE 1 = ?",
        "SELECT * FROM read_csv('{elsewhere}')",
        "SELECT * FROM '{elsewhere}'",
        "COPY assets TO '{elsewhere}'",
        "INSTALL httpfs",
        "SET enable_external_access = true",
    ],
)
def test_a_wrong_query_is_a_usage_error(out, tmp_path, query):
    """A query that is wrong, or reaches outside the tables, fails with DuckDB's own words."""
    elsewhere = tmp_path / "elsewhere.csv"
    elsewhere.write_text("a\n1\n", encoding="utf-8")
    with pytest.raises(UsageError, match="Error: ") as raised:
        duckdb_query.sql(out, query.format(elsewhere=elsewhere))
    assert "assets" in raised.value.hint
    assert elsewhere.read_text(encoding="utf-8") == "a\n1\n"


def test_a_folder_that_is_not_there_is_named(tmp_path):
    """A query of a missing folder raises an error that names it."""
    with pytest.raises(UsageError, match="no folder"):
        duckdb_query.sql(tmp_path / "nowhere", "SELECT 1")


def test_tables_do_not_bring_duckdb():
    """Importing the tables package or the command `run` does not load DuckDB."""
    modules = "lightmeter.tables, lightmeter.manifest, lightmeter.cli.commands.run"
    code = f"import sys, {modules}; sys.exit('duckdb' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_what_does_not_fit_into_memory_goes_to_temporary_files(out, tmp_path, monkeypatch):
    """A query that needs more memory than allowed succeeds, and leaves no temporary file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "spill"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    (tmp_path / "spill").mkdir()
    before = sorted(tmp_path.rglob("*"))
    with duckdb_query.QuerySession(out, memory_mib=64) as tables:
        large = "SELECT r, row_number() OVER (ORDER BY hash(r)) AS n FROM range(4000000) AS t(r)"
        (row,) = tables.ask(f"SELECT count(*) AS rows, max(n) AS n FROM ({large}) WHERE r % 1000 = 0").to_pylist()  # noqa: S608 (ours)
        settings = "current_setting('memory_limit') AS memory, current_setting('temp_directory') AS spill"
        (set_,) = tables.ask(f"SELECT {settings}").to_pylist()
    assert set_["memory"] == "64.0 MiB"
    assert set_["spill"].startswith(str(tmp_path / "spill"))
    assert row["rows"] == 4000
    assert sorted(tmp_path.rglob("*")) == before


def test_no_column_of_a_table_is_a_reserved_word(out):
    """Every column of every table can be named in SQL without quotes, but `left` of faces, as the service names it."""
    for table in ALL_TABLES:
        query = f"SELECT {', '.join(name for name in schema(table).names if name != 'left')} FROM {table}"  # noqa: S608 (our own words)
        duckdb_query.sql(out, query)


def test_tables_of_another_version_are_refused(out):
    """Tables whose columns mean something else are not misread: the error names the command that writes them again."""
    listed = out / "tables" / "parts.json"
    listed.write_text(listed.read_text().replace(f'"schema_version": {SCHEMA_VERSION}', '"schema_version": 3'))
    for read in (lambda: duckdb_query.sql(out, "FROM assets"), lambda: Dataset(out).read("assets")):
        with pytest.raises(UsageError) as refused:
            read()
        assert "version 3" in str(refused.value)
        assert f"lightmeter rebuild {out}" in refused.value.hint


def test_duplicates_are_a_view_of_clusters(tmp_path):
    """A cluster has the id of the row that is paid for, and lists it with its exact and near duplicates."""
    columns = {
        "item_id": ["a", "b", "c", "d"],
        "url": list("ABCD"),
        "duplicate_of": [None, "a", "a", None],
        "duplicate_distance": [None, None, 7, None],
        "status": ["ok", "duplicate", "duplicate", "ok"],
        "extra": ConstantColumn("{}"),
        "run_id": ConstantColumn("run"),
    }
    rows = RowTables({}).build("assets", columns, 4)
    with replace_table(Dataset(tmp_path), "assets", rows.schema) as part:
        part.write(rows)
    found = duckdb_query.sql(tmp_path, "FROM duplicates ORDER BY item_id").to_pylist()
    assert [tuple(row.values()) for row in found] == [
        *(("a", 3, "a", "A", None, "paid"), ("a", 3, "b", "B", None, "exact"), ("a", 3, "c", "C", 7, "near")),
    ]
