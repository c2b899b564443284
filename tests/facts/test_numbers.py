"""Numbers written as texts become numbers in every column."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.facts.coerce import to_int_in_range
from lightmeter.facts.columns import FACT_TABLES, TABLE_COLUMNS
from lightmeter.facts.fast_decode import decode_answer_fast
from lightmeter.facts.flatten import AnswerContext, Flattener, ItemRef
from lightmeter.facts.lenient_decode import to_float
from tests.facts.fact_rows import fact_tables

ENTRIES = {
    "tags": {"t": [{"name": "t", "score": 0.93}]},
    "colors": {
        "#0102ff": [{"hex": "#0102ff", "score": 0.5, "pixel_fraction": 0.25, "red": 1, "green": 2, "blue": 255}]
    },
    "nsfw": [{"label": "adult", "score": 0.75}, {"label": "sfw", "score": 0.5}],
    "faces": [
        {
            "box": {"left": 1.5, "top": 2, "width": 30, "height": 40},
            "age_range": {"low": 20, "high": 30},
            "gender": {"value": "f", "confidence": 0.5},
            "emotions": {"joy": 0.5, "anger": 0.25},
        },
        {"age": 25.5, "emotions": [{"type": "CALM", "confidence": 0.75}], "bounding_poly": [{"x": 1, "y": 2}]},
    ],
    "texts": [{"text": "12", "score": 0.5, "bounding_poly": {"vertices": [{"x": 1.5, "y": 2}]}}, {"confidence": 0.5}],
    "brands": [{"name": "b", "confidence": 0.25}],
    "embeddings": [{"model": "m", "vector": [0.5, -0.25, 1]}],
}


def texts_for_numbers(value):
    """The same value, with all its numbers written as texts."""
    if isinstance(value, dict):
        return {name: texts_for_numbers(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [texts_for_numbers(inner) for inner in value]
    return value if isinstance(value, str) else str(value)


def rows_of(asset) -> dict[str, list[dict]]:
    flattener = Flattener()
    context = AnswerContext(run_id="run", request_id="req", role=None, language=None)
    flattener.add_answer(orjson.dumps({"all": {"assets": [asset], "errors": []}}), (ItemRef("1", "u", 0),), context)
    tables = {table: rows.to_pylist() for table, rows in fact_tables(flattener).items()}
    return {table: [{**row, "raw": None} for row in rows] for table, rows in tables.items()}


@pytest.mark.parametrize("table", ENTRIES)
def test_texts_for_numbers_make_the_same_rows(table):
    """A service that writes numbers as texts loses none of them, in any table."""
    expected = rows_of({table: ENTRIES[table]})
    assert rows_of({table: texts_for_numbers(ENTRIES[table])}) == expected
    numeric = {column.name for column in TABLE_COLUMNS[table] if column.kind in ("double", "int32", "uint8")}
    for column in numeric:
        assert any(row[column] is not None for row in expected[table])
    assert set(ENTRIES) == set(FACT_TABLES) - {"descriptions"}


def test_usual_and_unusual_assets_share_an_answer():
    """A score written as text makes its answer use the lenient decoder, which keeps all other scores."""
    asset = {"tags": {"a": [{"name": "a", "score": "0.93"}], "b": [{"name": "b", "score": 0.5}]}}
    assert decode_answer_fast(orjson.dumps({"all": {"assets": [asset]}})) is None
    assert [(row["name"], row["score"]) for row in rows_of(asset)["tags"]] == [("a", 0.93), ("b", 0.5)]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.93", 0.93),
        (" .5 ", 0.5),
        ("-2", -2.0),
        ("+1.e2", 100.0),
        ("93%", 0.93),
        ("93.5 %", 0.935),
        *(
            (text, None)
            for text in ("", "%", "a", "nan", "inf", "1e999", "1,5", "1_0", "0x1", "1 2", "٣", "1%%", "9" * 65)
        ),
    ],
)
def test_decimal_texts_are_numbers(text, value):
    """A decimal number or a percentage is read; a text that could mean something else is not."""
    assert to_float(text) == (None if value is None else pytest.approx(value))


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**60), 2**60))
def test_a_number_survives_as_a_text(value):
    """Writing a number as a text and reading it gives the same double."""
    assert to_float(str(value)) == float(value)
    assert to_float(repr(float(value))) == float(value)


def test_whole_numbers_may_be_texts():
    """A text of a whole number is one; one with a fraction or out of range is none."""
    assert [to_int_in_range(text, 0, 256) for text in ("255", "2.0", "1.5", "256", "-1", "x")] == [
        255,
        2,
        None,
        None,
        None,
        None,
    ]


def test_bare_texts_under_a_key_belong_to_the_key():
    """A score or a likelihood that stands alone under a name belongs to that name."""
    rows = rows_of({"tags": {"cat": "0.93"}, "nsfw": {"adult": "LIKELY", "violence": "5%"}, "brands": {"b": ["0.5"]}})
    assert [(row["name"], row["score"]) for row in rows["tags"]] == [("cat", 0.93)]
    nsfw_rows = [(row["label"], row["likelihood"], row["score"], row["severity"]) for row in rows["nsfw"]]
    assert nsfw_rows == [("adult", "LIKELY", None, 0.75), ("violence", None, 0.05, 0.05)]
    assert [(row["name"], row["score"]) for row in rows["brands"]] == [("b", 0.5)]
