"""Fixtures: a stub of a provider on loopback, adapters with short pauses, and metrics that record their calls."""

from __future__ import annotations

import base64
from io import BytesIO
from pkgutil import resolve_name

import numpy as np
import pytest
from PIL import Image
from pydantic import SecretStr

from lightmeter.service.backends.base import AnalysisOptions
from lightmeter.service.backends.providers.description.provider_table import DESCRIPTION_PROVIDERS
from lightmeter.service.backends.providers.provider import ProviderSettings
from lightmeter.testing import openai_stub, tiny_picture

KEY = "sk-proj-4f2a9c77d1e84b06"
DESCRIPTIONS = frozenset({"descriptions"})


class Counted:
    """Metrics that record all calls."""

    def __init__(self):
        self.usages = []
        self.errors = []

    def provider_usage(self, backend, usage):
        """Record a successful call."""
        self.usages.append((backend, usage))

    def provider_error(self, backend, kind):
        """Record a failed call."""
        self.errors.append((backend, str(kind)))


@pytest.fixture
def counted():
    """Return empty metrics."""
    return Counted()


@pytest.fixture(scope="session")
def _stub():
    with openai_stub() as stub:
        yield stub


@pytest.fixture
def stub(_stub):
    """Return the stub of a provider without any recorded request; it describes every picture as "A picture."."""
    _stub.requests.clear()
    _stub.answer = lambda _: "A picture."
    return _stub


@pytest.fixture
def stub_settings(stub, counted):
    """Return a function that creates settings for the stub, with very short pauses."""

    def make(name="openai", **more):
        address = stub.origin if name == "claude" else stub.base_url
        defaults = {"api_key": SecretStr(KEY), "max_pause_s": 0.05, "timeout_s": 5.0, "metrics": counted}
        return ProviderSettings(name, **{"base_url": address, "model": "model-1", **defaults, **more})

    return make


@pytest.fixture
def create_adapter(stub_settings):
    """Return a function that creates adapters for the stub; they are closed after the test."""
    adapters = []

    def make(provider="openai", **more):
        # Adapters are imported here: their SDKs take seconds, in each process that collects these tests.
        adapter = resolve_name(DESCRIPTION_PROVIDERS[provider].adapter)
        adapters.append(adapter(stub_settings(more.pop("name", provider), **more)))
        return adapters[-1]

    yield make
    for adapter in adapters:
        adapter.close()


@pytest.fixture
def describe():
    """Return a function that calls an adapter and returns its description of a picture."""

    def ask(adapter, picture=None, **options):
        (entries,) = adapter.analyze(
            [tiny_picture() if picture is None else picture], DESCRIPTIONS, AnalysisOptions(**options)
        )
        (description,) = entries.descriptions
        assert description.source == adapter.name
        return description.description

    return ask


@pytest.fixture
def assert_shows():
    """Return a function that asserts that a base64 text is a JPEG of a picture."""

    def check(encoded, picture):
        content = base64.b64decode(encoded, validate=True)
        with Image.open(BytesIO(content), formats=["JPEG"]) as opened:
            pixels = np.asarray(opened.convert("RGB")).astype(int)
        assert pixels.shape == picture.shape
        assert np.abs(pixels - picture).mean() < 8

    return check
