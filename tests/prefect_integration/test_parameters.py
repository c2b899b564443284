"""Parameters of the flows: those of the toolkit, with a help text each, and never a dict."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from prefect.utilities.callables import parameter_schema
from pydantic import ValidationError

from lightmeter.options import Options, make_options
from lightmeter.wire.constants import EXTRA_FEATURES, FEATURES
from tests.prefect_integration.flow_modules import FLOWS, load_flow

SCHEMA = Options.model_json_schema()["properties"]


@pytest.mark.parametrize("name", Options.model_fields)
def test_each_option_is_described_in_the_form(name):
    """Each option is a field of the form with a description, and its limits."""
    assert len(SCHEMA[name]["description"]) > 20
    assert SCHEMA["max_frames"]["minimum"] == 0


def test_fixed_names_are_choices():
    """The form lists the features that exist, and the formats of tables."""
    assert SCHEMA["features"]["items"]["enum"] == [*FEATURES, *EXTRA_FEATURES]
    assert SCHEMA["table_format"]["enum"] == ["parquet", "delta", "iceberg"]


def test_given_options_make_the_same_run():
    """The options of the form are valid arguments of a plan, also after a way as JSON through Prefect."""
    schema = {"type": "object", "properties": {"mood": {"type": "string"}}}
    given = Options(features=["tags"], ask={"name": "mood", "prompt": "?", "schema": schema})
    again = Options.model_validate(given.model_dump(mode="json"))
    assert make_options(**again.changed()) == make_options(**given.changed())
    assert Options(**Options().model_dump()).changed() == {}


def test_wrong_values_are_refused():
    """An unknown option, an unknown feature and a negative budget are errors before the flow starts."""
    for wrong in ({"featurs": ["tags"]}, {"features": ["smell"]}, {"budget": -1}):
        with pytest.raises(ValidationError):
            Options(**wrong)


def test_analyze_takes_no_dict():
    """Each parameter of the flow `analyze` has a type that the form can show, and a description."""
    schema = parameter_schema(load_flow("analyze").analyze.fn).model_dump()
    for name, parameter in schema["properties"].items():
        assert parameter.get("type") != "object", name
        assert parameter["description"], name
    assert schema["properties"]["shard_rows"]["minimum"] == 1


@pytest.mark.parametrize("path", FLOWS, ids=lambda path: path.stem)
def test_flows_are_short(path):
    """A flow calls shared code: it has at most 250 lines."""
    source = Path(path).read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 250
    assert ast.get_docstring(ast.parse(source))
