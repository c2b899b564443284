"""Facts that were packed into bytes are the facts that went in."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.facts.buffers import KEY_KINDS
from lightmeter.facts.coerce import cleaned
from lightmeter.facts.columns import CSS_NAME, FACT_TABLES, TABLE_COLUMNS
from lightmeter.facts.flatten import AnswerContext, Flattener, ItemRef
from lightmeter.facts.lenient_decode import Corner
from lightmeter.facts.packed import column_of
from lightmeter.tables import schema
from lightmeter.tables.arrow_decode import array_of_packed, tables_of
from lightmeter.tables.schema import ARROW_TYPES

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
OF = {
    "string": st.none() | WORDS,
    "double": st.none() | NUMBERS,
    "int32": st.none() | st.integers(-(2**31), 2**31 - 1),
    "uint8": st.none() | st.integers(0, 255),
    "bool": st.none() | st.booleans(),
    "polygon": st.lists(st.builds(Corner, NUMBERS, NUMBERS), max_size=3),
    "vector": st.none() | st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=3),
    "emotions": st.none() | st.lists(st.tuples(WORDS, st.none() | NUMBERS), min_size=1, max_size=3),
}


def spoken(kind, value):
    """A value as Arrow tells it."""
    if kind == "polygon":
        return [corner._asdict() for corner in value] or None
    return value


@pytest.mark.parametrize("kind", OF)
@given(data=st.data())
def test_what_is_packed_is_what_is_unpacked(kind, data):
    """Any values in any number of additions and messages, nulls among them or not, come out in their order."""
    messages = data.draw(st.lists(st.lists(st.lists(OF[kind], max_size=12), max_size=3), min_size=1, max_size=3))
    column, packed = column_of("x", kind), []
    for message in messages:
        for values in message:
            column.add(values)
        packed.append(column.taken())
    array = array_of_packed(kind, packed)
    array.validate(full=True)
    assert array.type == ARROW_TYPES[kind]
    assert array.to_pylist() == [spoken(kind, value) for message in messages for values in message for value in values]


ANYTHING = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.lists(st.integers() | st.floats(), max_size=2)
)


@pytest.mark.parametrize("kind", ["string", "double", "int32", "uint8", "bool"])
@given(values=st.lists(ANYTHING, max_size=9))
def test_no_value_is_too_odd_to_be_packed(kind, values):
    """What an answer says instead of a value of the kind, half a surrogate pair too, is null or its nearest text."""
    column = column_of("x", kind)
    column.add(cleaned(kind, values))
    array = array_of_packed(kind, [column.taken()])
    array.validate(full=True)
    assert len(array) == len(values)


def test_every_column_of_facts_is_told_by_somebody():
    """Entries, keys and colours between them tell all that the schema has, in kinds that can be packed."""
    for table in FACT_TABLES:
        kinds = {
            column.name: column.kind for column in TABLE_COLUMNS[table] if column.name not in (CSS_NAME, *KEY_KINDS)
        }
        assert {*kinds, *KEY_KINDS, CSS_NAME} >= set(schema(table).names)
        assert set(kinds.values()) <= set(OF)


def test_rows_without_an_item_have_no_url_either():
    """Keys that are null are null in each of their rows, beside others that are not."""
    flattener = Flattener()
    context = AnswerContext("run", None, None, None)
    two = [ItemRef("a", "https://example.com/a.jpg", None), ItemRef("b", "https://example.com/b.jpg", None)]
    flattener.add_answer(
        b'{"all":{"assets":[],"errors":["no such thing","https://example.com/b.jpg is gone"]}}', two, context
    )
    rows = tables_of(flattener.packed())["errors"]
    assert rows.column("item_id").to_pylist() == [None, "b"]
    assert rows.schema.field("item_id").type == pa.string()
