"""The table of providers, what loading it costs, and what is said where a package is missing."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module

import pytest

from lightmeter.errors import SettingsError
from lightmeter.pricing.rates import default_rates
from lightmeter.service.backends.providers.vision.adapter import VisionAdapter
from lightmeter.service.backends.providers.vision.provider_table import VISION_PROVIDERS

HEAVY = ("botocore", "grpc", "clarifai_grpc", "google.auth", "google.protobuf", "httpx2")


@pytest.mark.parametrize("row", VISION_PROVIDERS.values(), ids=lambda row: row.name)
def test_a_row_says_what_its_adapter_is(row):
    """The adapter exists, offers the features of its row, and its address is encrypted."""
    module, _, attribute = row.adapter.partition(":")
    adapter = getattr(import_module(module), attribute)
    assert issubclass(adapter, VisionAdapter)
    assert adapter.supported_features == row.features
    assert row.base_url.startswith("https://")
    assert default_rates().rates[row.name].keys() == row.features
    assert adapter.__doc__


def test_rows_are_sorted_and_their_names_differ():
    """Providers are sorted by name."""
    names = [row.name for row in VISION_PROVIDERS.values()]
    assert names == list(VISION_PROVIDERS) == sorted(set(names))


def test_heavy_packages_are_loaded_when_an_adapter_is_made():
    """The table imports no adapter, and adapter modules import no optional package."""
    modules = [row.adapter.partition(":")[0] for row in VISION_PROVIDERS.values()]
    code = f"""
import json, sys
import lightmeter.service.backends.providers.vision.provider_table
first = [name for name in {HEAVY} if name in sys.modules]
import {", ".join(modules)}
print(json.dumps([first, [name for name in {HEAVY} if name in sys.modules]]))
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(ended.stdout) == [[], ["httpx2"]]


@pytest.mark.parametrize(
    ("name", "missing", "more"),
    [
        ("rekognition", "botocore.session", {}),
        ("clarifai", "clarifai_grpc.grpc.api.service_pb2", {}),
        ("googlevision", "google.oauth2.service_account", {"api_key": None, "options": {"credentials_file": "x"}}),
    ],
)
def test_a_missing_package_is_one_sentence_with_the_command(name, missing, more, adapter_of, monkeypatch):
    """A missing optional package is an error with the command that installs it."""
    monkeypatch.setitem(sys.modules, missing, None)
    expected = rf"The back end {name} needs the package .*: pip install 'lightmeter\[{name}\]'"
    with pytest.raises(SettingsError, match=expected):
        adapter_of(name, "https://127.0.0.1:9", **more)
