"""Answers of `sql` can be read on a terminal, and by programs."""

from __future__ import annotations

import csv
import io
import json
import math
from datetime import UTC, datetime

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


def test_a_wide_answer_fits_the_terminal():
    """Whatever `SELECT *` has, no line is wider than the terminal, and what is left out is named with the way to it."""
    shown = format_table(WIDE, 80)
    assert max(map(cell_len, shown.lines)) <= 80
    assert shown.lines[0].split() == [f"column_{at}" for at in range(len(shown.lines[0].split()))]
    assert shown.note.startswith("3 rows; ")
    assert "of 20 columns are not shown: " in shown.note
    assert shown.note.count("column_") + len(shown.lines[0].split()) == 20
    assert "--output csv" in shown.note


def test_a_narrow_answer_is_shown_whole():
    """Where there is room nothing is cut, and nothing is said of cutting."""
    shown = format_table(pa.table({"name": ["cat", "dog"], "n": [10, 2]}), 80)
    assert shown.lines == ("name   n", "cat   10", "dog    2")
    assert shown.note == "2 rows."


def test_long_cells_and_nested_values_are_short():
    """A long text ends in a mark, a nested value is the beginning of its JSON, control characters do nothing."""
    shown = format_table(pa.table({"long": ["x" * 500], "list": [list(range(500))], "text": ["a\x1b[31m\nb"]}), 400)
    (_, line) = shown.lines
    assert "x" * 59 + "…" in line
    assert "[0, 1, 2" in line
    assert "…" in line
    assert "\x1b" not in line
    assert cell_len(line) < 120


def test_numbers_are_never_cut():
    """Beside texts that are cut, a number is shown whole: its beginning would be another number."""
    shown = format_table(pa.table({"text": ["x" * 90], "big": [12345678901234567]}), 40)
    assert "12345678901234567" in shown.lines[1]
    assert "…" in shown.lines[1]


def test_columns_without_values_go_first():
    """Where not all columns fit, those that hold nothing are left out before those that do."""
    empty = {f"empty_{at}": pa.array([None], pa.string()) for at in range(9)}
    shown = format_table(pa.table({"id": ["1"], **empty, "last": ["seen"]}), 40)
    assert "last" in shown.lines[0]
    assert "empty_8" in shown.note


def test_rows_beyond_the_first_are_counted():
    """A long answer shows its first rows, and says how many there are."""
    shown = format_table(pa.table({"n": list(range(1000))}), 80)
    assert len(shown.lines) == MAX_ROWS + 1
    assert shown.note.startswith(f"1,000 rows, the first {MAX_ROWS} are shown")


@given(
    st.lists(
        st.tuples(st.text(max_size=80), st.floats() | st.none(), st.lists(st.integers(-9, 9), max_size=9)), max_size=5
    ),
    st.integers(1, 200),
)
def test_no_line_is_wider_than_the_terminal(rows, width):
    """For any values and any width of at least one cut column, lines fit and each is one line."""
    texts, floats, lists = map(list, zip(*rows, strict=True)) if rows else ([], [], [])
    texts = [text.encode("utf-8", "replace").decode() for text in texts]
    columns = {"a": pa.array(texts, pa.string()), "b": pa.array(floats, pa.float64())}
    shown = format_table(pa.table({**columns, "c": pa.array(lists, pa.list_(pa.int64()))}), width)
    assert all(cell_len(line) <= max(width, 14) for line in shown.lines)
    assert all(line.splitlines() in ([line], []) for line in shown.lines)


def test_csv_and_json_hold_everything():
    """All rows, columns and values are there, nested ones as JSON."""
    (row,) = csv.DictReader(io.StringIO("".join(as_csv(NESTED))))
    assert json.loads(row["names"]) == ["a|b", 'c"d']
    assert json.loads(row["map"]) == {"joy": 0.5}
    assert (row["none"], row["text"]) == ("", "two\nlines\x1b[31m | red")
    (told,) = json.loads("".join(as_json(NESTED)))
    assert told["at"] == "2026-01-02T03:04:00+00:00"
    assert (told["share"], told["none"], told["map"]) == (None, None, {"joy": 0.5})
    assert len(json.loads("".join(as_json(pa.table({"n": list(range(20_000))}))))) == 20_000
    assert json.loads("".join(as_json(pa.table({"n": pa.array([], pa.int64())})))) == []


def test_markdown_is_a_table_whatever_the_cells_hold():
    """Bars and line ends in cells break no row."""
    lines = "".join(as_markdown(NESTED)).splitlines()
    assert len(lines) == 3
    assert lines[1] == "| --- | --- | --- | --- | --- | --- |"
    assert "\\|" in lines[2]


def test_columns_of_one_name_are_all_there():
    """A join gives the same name twice; no value is lost in any form."""
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["n", "n"])
    assert json.loads("".join(as_json(twice))) == [{"n": 1, "n_2": 2}]
    assert "".join(as_csv(twice)).splitlines() == ["n,n", "1,2"]
    assert format_table(twice, 80).lines == ("n  n", "1  2")


@pytest.mark.parametrize("form", ["table", "csv", "json", "markdown"])
def test_standard_output_holds_nothing_but_the_answer(command, tmp_path, form):
    """Whatever is said beside the answer goes to standard error."""
    part = tmp_path / "tables" / "tags" / "part-00000.parquet"
    part.parent.mkdir(parents=True)
    pa.parquet.write_table(pa.table({"name": ["cat"] * 100}), part)
    told = command("sql", tmp_path, "SELECT name, 1 AS one FROM tags", "--output", form)
    assert told.code == 0
    lines = {"table": MAX_ROWS + 1, "csv": 101, "json": 102, "markdown": 102}[form]
    assert len(told.out.splitlines()) == lines
    assert ("100 rows" in told.err) == (form == "table")
