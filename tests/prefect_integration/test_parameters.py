"""Parameters of the flows: those of the toolkit, with a help text each, and never a dict."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from prefect.utilities.callables import parameter_schema
from pydantic import ValidationError

from lightmeter.options import Options, make_options
from lightmeter.prefect_integration.parameters import AnalyzeOptions
from lightmeter.wire.constants import EXTRA_FEATURES, FEATURES
from tests.prefect_integration.flow_modules import FLOWS, load_flow

SCHEMA = AnalyzeOptions.model_json_schema()["properties"]
PLAIN = Options.model_json_schema()["properties"]


@pytest.mark.parametrize("name", Options.model_fields)
def test_the_options_of_a_flow_are_those_of_a_run(name):
    """Each option is a field of the form with the same default and range, and with a description."""
    assert AnalyzeOptions.model_fields[name].default == Options.model_fields[name].default
    assert AnalyzeOptions.model_fields[name].annotation == Options.model_fields[name].annotation
    parameter, plain = SCHEMA[name], PLAIN[name]
    assert len(parameter["description"]) > 20
    if name not in {"features", "skip", "role", "ask", "prices"}:
        assert {**parameter, "description": ""} == {**plain, "description": ""}


def test_fixed_names_are_choices():
    """The form lists the features that exist, and the formats of tables."""
    assert SCHEMA["features"]["items"]["enum"] == [*FEATURES, *EXTRA_FEATURES]
    assert SCHEMA["table_format"]["enum"] == ["parquet", "delta", "iceberg"]


def test_given_options_make_the_same_run():
    """The options of the form are valid arguments of a plan, also after a way as JSON through Prefect."""
    schema = {"type": "object", "properties": {"mood": {"type": "string"}}}
    given = AnalyzeOptions(features=["tags"], ask={"name": "mood", "prompt": "?", "schema": schema})
    again = AnalyzeOptions.model_validate(given.model_dump(mode="json"))
    assert make_options(**again.given()) == make_options(**given.given())
    assert AnalyzeOptions(**AnalyzeOptions().model_dump()).given() == {}


def test_wrong_values_are_refused():
    """An unknown option, an unknown feature and a negative budget are errors before the flow starts."""
    for wrong in ({"featurs": ["tags"]}, {"features": ["smell"]}, {"budget": -1}):
        with pytest.raises(ValidationError):
            AnalyzeOptions(**wrong)


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
