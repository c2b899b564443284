"""Optional dependencies."""

from __future__ import annotations

import json

import pytest

from lightmeter.errors import SettingsError
from lightmeter.extras import import_extra


def test_an_installed_module_is_imported():
    """A module that is there is returned."""
    assert import_extra("json", "report", "The report") is json


def test_a_missing_module_names_the_command_that_installs_it():
    """The error is one sentence about the feature and one command."""
    with pytest.raises(SettingsError) as caught:
        import_extra("no_such_package.deep", "report", "The report")
    assert str(caught.value) == (
        "The report needs the package no_such_package, which is not installed. "
        "Install it: pip install 'lightmeter[report]'"
    )
