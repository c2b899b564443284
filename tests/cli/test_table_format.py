"""Formats of query results: terminal, CSV, JSON and Markdown."""

from __future__ import annotations

import csv
import io
import json
import math
from datetime import UTC, date, datetime

import duckdb
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from lightmeter.cli.table_format import MAX_ROWS, as_csv, as_json, as_markdown, format_table

WIDE = pa.table({f"column_{at}": [f"value {at} of some length"] * 3 for at in range(20)})
NESTED = pa.table(
    {
        "at": [datetime(2026, 1, 2, 3, 4, tzinfo=UTC)],
        "names": [["a|b", 'c"d']],
        "map": pa.array([[("joy", 0.5)]], pa.map_(pa.string(), pa.float64())),
        "share": [math.nan],
        "none": pa.array([None], pa.string()),
        "text": ["two\nlines\x1b[31m | red"],
    }
)


def test_a_wide_result_fits_the_terminal():
    """No line is wider than the terminal; a note names the columns left out and how to get them."""
    lines, note = format_table(WIDE, 80)
    assert max(map(cell_len, lines)) <= 80
    assert lines[0].split() == [f"column_{at}" for at in range(len(lines[0].split()))]
    assert note.startswith("3 rows; ")
    assert "of 20 columns are not shown: " in note
    assert note.count("column_") + len(lines[0].split()) == 20
    assert "--output csv" in note


def test_a_narrow_result_is_shown_completely():
    """A result that fits is not cut, and has no note about cutting."""
    lines, note = format_table(pa.table({"name": ["cat", "dog"], "n": [10, 2]}), 80)
    assert lines == ["name   n", "cat   10", "dog    2"]
    assert note == "2 rows."


def test_long_cells_and_nested_values_are_cut():
    """A long text ends in an ellipsis, a nested value is cut JSON, control characters are removed."""
    answer = pa.table({"long": ["x" * 500], "list": [list(range(500))], "text": ["a\x1b[31m\nb"]})
    (_, line), _ = format_table(answer, 400)
    assert "x" * 59 + "…" in line
    assert "[0, 1, 2" in line
    assert "…" in line
    assert "\x1b" not in line
    assert cell_len(line) < 120


def test_numbers_are_never_cut():
    """A number is shown completely even if texts beside it are cut."""
    lines, _ = format_table(pa.table({"text": ["x" * 90], "big": [12345678901234567]}), 40)
    assert "12345678901234567" in lines[1]
    assert "…" in lines[1]


def test_empty_columns_are_left_out_first():
    """If not all columns fit, empty columns are left out before others."""
    empty = {f"empty_{at}": pa.array([None], pa.string()) for at in range(9)}
    lines, note = format_table(pa.table({"id": ["1"], **empty, "last": ["seen"]}), 40)
    assert "last" in lines[0]
    assert "empty_8" in note


def test_a_long_result_states_its_row_count():
    """A long result shows its first rows and states the number of all rows."""
    lines, note = format_table(pa.table({"n": list(range(1000))}), 80)
    assert len(lines) == MAX_ROWS + 1
    assert note.startswith(f"1,000 rows, the first {MAX_ROWS} are shown")


@given(
    st.lists(
        st.tuples(st.text(max_size=80), st.floats() | st.none(), st.lists(st.integers(-9, 9), max_size=9)), max_size=5
    ),
    st.integers(1, 200),
)
def test_no_line_is_wider_than_the_terminal(rows, width):
    """For any values and any width of at least one cut column, each row is one line that fits."""
    texts, floats, lists = map(list, zip(*rows, strict=True)) if rows else ([], [], [])
    texts = [text.encode("utf-8", "replace").decode() for text in texts]
    columns = {"a": pa.array(texts, pa.string()), "b": pa.array(floats, pa.float64())}
    lines, _ = format_table(pa.table({**columns, "c": pa.array(lists, pa.list_(pa.int64()))}), width)
    assert all(cell_len(line) <= max(width, 14) for line in lines)
    assert all(line.splitlines() in ([line], []) for line in lines)


def test_csv_and_json_hold_everything():
    """CSV and JSON hold all rows and columns, nested values as JSON."""
    (row,) = csv.DictReader(io.StringIO("".join(as_csv(NESTED))))
    assert json.loads(row["names"]) == ["a|b", 'c"d']
    assert json.loads(row["map"]) == {"joy": 0.5}
    assert (row["none"], row["text"]) == ("", "two\nlines\x1b[31m | red")
    (row,) = json.loads("".join(as_json(NESTED)))
    assert row["at"] == "2026-01-02T03:04:00+00:00"
    assert (row["share"], row["none"], row["map"]) == (None, None, {"joy": 0.5})
    assert len(json.loads("".join(as_json(pa.table({"n": list(range(20_000))}))))) == 20_000
    assert json.loads("".join(as_json(pa.table({"n": pa.array([], pa.int64())})))) == []


def test_markdown_escapes_cells():
    """Bars and line breaks in cells do not break a row."""
    lines = "".join(as_markdown(NESTED)).splitlines()
    assert len(lines) == 3
    assert lines[1] == "| --- | --- | --- | --- | --- | --- |"
    assert "\\|" in lines[2]


def test_duplicate_column_names_are_kept():
    """Columns with the same name, as a join gives them, keep all values in every format."""
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["n", "n"])
    assert json.loads("".join(as_json(twice))) == [{"n": 1, "n_2": 2}]
    assert "".join(as_csv(twice)).splitlines() == ["n,n", "1,2"]
    assert format_table(twice, 80)[0] == ["n  n", "1  2"]


@pytest.mark.parametrize("value", [date(9999, 12, 31), 2**31 - 3, -(2**31) + 3, -719_529])
def test_dates_that_python_lacks_are_printed(value):
    """A date before the year 1 or after 9999, also in a list, is a text in every format."""
    days = pa.array([value], pa.date32())
    table = pa.table({"day": days, "days": pa.ListArray.from_arrays([0, 1], days), "one": [1]})
    ((expected,),) = duckdb.from_arrow(table).project("day::VARCHAR").fetchall()
    (row,) = json.loads("".join(as_json(table)))
    assert (row["day"], row["one"]) == (expected, 1)
    assert expected in str(row["days"])
    assert expected in "".join(as_csv(table))
    assert expected in "".join(as_markdown(table))
    assert expected in format_table(table, 120)[0][1]


@pytest.mark.parametrize("form", ["table", "csv", "json", "markdown"])
def test_standard_output_holds_only_the_result(command, tmp_path, form):
    """Notes go to standard error, only the result goes to standard output."""
    part = tmp_path / "tables" / "tags" / "part-00000.parquet"
    part.parent.mkdir(parents=True)
    pa.parquet.write_table(pa.table({"name": ["cat"] * 100}), part)
    result = command("sql", tmp_path, "SELECT name, 1 AS one FROM tags", "--output", form)
    assert result.code == 0
    lines = {"table": MAX_ROWS + 1, "csv": 101, "json": 102, "markdown": 102}[form]
    assert len(result.out.splitlines()) == lines
    assert ("100 rows" in result.err) == (form == "table")
