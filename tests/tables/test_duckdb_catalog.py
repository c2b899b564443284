"""The files that open an output folder's tables by name."""

from __future__ import annotations

import shutil

import duckdb
import pytest

from lightmeter.tables import TABLES, Dataset
from lightmeter.tables.arrow.schema import schema
from lightmeter.tables.query.duckdb_catalog import CATALOG, VIEWS, views_sql, write_catalog
from tests.tables.replace_table import replace_tables


@pytest.fixture
def out(tmp_path):
    """An output folder with a path that needs quoting."""
    folder = tmp_path / "it's out"
    dataset = Dataset(folder)
    with replace_tables(dataset, {table: schema(table) for table in TABLES}, {}):
        pass
    write_catalog(folder)
    return folder


@pytest.mark.parametrize("opened", [VIEWS, CATALOG])
def test_both_open_every_table_also_where_the_folder_was_moved(out, tmp_path, monkeypatch, opened):
    """Whoever starts DuckDB in the folder has all tables as views, wherever the folder is by then."""
    moved = tmp_path / "moved"
    shutil.move(out, moved)
    monkeypatch.chdir(moved)
    with duckdb.connect(":memory:" if opened == VIEWS else CATALOG) as db:
        if opened == VIEWS:
            db.execute((moved / VIEWS).read_text(encoding="utf-8"))
        assert {name for (name,) in db.execute("SHOW TABLES").fetchall()} == set(TABLES)
        for table in TABLES:
            columns = [name for name, *_ in db.execute(f"DESCRIBE {table}").fetchall()]
            assert columns == schema(table).names


@pytest.mark.parametrize("name", ["url=x/out", "a,b", "out[1]", "a?b"])
@pytest.mark.parametrize("opened", [VIEWS, CATALOG])
def test_both_open_the_same_tables_in_a_folder_of_any_name(tmp_path, monkeypatch, name, opened):
    """Names of folders are neither columns, nor patterns, nor lists, also beside a folder that a pattern matches."""
    for folder in (tmp_path / name, tmp_path / "out1", tmp_path / "a-b"):
        with replace_tables(Dataset(folder), {table: schema(table) for table in TABLES}, {}):
            pass
    write_catalog(tmp_path / name)
    monkeypatch.chdir(tmp_path / name)
    with duckdb.connect(":memory:" if opened == VIEWS else CATALOG) as db:
        if opened == VIEWS:
            db.execute((tmp_path / name / VIEWS).read_text(encoding="utf-8"))
        db.execute("SELECT * FROM assets")
        assert [name for name, *_ in db.description] == schema("assets").names


def test_writing_them_again_replaces_them(out):
    """An open catalog goes on with the old file; a new one is whole, and nothing else is left."""
    with duckdb.connect(out / CATALOG, read_only=True) as reader:
        write_catalog(out)
        assert len(reader.execute("SHOW TABLES").fetchall()) == len(TABLES)
    assert (out / VIEWS).read_text(encoding="utf-8") == views_sql()
    assert {path.name for path in out.iterdir()} == {VIEWS, CATALOG, "tables", ".tables.lock"}
