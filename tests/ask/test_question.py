"""Questions: their sources, the supported schemas, and error messages."""

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
from lightmeter.tables.arrow.answer_schema import ANSWER_COLUMNS, answers_schema, table_name
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


def test_a_question_without_a_name_is_named_after_its_file(tmp_path):
    """TOML and JSON files give the same question; without a name it gets the file's name."""
    toml, other = tmp_path / "Product Info.v2.toml", tmp_path / "same.json"
    toml.write_text(TOML)
    ask = coerce_ask(toml)
    assert (ask.name, table_name(ask)) == ("product_info_v2", "answers_product_info_v2")
    other.write_text(json.dumps({"name": "Product Info.v2", "prompt": ask.prompt, "schema": ask.schema}))
    assert coerce_ask(str(other)) == ask
    assert columns(ask) == {"what": pa.string(), "size": pa.float64()}


def test_a_pydantic_model_is_a_schema():
    """A pydantic model gives a column for each field, also nested and optional ones."""
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
    """Each supported schema type has an Arrow type."""
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
def test_an_unsupported_schema_is_refused_with_its_place(node, place, why):
    """A schema that fits no column is an error before anything is spent, and the message names the place."""
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
def test_an_incomplete_question_is_refused(given, why):
    """The message names the missing or unknown field."""
    with pytest.raises(SettingsError, match=why):
        make_options(ask=given)


def test_the_reserved_names_are_the_columns_of_the_table():
    """A property may have any name except those of the table's own columns."""
    assert {column.name for column in (*KEY_COLUMNS, *ANSWER_COLUMNS)} == set(RESERVED)


def test_options_store_the_whole_question(tmp_path):
    """The journal has the whole question, so its file may change or be deleted."""
    file = tmp_path / "what.toml"
    file.write_text(TOML)
    options = make_options(ask=file, features=["tags"])
    file.unlink()
    assert type(options).model_validate_json(options.model_dump_json()) == options
    assert options.features == ("tags", "descriptions")
    assert make_options(ask=options.ask).features == ()


def test_a_prompt_and_a_question_exclude_each_other():
    """A request has one prompt, so both options together are an error."""
    with pytest.raises(SettingsError, match=r"^prompt: a request has one prompt"):
        make_options(ask=QUESTION, prompt="What?")
    assert make_options(ask=QUESTION, prompt="").ask is not None


def test_the_prompt_has_the_question_and_then_the_schema():
    """The prompt has the question, an instruction and the schema; a repeated one also has the error."""
    ask = question()
    assert ask.request_prompt.startswith("What is it?\n\nAnswer with one JSON object alone")
    assert json.loads(ask.request_prompt.rpartition("Schema: ")[2]) == SCHEMA
    again = ask.retry_prompt("e" * 10_000)
    assert again.startswith(ask.request_prompt)
    assert len(again) == ask.longest_prompt_chars
    assert again.endswith("e" * MAX_ERROR_CHARS)


def test_the_command_line_refuses_a_wrong_file(command, tmp_path):
    """An invalid question file exits with 2 and a clear message before any row is read."""
    wrong = tmp_path / "wrong.toml"
    wrong.write_text(TOML.replace('"number"', '"numbr"'))
    ended = command("plan", tmp_path / "none.csv", "--ask", wrong)
    assert ended.code == 2
    assert f"{wrong}: schema.properties.size.type" in ended.err
    assert "Traceback" not in ended.err


def test_a_question_needs_a_back_end_with_descriptions():
    """Back ends without descriptions are an error, not an empty table."""
    with pytest.raises(SettingsError, match="none of: descriptions"):
        lm.plan(["http://pictures.example/1.jpg"], ask=QUESTION, precheck=False, backends=["palette"])
