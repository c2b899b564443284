"""The answer parser finds the JSON object in a text, validates it against the schema, and never raises."""

from __future__ import annotations

import json
import re

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.ask.answer_parser import parse_answer_text
from lightmeter.ask.question import MAX_ERROR_CHARS, coerce_ask
from lightmeter.tables.arrow.answer_schema import arrow_type
from tests.ask.describer import QUESTION, good

ASK = coerce_ask(QUESTION)
TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
VALUES = st.fixed_dictionaries(
    {"what": TEXT, "count": st.none() | st.integers(0, 2**63 - 1)},
    optional={
        "share": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53),
        "safe": st.booleans(),
        "kind": st.sampled_from(["image", "drawing"]),
        "words": st.lists(TEXT, max_size=3),
        "parts": st.lists(st.fixed_dictionaries({"name": TEXT}), max_size=3),
        "beside": st.integers(),
    },
)
AROUND = st.sampled_from(
    [("", ""), ("```json\n", "\n```"), ("```\n", "\n```"), ("Sure {as asked}:\n", "\nHope {that} helps."), ("[", "]")]
)


@given(VALUES, AROUND)
def test_a_valid_object_is_found_anywhere_in_the_text(value, around):
    """Code fences and sentences around the object are ignored, and unknown properties are dropped."""
    values, error = parse_answer_text(ASK, around[0] + json.dumps(value) + around[1])
    assert error is None
    assert values == {one.name: value.get(one.name) for one in ASK.properties}
    for one in ASK.properties:  # and every value fits its column
        assert pa.array([values[one.name]], arrow_type(one.type)).to_pylist() == [values[one.name]]


@given(st.text() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_nothing_raises(text):
    """Every text gives either values or an error of bounded length."""
    values, error = parse_answer_text(ASK, text)
    assert (values is None) != (error is None)
    assert error is None or len(error) <= MAX_ERROR_CHARS


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "is empty"),
        ("  ", "is empty"),
        ("I cannot help with that.", "no JSON object"),
        ("[1, 2]", "no JSON object"),
        (good()[:-1] + ",}", "It is no JSON"),
        (good()[:20], "It is no JSON"),
        ('{"what": {"what": "inner", "count": 1},}', "It is no JSON"),
        ("{'what': 1}", "It is no JSON"),
        (good(share=float("nan")), "NaN is no JSON"),
        (good(count=-1), "count: -1 is less than"),
        (good(count=1.5), "count: 1.5 is not of type"),
        (good(count=2**63), "no integer of 64 bits"),
        ('{"what": "x", "count": 1, "share": 1e999}', "share: "),
        (good(kind="photo"), 'kind: "photo" is not one of'),
        (good(parts=[{}]), r'parts\[0\]: "name" is a required property'),
        ('{"what": 1}', 'the answer: "count" is a required property; what: 1 is not of type "string"'),
        ('{"a":' * 100_000, "It is no JSON"),
    ],
)
def test_an_error_names_the_place_and_the_reason(text, why):
    """The error goes into the second prompt, so it names the property and the reason."""
    values, error = parse_answer_text(ASK, text)
    assert values is None
    assert re.search(why, error), error


def test_a_whole_number_with_a_point_is_an_integer():
    """JSON has one number type: 2.0 is valid for `integer`, and 3 for `number`."""
    values, _ = parse_answer_text(ASK, good(count=2.0, share=3))
    assert (values["count"], values["share"]) == (2, 3.0)
    assert (type(values["count"]), type(values["share"])) == (int, float)


@pytest.mark.parametrize(
    ("maker", "error"),
    [
        ({"name": "Acme"}, None),
        ("Acme", "maker: 'Acme' is not of type 'object'."),
        ([{"name": "Acme"}], "maker: [{'name': 'Acme'}] is not of type 'object'."),
        (1, "maker: 1 is not of type 'object'."),
    ],
)
def test_a_value_that_does_not_fit_its_column_is_an_error(maker, error):
    """A part of a schema with `properties` but no `type` is an object, although JSON Schema allows any value there."""
    schema = {"type": "object", "properties": {"maker": {"properties": {"name": {"type": "string"}}}}}
    answer = parse_answer_text(coerce_ask({**QUESTION, "schema": schema}), json.dumps({"maker": maker}))
    assert answer.error == error
    assert answer.values == ({"maker": maker} if error is None else None)


def test_half_a_surrogate_pair_fits_a_column():
    """Half a surrogate pair becomes a question mark, as everywhere in the tables."""
    values, error = parse_answer_text(ASK, '{"what": "\\ud800", "count": 1}')
    assert (values["what"], error) == ("?", None)


@pytest.mark.parametrize(
    "before",
    [
        f"<think>Perhaps {good(count=7)}?</think>\n",
        f"Perhaps {good(count=7)}?</think>",
        '<think>{"what": it</think>```json\n',
        f"[THINK]{good(count=7)}[/THINK]",
        f"<|channel|>analysis<|message|>{good(count=7)}<|end|><|channel|>final<|message|>",
    ],
    ids=str,
)
def test_an_object_in_the_thinking_is_no_answer(before):
    """A model's thinking may hold objects, valid or not; the answer is the one after it."""
    assert parse_answer_text(ASK, before + good()).values["count"] == 2


def test_thinking_without_an_end_has_no_answer():
    """An object in thinking that the limit of tokens cut is no answer."""
    assert parse_answer_text(ASK, f"<think>Perhaps {good()}, but").error == "The answer holds no JSON object."


def test_marks_of_thinking_may_stand_in_a_value():
    """A picture may show the mark `<think>`; an answer that quotes it stays whole."""
    assert parse_answer_text(ASK, good(what="a page with <think> on it")).values["what"] == "a page with <think> on it"


def test_of_several_objects_the_first_valid_one_is_the_answer():
    """Invalid objects before the first valid one are skipped."""
    values, error = parse_answer_text(ASK, f'{{"thought": 1}} so: {good()} or {good(what="another")}')
    assert (values["what"], error) == ("a cup", None)
