"""A question of the user's own: where it comes from, what its schema may hold, and that mistakes are named."""

from __future__ import annotations

import json
from typing import Literal

import pyarrow as pa
import pydantic
import pytest

import lightmeter as lm
from lightmeter.ask.question import MAX_ERROR_CHARS, RESERVED, coerce_ask
from lightmeter.errors import SettingsError
from lightmeter.facts.columns import KEY_COLUMNS
from lightmeter.options import make_options
from lightmeter.tables.answer_schema import ANSWER_COLUMNS, answers_schema, table_name
from tests.ask.describer import QUESTION, SCHEMA

TOML = """
prompt = "What is it?"

[schema]
type = "object"
required = ["what"]

[schema.properties.what]
type = "string"

[schema.properties.size]
type = ["number", "null"]
"""


class Part(pydantic.BaseModel):
    name: str
    material: str | None = None


class Product(pydantic.BaseModel):
    what: str
    kind: Literal["tool", "toy"]
    parts: list[Part] = []
    first: Part | None = None
    price: float | None = None


def schema_of(node, **more):
    return {"type": "object", "properties": {"value": node}, **more}


def question(**changes):
    return coerce_ask({**QUESTION, **changes})


def columns(ask):
    return {field.name: field.type for field in answers_schema(ask) if field.name not in RESERVED}


def test_a_file_names_the_question_by_its_own_name(tmp_path):
    """TOML and JSON say the same; without a name the file's own is taken, made fit for a table."""
    toml, other = tmp_path / "Product Info.v2.toml", tmp_path / "same.json"
    toml.write_text(TOML)
    ask = coerce_ask(toml)
    assert (ask.name, table_name(ask)) == ("product_info_v2", "answers_product_info_v2")
    other.write_text(json.dumps({"name": "Product Info.v2", "prompt": ask.prompt, "schema": ask.schema}))
    assert coerce_ask(str(other)) == ask
    assert columns(ask) == {"what": pa.string(), "size": pa.float64()}


def test_a_pydantic_model_is_a_schema():
    """A model gives the columns of its fields, nested models and optional ones included."""
    part = pa.struct([("name", pa.string()), ("material", pa.string())])
    assert columns(lm.Ask(name="product", prompt="What?", schema=Product)) == {
        "what": pa.string(),
        "kind": pa.string(),
        "parts": pa.list_(part),
        "first": part,
        "price": pa.float64(),
    }


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ({"type": "string"}, pa.string()),
        ({"type": "integer"}, pa.int64()),
        ({"type": ["null", "number"]}, pa.float64()),
        ({"type": "boolean"}, pa.bool_()),
        ({"enum": ["a", "b", None]}, pa.string()),
        ({"enum": [1, 2.5]}, pa.float64()),
        ({"const": 3}, pa.int64()),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, pa.int64()),
        ({"type": "array", "items": {"type": "array", "items": {"type": "boolean"}}}, pa.list_(pa.list_(pa.bool_()))),
        ({"properties": {"x": {"type": "number"}}}, pa.struct([("x", pa.float64())])),
    ],
    ids=str,
)
def test_every_supported_type_has_its_column(node, expected):
    """The Arrow type of a column is that of the schema."""
    assert columns(question(schema=schema_of(node))) == {"value": expected}


@pytest.mark.parametrize(
    ("node", "place", "why"),
    [
        ({}, "schema.properties.value", "'type' is missing"),
        ({"type": "strin"}, "schema.properties.value.type", "strin"),
        ({"type": ["string", "integer"]}, "schema.properties.value", "one type"),
        ({"type": "array"}, "schema.properties.value", "'items'"),
        ({"type": "object"}, "schema.properties.value", "'properties'"),
        ({"enum": ["a", 1]}, "schema.properties.value", "of one type"),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "schema.properties.value.anyOf", "one type"),
        ({"$ref": "#/$defs/None"}, "schema.properties.value", "leads nowhere"),
        ({"$ref": "https://example.com/schema.json"}, "schema.properties.value", "leads nowhere"),
        ({"$ref": "#/properties/value"}, "schema.properties.value", "refers to itself"),
        ({"type": "array", "items": {"type": "string"}, "prefixItems": []}, "schema.properties.value", "prefixItems"),
        ({"type": "string", "pattern": "("}, "schema.properties.value.pattern", "regex"),
        ({"properties": {"a": {"type": "string"}, "A": {"type": "string"}}}, "value.properties", "in case alone"),
    ],
    ids=str,
)
def test_a_schema_without_columns_is_refused_at_its_place(node, place, why):
    """What no column can hold is an error before anything is spent, and the message says where it stands."""
    with pytest.raises(SettingsError) as raised:
        question(schema=schema_of(node))
    assert place in str(raised.value)
    assert why in str(raised.value)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"name": "a", "prompt": "b"}, "'schema' is missing"),
        ({"prompt": "b", "schema": SCHEMA}, "'name' is missing"),
        ({**QUESTION, "promt": "x"}, "'promt' is none of its keys"),
        ({**QUESTION, "prompt": " "}, "prompt: a question"),
        ({**QUESTION, "name": "!!!"}, "names no table"),
        ({**QUESTION, "schema": [1]}, "a JSON schema"),
        ({**QUESTION, "schema": {"type": "string"}}, "an answer is an object"),
        ({**QUESTION, "schema": {**SCHEMA, "properties": {"Error": {"type": "string"}}}}, "a column of this name"),
        (5, "holds no question"),
    ],
    ids=str,
)
def test_a_question_that_lacks_something_is_refused(given, why):
    """What is missing or unknown is named."""
    with pytest.raises(SettingsError, match=why):
        make_options(ask=given)


def test_the_reserved_names_are_the_columns_of_the_table():
    """A property may be called anything but what the table has anyway."""
    assert {column.name for column in (*KEY_COLUMNS, *ANSWER_COLUMNS)} == set(RESERVED)


def test_options_keep_a_question_as_it_was_given(tmp_path):
    """What stands in the journal is the whole question: the file may change or go."""
    file = tmp_path / "what.toml"
    file.write_text(TOML)
    options = make_options(ask=file, features=["tags"])
    file.unlink()
    assert type(options).model_validate_json(options.model_dump_json()) == options
    assert options.features == ("tags", "descriptions")
    assert make_options(ask=options.ask).features == ()


def test_a_prompt_and_a_question_exclude_each_other():
    """A request has one prompt."""
    with pytest.raises(SettingsError, match=r"^prompt: a request has one prompt"):
        make_options(ask=QUESTION, prompt="What?")
    assert make_options(ask=QUESTION, prompt="").ask is not None


def test_the_prompt_asks_first_and_then_names_the_schema():
    """The user's words, an instruction, the schema in one line; asked again also the error, of bounded length."""
    ask = question()
    assert ask.request_prompt.startswith("What is it?\n\nAnswer with one JSON object alone")
    assert json.loads(ask.request_prompt.rpartition("Schema: ")[2]) == SCHEMA
    again = ask.retry_prompt("e" * 10_000)
    assert again.startswith(ask.request_prompt)
    assert len(again) == ask.longest_prompt_chars
    assert again.endswith("e" * MAX_ERROR_CHARS)


def test_the_command_line_refuses_a_wrong_file(command, tmp_path):
    """A file that holds no question is one clear error, exit code 2, before any row is read."""
    wrong = tmp_path / "wrong.toml"
    wrong.write_text(TOML.replace('"number"', '"numbr"'))
    ended = command("plan", tmp_path / "none.csv", "--ask", wrong)
    assert ended.code == 2
    assert f"{wrong}: schema.properties.size.type" in ended.err
    assert "Traceback" not in ended.err


def test_a_question_needs_somebody_who_describes():
    """Back ends that offer no descriptions are an error, not an empty table."""
    with pytest.raises(SettingsError, match="none of: descriptions"):
        lm.sync(lm.plan(["http://pictures.example/1.jpg"], ask=QUESTION, precheck=False, backends=["palette"]))
