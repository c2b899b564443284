"""DataFrames of pandas and Polars, and tables of Arrow, whose columns or values are odd."""

from __future__ import annotations

from datetime import date

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from lightmeter.errors import ManifestError
from lightmeter.manifest.readers import ManifestReader
from lightmeter.manifest.row_parser import ReadOptions

URLS = ["https://example.com/a.jpg", "https://example.com/b.jpg", "https://example.com/c.jpg"]
MIXED = [1, "a", None]
TYPED = {
    "n": pd.array([1, None, 2**60], dtype="Int64"),
    "b": pd.array([True, None, False], dtype="boolean"),
    "text": pd.array(["x", None, "y"], dtype="string"),
    "when": pd.to_datetime(["2024-01-01", None, "2024-01-03"]),
}


def values_of(source, column):
    return [item.extra[column] for item in ManifestReader(source)]


def test_a_column_of_mixed_types_changes_no_other_column():
    """Beside a column of mixed types, all columns keep their order, values and types."""
    plain = ManifestReader(pd.DataFrame({"url": URLS, **TYPED, "mix": 0, "last": 1}))
    mixed = ManifestReader(pd.DataFrame({"url": URLS, **TYPED, "mix": MIXED, "last": 1}))
    for item, expected, value in zip(mixed, plain, MIXED, strict=True):
        assert list(item.extra.items()) == list((expected.extra | {"mix": value}).items())
    assert mixed.extra_types == plain.extra_types | {"mix": "string"}


@pytest.mark.parametrize("other", [[1, 2, 3], MIXED], ids=["numbers", "mixed"])
def test_the_named_index_of_a_data_frame_is_a_column(other):
    """Levels of the index that have a name are read as columns, whether or not a column has mixed types."""
    frame = pd.DataFrame({"url": URLS, "other": other}, index=pd.Index(["p", "q", "r"], name="id"))
    assert [(item.item_id, item.url) for item in ManifestReader(frame)] == list(zip("pqr", URLS, strict=True))
    levels = pd.MultiIndex.from_arrays([URLS, ["u", "v", "w"], [7, 8, 9]], names=["url", "shelf", None])
    items = list(ManifestReader(pd.DataFrame({"other": other}, index=levels)))
    assert [item.url for item in items] == URLS
    assert [item.extra for item in items] == [
        {"other": value, "shelf": shelf} for value, shelf in zip(other, "uvw", strict=True)
    ]


def test_an_index_of_mixed_types_holds_ids():
    """An index that Arrow cannot pass on is read too."""
    frame = pd.DataFrame({"url": URLS}, index=pd.Index([1, "q", 2.5], name="id"))
    assert [item.item_id for item in ManifestReader(frame)] == ["1", "q", "2.5"]
    unnamed = pd.DataFrame({"url": URLS}, index=[1, "q", 2.5])
    assert [(item.url, item.extra) for item in ManifestReader(unnamed)] == [(url, {}) for url in URLS]


@pytest.mark.parametrize("wanted", ["url", "id"])
def test_columns_of_mixed_types_need_a_column_of_addresses(wanted):
    """A DataFrame with mixed types that lacks a needed column is an error, as any other DataFrame."""
    frame = pd.DataFrame({"link" if wanted == "url" else "url": URLS, "mix": MIXED})
    with pytest.raises(ManifestError, match=f"no column is named `{wanted}`"):
        list(ManifestReader(frame, options=ReadOptions(id_column="id" if wanted == "id" else None)))


def test_a_deep_value_of_a_data_frame_is_null_with_a_note():
    """A value that is nested too deeply is null, and its row is read."""
    deep = []
    for _ in range(300):
        deep = [deep]
    frame = pd.DataFrame({"url": URLS[:2], "deep": [deep, None], "n": [1, 2]})
    reader = ManifestReader(frame)
    assert [(item.extra, item.problem) for item in reader] == [({"deep": None, "n": n}, None) for n in (1, 2)]
    assert "nested deeper" in reader.notes[0]


@pytest.mark.parametrize("values", [[1, 2, 3], MIXED], ids=["numbers", "mixed"])
def test_two_columns_of_one_name_are_an_error(values):
    """A DataFrame with a name twice is the same error as an Arrow table."""
    frame = pd.DataFrame(zip(URLS, values, values, strict=True), columns=["url", "a", "a"])
    with pytest.raises(ManifestError, match="two columns share a name"):
        list(ManifestReader(frame))


@pytest.mark.parametrize("kind", [pl.Categorical, pl.Enum(["a", "b"])], ids=["categorical", "enum"])
def test_categories_of_polars_are_texts(kind):
    """Categorical columns and enums of Polars are read as their texts."""
    reader = ManifestReader(pl.DataFrame({"url": URLS, "c": pl.Series(["a", "b", None], dtype=kind)}))
    assert [item.extra["c"] for item in reader] == ["a", "b", None]
    assert reader.extra_types == {"c": "string"}


def test_columns_of_polars_that_arrow_lacks_are_read():
    """Polars passes 128-bit integers and Python objects to Arrow in no form that it reads."""
    numbers = pl.DataFrame({"url": URLS, "n": pl.Series([1, None, 2**100], dtype=pl.Int128)})
    assert values_of(numbers, "n") == [1, None, str(2**100)]
    objects = pl.DataFrame({"url": URLS, "o": pl.Series(MIXED, dtype=pl.Object), "when": [date(2024, 1, 2)] * 3})
    reader = ManifestReader(objects)
    assert [item.extra["o"] for item in reader] == MIXED
    assert reader.extra_types == {"o": "string", "when": "date"}


@pytest.mark.parametrize("unit", ["s", "ms"])
def test_a_moment_beyond_microseconds_is_null(unit):
    """A moment that microseconds cannot hold is not read as another one."""
    reader = ManifestReader(pa.table({"url": URLS[:2], "when": pa.array([2**61, 0], pa.timestamp(unit))}))
    assert [item.extra["when"] for item in reader] == [None, "1970-01-01T00:00:00"]
    note = f"values of 'when' that are not readable as timestamp[{unit}], read as null: 1, such as row 1"
    assert reader.notes == [note]


def test_a_date_in_milliseconds_is_its_day():
    """A 64-bit date is the day in which its millisecond lies, and one that is no date is null."""
    days = pa.array([-5, 86_400_005, 2**62], pa.int64()).view(pa.date64())
    assert values_of(pa.table({"url": URLS, "day": days}), "day") == ["1969-12-31", "1970-01-02", None]


def test_finer_digits_than_microseconds_are_dropped():
    """Nanoseconds are cut off; all digits down to microseconds stay."""
    table = pa.table({"url": URLS[:1], "when": pa.array([1_700_000_000_123_456_789], pa.timestamp("ns"))})
    assert values_of(table, "when") == ["2023-11-14T22:13:20.123456"]


def test_periods_and_intervals_of_pandas_are_texts():
    """A period is its text, not its number of months; an interval says which of its ends belong to it."""
    columns = {"month": pd.PeriodIndex(["2024-01", None, "2024-03"], freq="M")}
    columns["span"] = pd.cut([1, 3, float("nan")], [0, 2, 4])
    columns["ends"] = pd.arrays.IntervalArray.from_tuples([(0.0, 1.0), None, (1.0, 2.0)], closed="left")
    source = pd.DataFrame({"url": URLS, **columns})
    assert values_of(source, "month") == ["2024-01", None, "2024-03"]
    assert values_of(source, "ends") == ["[0.0, 1.0)", None, "[1.0, 2.0)"]
    assert values_of(source, "span") == ["(0, 2]", "(2, 4]", None]


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table], ids=["pandas", "Polars", "Arrow"])
def test_a_column_without_a_name_is_named_by_its_place(make):
    """A column with an empty name is named as in CSV."""
    reader = ManifestReader(make({"url": URLS, "": [1, 2, 3], "z": [4, 5, 6]}))
    assert next(iter(reader)).extra == {"column_2": 1, "z": 4}
    assert reader.extra_types == {"column_2": "int64", "z": "int64"}


def test_a_missing_value_of_pandas_is_null():
    """`pandas.NA` in dicts and in columns of mixed types is null, as None is."""
    assert values_of([{"url": URLS[0], "a": pd.NA, "b": [pd.NA]}], "a") == [None]
    assert values_of([{"url": URLS[0], "b": [pd.NA]}], "b") == [[None]]
    assert values_of(pd.DataFrame({"url": URLS, "a": [1, "x", pd.NA]}), "a") == [1, "x", None]


@pytest.mark.parametrize("source", [{"url": URLS}, pl.LazyFrame({"url": URLS}), None, 7], ids=type)
def test_what_has_no_rows_is_an_error(source):
    """A dict of columns, a lazy frame or a number is an error that says what to give in its place."""
    with pytest.raises(ManifestError) as raised:
        list(ManifestReader(source))
    assert "DataFrame" in raised.value.hint
