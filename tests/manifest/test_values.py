"""Values of a manifest that are hard to store: integers beyond 64 bits, and values that are nested deeply."""

from __future__ import annotations

import asyncio
import io
import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lightmeter as lm
from lightmeter.manifest.json_values import MAX_NESTING, TOO_DEEP
from lightmeter.manifest.readers import ManifestReader, rereadable
from tests.manifest.test_tars import make_tar

URL = "https://example.com/a.jpg"
DIGITS = '0123456789\\é"'
LONG = (2**63, 2**64 - 1, 2**64, 2**64 + 1, -(2**63), -(2**63) - 1, 10**300)


def nested(levels, value="end"):
    """Return a value inside this number of lists."""
    for _ in range(levels):
        value = [value]
    return value


def manifest(folder, form, rows):
    """Return a manifest of this form with these rows."""
    path = folder / f"m.{form}"
    match form:
        case "jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        case "json":
            path.write_text(json.dumps(rows))
        case "table":
            return pa.Table.from_pylist(rows)
        case "list":
            return rows
        case "generator":
            return asyncio.run(rereadable(iter(rows)))
    return path


@pytest.mark.parametrize("form", ["jsonl", "json"])
def test_integers_beyond_64_bits_lose_no_digit(tmp_path, form):
    """An integer that no column of integers holds is kept as text, and as an id it differs from the next integer."""
    items = list(ManifestReader(manifest(tmp_path, form, [{"url": URL, "id": one, "n": [one]} for one in LONG])))
    assert [item.item_id for item in items] == list(map(str, LONG))
    expected = [one if -(2**63) <= one < 2**64 else str(one) for one in LONG]
    assert [item.extra["n"] for item in items] == [[one] for one in expected]


def test_an_integer_beyond_64_bits_in_a_tar_is_text(tmp_path):
    """The `.json` of a sample keeps all digits of its integers too."""
    make_tar(tmp_path / "m.tar", {"a.jpg": b"x", "a.json": b'{"n": 18446744073709551617}'})
    assert [item.extra for item in ManifestReader(tmp_path / "m.tar")] == [{"json": {"n": "18446744073709551617"}}]


@given(number=st.integers(), other=st.floats(allow_nan=False, allow_infinity=False), text=st.text(DIGITS))
def test_a_long_integer_changes_no_other_value_of_its_row(number, other, text):
    """Beside an integer of any length, all values are read as they are in other rows."""
    rows = [{"url": URL, "a": other, "b": text, "c": [of], "d": None} for of in (number, 1)]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    first, second = ManifestReader("-", stdin=io.BytesIO(lines.encode()))
    assert first.extra | {"c": 1} == second.extra | {"c": 1}
    assert str(first.extra["c"][0]) == str(number)


@pytest.mark.parametrize("values", [(2**53 + 1, 0.5), (0.5, 1, -(2**53) - 1), (1, 2**53 + 1, 0.5)], ids=str)
def test_an_integer_beside_floats_loses_no_digit(tmp_path, values):
    """A column with floats and with an integer that a float would round is a column of texts, with all digits."""
    rows = [{"id": str(place), "url": URL, "n": value} for place, value in enumerate(values)]
    plan = lm.plan(manifest(tmp_path, "jsonl", rows), features=["tags"], precheck=False, budget=0)
    run = lm.run(plan, out=tmp_path / "out")
    assert run.table("assets")["n"].to_pylist() == list(map(str, values))


@pytest.mark.parametrize(("values", "kind"), [((1, 0.5, 2**53), "double"), ((1, 2**53 + 1, None), "int64")], ids=str)
def test_a_column_of_numbers_stays_one_where_nothing_is_lost(tmp_path, values, kind):
    """Integers that a float holds are numbers beside floats, and longer ones are numbers beside integers."""
    reader = ManifestReader(manifest(tmp_path, "jsonl", [{"url": URL, "n": value} for value in values]))
    assert [item.extra["n"] for item in reader] == list(values)
    assert reader.extra_types == {"n": kind}


def test_an_interval_of_arrow_is_text():
    """A value of an Arrow type that neither JSON nor Parquet has is its text."""
    table = pa.table({"url": [URL, URL], "span": pa.array([(1, 2, 3), None], pa.month_day_nano_interval())})
    assert [item.extra["span"] for item in ManifestReader(table)] == [
        "MonthDayNano(months=1, days=2, nanoseconds=3)",
        None,
    ]


@pytest.mark.parametrize("form", ["jsonl", "json", "list", "generator", "table"])
def test_a_value_that_is_nested_too_deeply_is_null(tmp_path, form):
    """Such a row keeps its other columns and has a note; the deepest value that can be stored is read unchanged."""
    most = nested(MAX_NESTING - 1, [])
    rows = [{"id": "ok", "url": URL, "a": 1}, {"id": "deep", "url": URL, "a": 2}]
    source = manifest(tmp_path, form, [rows[0] | {"b": most}, rows[1] | {"b": nested(1, most)}])
    reader = ManifestReader(source)
    ok, deep = reader
    assert (ok.item_id, ok.problem, ok.extra) == ("ok", None, {"a": 1, "b": most})
    assert (deep.item_id, deep.url, deep.extra, deep.problem) == ("deep", URL, {"a": 2, "b": None}, None)
    assert reader.notes == [f"values of 'b' that are {TOO_DEEP}: 1, such as row 2"]


@pytest.mark.parametrize("levels", [300, 1000, 100_000])
def test_no_depth_raises_a_traceback(tmp_path, levels):
    """Whatever the depth of a value in a list or in JSON, it alone is null, and all rows are read."""
    text = f'{{"url": "{URL}", "id": 18446744073709551616, "a": {"[" * levels}{"]" * levels}}}\n{{"url": "{URL}"}}\n'
    (tmp_path / "m.jsonl").write_text(text)
    (tmp_path / "m.json").write_text(f"[{text.strip().replace(chr(10), ',')}]")
    for source in (tmp_path / "m.jsonl", tmp_path / "m.json", [{"url": URL, "a": nested(levels)}, {"url": URL}]):
        deep, good = ManifestReader(source)
        assert (deep.extra, deep.problem, good.problem) == ({"a": None}, None, None)


def test_a_deep_value_in_a_tar_is_null_and_one_in_place_of_a_row_is_a_bad_row(tmp_path):
    """The `.json` of a sample, and an element of a JSON array, may be nested at any depth."""
    text = json.dumps(nested(MAX_NESTING + 1)).encode()
    make_tar(tmp_path / "m.tar", {"a.jpg": b"x", "a.json": text})
    (tmp_path / "m.json").write_bytes(b"[" + text + b"]")
    (item,) = ManifestReader(tmp_path / "m.tar")
    assert (item.extra, item.problem) == ({"json": None}, None)
    assert "is neither an object nor a text" in next(iter(ManifestReader(tmp_path / "m.json"))).problem


def test_the_deepest_value_travels_through_a_plan_file_into_the_tables(tmp_path):
    """A saved plan with the deepest value loads again with its notes, and the run's tables have the value."""
    most = nested(MAX_NESTING)
    rows = [{"id": "ok", "url": URL, "b": most}, {"id": "deep", "url": URL, "b": nested(1, most)}]
    plan = lm.plan(manifest(tmp_path, "jsonl", rows), features=["tags"], precheck=False, budget=0)
    loaded = lm.load_plan(plan.save(tmp_path / "plan.json"))
    assert loaded.manifest_notes == plan.manifest_notes == (f"values of 'b' that are {TOO_DEEP}: 1, such as row 2",)
    run = lm.run(loaded, out=tmp_path / "out")
    ok, deep = run.table("assets").select(["item_id", "status", "reason", "b"]).to_pylist()
    assert (ok["item_id"], json.loads(ok["b"])) == ("ok", most)
    assert (deep["item_id"], deep["status"], deep["b"]) == ("deep", "duplicate", None)
