"""The parameters of the flow `precheck` are options of `lightmeter.check`, with the same defaults and limits."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from lightmeter.option_arguments import CheckArguments
from lightmeter.options import ScaleOutOptions, make_options
from lightmeter.prefect_integration.precheck_parameters import CheckParameters
from lightmeter.scale_out.check_manifest import LOCAL


def test_the_parameters_are_those_of_check():
    """Each option of `check` is a parameter with a description, and its default is that of the option."""
    assert {*CheckParameters.model_fields, "reuse"} == CheckArguments.__optional_keys__
    assert all(field.description for field in CheckParameters.model_fields.values())
    values = CheckParameters().to_options()
    assert ScaleOutOptions(**{name: values.pop(name) for name in ScaleOutOptions.model_fields}) == LOCAL
    assert make_options(**values) == make_options()


def test_names_of_findings_are_choices():
    """The form offers the findings by name; another name is refused, as is a number out of its range."""
    assert CheckParameters(skip=["blurry", "blank"]).to_options()["skip"] == ("blurry", "blank")
    assert CheckParameters(skip="blurry, blank").to_options()["skip"] == ("blurry", "blank")
    assert CheckParameters(skip=None).to_options()["skip"] == ()
    assert "blurry" in CheckParameters.model_json_schema()["properties"]["skip"]["items"]["enum"]
    for wrong in ({"skip": ["nonsense"]}, {"capture_interval": 0}, {"colour": "red"}):
        with pytest.raises(ValidationError):
            CheckParameters(**wrong)
