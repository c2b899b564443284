"""Values of the fact tables keep their value and type when they are converted to Arrow."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.facts.coerce import coerce_values
from lightmeter.facts.columns import CSS_NAME, FACT_TABLES
from lightmeter.facts.fact_columns import ENTRY_COLUMNS, ROW_KEY_COLUMNS
from lightmeter.facts.flatten import AnswerContext, Flattener, ItemRef
from lightmeter.facts.lenient_decode import Corner
from lightmeter.tables.arrow.fact_tables import entry_array
from lightmeter.tables.arrow.schema import ARROW_TYPES, schema
from tests.facts.fact_rows import fact_tables

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
VALUES = {
    "string": st.none() | WORDS,
    "json": WORDS.map(str.encode),
    "double": st.none() | NUMBERS,
    "int32": st.none() | st.integers(-(2**31), 2**31 - 1),
    "uint8": st.none() | st.integers(0, 255),
    "bool": st.none() | st.booleans(),
    "polygon": st.lists(st.builds(Corner, NUMBERS, NUMBERS), max_size=3),
    "vector": st.none() | st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=3),
    "emotions": st.none() | st.lists(st.tuples(WORDS, st.none() | NUMBERS), min_size=1, max_size=3),
}


def as_arrow(kind, value):
    """Return a value as Arrow returns it."""
    if kind == "json":
        return value.decode()
    if kind == "polygon":
        return [corner._asdict() for corner in value] or None
    return value


@pytest.mark.parametrize("kind", VALUES)
@given(data=st.data())
def test_an_array_holds_the_values_it_was_made_of(kind, data):
    """Any values of a kind, nulls among them or not, are in the array in their order and in the column's type."""
    values = data.draw(st.lists(VALUES[kind], max_size=12))
    array = entry_array(kind, values)
    array.validate(full=True)
    assert array.type == ARROW_TYPES.get(kind, pa.string())
    assert array.to_pylist() == [as_arrow(kind, value) for value in values]


ANYTHING = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.lists(st.integers() | st.floats(), max_size=2)
)


@pytest.mark.parametrize("kind", ["string", "double", "int32", "uint8", "bool"])
@given(values=st.lists(ANYTHING, max_size=9))
def test_coerced_values_of_any_type_fit_their_column(kind, values):
    """Any JSON value becomes null or a value of the kind of its column."""
    array = entry_array(kind, coerce_values(kind, values))
    array.validate(full=True)
    assert len(array) == len(values)


def test_every_column_of_a_fact_table_has_a_source():
    """Entries, row keys and colors together fill every column of the schema, with kinds that have an array."""
    for table in FACT_TABLES:
        assert {*ENTRY_COLUMNS[table], *ROW_KEY_COLUMNS, CSS_NAME} >= set(schema(table).names)
        assert set(ENTRY_COLUMNS[table].values()) <= set(VALUES)


def test_rows_without_an_item_have_no_url_either():
    """Keys that are null are null in each of their rows, beside others that are not."""
    flattener = Flattener()
    context = AnswerContext("run", None, None, None)
    two = [ItemRef("a", "https://example.com/a.jpg", None), ItemRef("b", "https://example.com/b.jpg", None)]
    flattener.add_answer(
        b'{"all":{"assets":[],"errors":["no such thing","https://example.com/b.jpg is gone"]}}', two, context
    )
    rows = fact_tables(flattener)["errors"]
    assert rows.column("item_id").to_pylist() == [None, "b"]
    assert rows.schema.field("item_id").type == pa.string()


def test_a_url_with_half_a_surrogate_pair_is_a_text():
    """A URL that UTF-8 cannot hold stands in the table with a question mark for what cannot be written."""
    flattener = Flattener()
    item = ItemRef("i", "a\ud800", 0)
    flattener.add_answer(
        b'{"all":{"assets":[{"tags":{"a":[{"name":"a"}]}}]}}', [item], AnswerContext("r", None, None, None)
    )
    assert fact_tables(flattener)["tags"].column("url").to_pylist() == ["a?"]
