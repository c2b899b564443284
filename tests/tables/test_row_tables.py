"""Conversion of journal rows to Arrow tables."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from lightmeter.tables.arrow.row_tables import ConstantColumn, RowTables, to_timestamps
from lightmeter.tables.arrow.schema import schema

_SECONDS = st.floats(0, 4e9) | st.integers(0, 2**31).map(float) | st.none()


@given(st.lists(_SECONDS, min_size=1))
def test_moments_are_those_of_datetime(seconds):
    """Seconds become the same microsecond as with Python's `datetime`."""
    expected = [None if one is None else datetime.fromtimestamp(one, tz=UTC) for one in seconds]
    assert to_timestamps(seconds).to_pylist() == expected


def test_columns_that_are_missing_are_null():
    """A table has all columns of its schema, whatever is known of its rows; one value may stand for all of them."""
    table = RowTables({}).build("requests", {"request_id": ["a", None], "run_id": ConstantColumn("run")}, 2)
    assert table.schema.equals(schema("requests"), check_metadata=True)
    first, second = table.to_pylist()
    assert (first.pop("request_id"), first.pop("run_id")) == ("a", "run")
    assert set(first.values()) == {None}
    assert (second["request_id"], second["run_id"]) == (None, "run")


def test_lists_may_be_the_same_for_all_rows():
    """One constant list becomes the value of all rows."""
    columns = {"features": ConstantColumn(["tags", "nsfw"]), "backends": ConstantColumn([])}
    table = RowTables({}).build("assets", columns, 3)
    assert table.column("features").to_pylist() == [["tags", "nsfw"]] * 3
    assert table.column("backends").to_pylist() == [[]] * 3


def test_own_columns_have_the_types_of_the_manifest():
    """The manifest's columns come under their names in the table; a text column keeps what is no text as JSON."""
    types = {"Status": "string", "n": "int64", "more": "json", "at": "timestamp_utc"}
    at = '"at": "2024-05-06T02:00:00+02:00"'
    extras = [f'{{"Status": "mine", "n": 5, "more": {{"a": 1}}, {at}}}', '{"Status": [1], "n": "five"}', "{}"]
    table = RowTables(types).build("assets", {"item_id": ["1", "2", "3"], "extra": extras}, 3)
    assert table.column("Status_manifest").to_pylist() == ["mine", "[1]", None]
    assert table.column("n").to_pylist() == [5, None, None]
    assert table.column("more").to_pylist() == ['{"a":1}', None, None]
    assert table.column("at").to_pylist() == [datetime(2024, 5, 6, tzinfo=UTC), None, None]


def test_no_rows_are_a_table_without_rows():
    """A table without rows has the full schema."""
    none = RowTables({}).build("requests", {}, 0)
    assert (none.num_rows, none.schema) == (0, schema("requests"))
