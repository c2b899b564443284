"""Queries over tables in an object store: a real S3 server, fsspec, and missing tables."""

from __future__ import annotations

import fsspec
import pytest

import lightmeter as lm
from lightmeter.errors import UsageError
from lightmeter.tables import TABLES
from lightmeter.tables.arrow.schema import ALL_TABLES, schema
from lightmeter.tables.query import duckdb_query, named_queries
from lightmeter.tables.remote.read import read_remote_table, remote_datasets
from lightmeter.tables.remote.write import publish
from tests.sweeps import sweep


def test_what_was_published_is_asked_in_sql_and_by_name(tmp_path, s3, add):
    """SQL, the questions and the tables by name answer from an object store as they do from a folder."""
    dataset, place = add(tmp_path, "a", 3), s3.uri("asked")
    publish(dataset, place)
    query = "SELECT name, count(*) AS n FROM tags WHERE name = $name GROUP BY 1"
    assert duckdb_query.sql(place, query, {"name": "a"}).to_pylist() == [{"name": "a", "n": 3}]
    there = lm.open(place)
    assert there.table("tags").equals(dataset.read("tags"))
    assert there.tags["name"].tolist() == ["a"] * 3
    assert there.sql("SELECT count(*) AS n FROM tags")["n"][0] == 3
    assert there.ask("top_tags").equals(named_queries.top_tags(tmp_path))
    assert repr(there) == "Tables('s3://lake/asked')"


def test_the_command_asks_a_place_with_what_the_environment_says(tmp_path, s3, add, command):
    """`lightmeter sql s3://…` prints the answer; keys and addresses come from the environment."""
    publish(add(tmp_path, "a", 3), s3.uri("command"))
    result = command("sql", "s3://lake/command", "SELECT name, count(*) AS n FROM tags GROUP BY 1", **s3.environment)
    assert (result.code, result.out) == (0, "name,n\na,3\n")
    empty = command("sql", "s3://lake/nothing", "FROM tags", **s3.environment)
    assert (empty.code, empty.out) == (2, "")
    assert "s3://lake/nothing holds no tables" in empty.err
    assert "lightmeter rebuild DIR --to s3://lake/nothing" in empty.err


@pytest.mark.parametrize("tables", [TABLES[:3], sweep(TABLES)], ids=["three", "all"])
def test_a_table_that_is_not_there_has_its_columns(tmp_path, s3, add, tables):
    """A table that was not published is empty, as in a folder."""
    place = s3.uri("one")
    publish(add(tmp_path, "a", 1), place)
    for table in tables:
        assert duckdb_query.sql(place, f"FROM {table}").column_names == schema(table).names
    assert read_remote_table(place, "faces").equals(schema("faces").empty_table())
    with pytest.raises(UsageError, match="nonsense"):
        read_remote_table(place, "nonsense")


def test_optional_tables_are_empty_in_a_place_without_them(tmp_path, add):
    """The tables of embeddings and of decisions can be queried in a remote place as in a folder, before any exists."""
    place = (tmp_path / "lake").as_uri()
    publish(add(tmp_path / "out", "a", 1), place)
    for table in sorted({*ALL_TABLES} - {*TABLES}):
        assert duckdb_query.sql(place, f"FROM {table}").equals(duckdb_query.sql(tmp_path / "out", f"FROM {table}"))


def test_only_what_is_there_can_be_read(tmp_path, s3, add):
    """A query can read only the tables of its place, and can write nothing."""
    place = s3.uri("closed")
    publish(add(tmp_path, "a", 1), place)
    for query in (f"COPY tags TO '{tmp_path}/x.csv'", f"FROM read_parquet('{tmp_path}/tables/tags/*.parquet')"):
        with pytest.raises(UsageError, match="Permission"):
            duckdb_query.sql(place, query)


@pytest.mark.parametrize("place", ["s3://k:secret@nowhere/x?{options}", "gopher://nowhere/x"])
def test_a_place_that_cannot_be_read_is_reported(s3, place):
    """A missing bucket or an unknown scheme raises a usage error that shows no key."""
    with pytest.raises(UsageError, match="nowhere/x") as raised:
        duckdb_query.sql(place.format(options=s3.options), "FROM tags")
    assert "secret" not in f"{raised.value} {raised.value.hint}"


def test_any_file_system_of_fsspec_will_do(tmp_path, add):
    """What was published through fsspec is read through it, and only the columns that are wanted."""
    memory = fsspec.filesystem("memory")
    publish(add(tmp_path, "a", 3), "/lake/read", memory)
    assert remote_datasets("/lake/read", memory)["tags"].to_table(columns=["name"]).to_pydict() == {"name": ["a"] * 3}


def test_open_tables_see_what_was_replaced_between_two_questions(tmp_path, add):
    """An open session reads the new parts after its tables were compacted."""
    add(tmp_path, "a", 1)
    add(tmp_path, "b", 1)
    with duckdb_query.QuerySession(tmp_path) as tables:
        assert tables.ask("SELECT count(*) AS n FROM tags").to_pydict() == {"n": [2]}
        (tmp_path / "tables").rename(tmp_path / "away")
        add(tmp_path, "c", 5)
        assert tables.ask("SELECT count(*) AS n FROM tags").to_pydict() == {"n": [5]}
