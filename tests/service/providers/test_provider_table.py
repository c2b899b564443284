"""Table of the description providers: contents, import cost, and prices."""

from __future__ import annotations

import json
import subprocess
import sys
from decimal import Decimal
from importlib import import_module

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from lightmeter.pricing.rates import default_rates
from lightmeter.service.backends.base import Backend
from lightmeter.service.backends.providers.description.adapter import DescriptionAdapter, TokenCounts, cost_usd
from lightmeter.service.backends.providers.description.provider_table import (
    DESCRIPTION_PROVIDERS,
    OPENAI_COMPATIBLE_ADAPTER,
)
from lightmeter.service.backends.providers.provider import ProviderSettings

REMOTE = ("claude", "gemini", "grok", "jinaai", "openai")


def adapter_of(row):
    """Return the adapter class that a row names."""
    module, _, name = row.adapter.partition(":")
    return getattr(import_module(module), name)


def test_the_table_is_the_contracts():
    """Every describing back end of the contract has a row and a price, under the name that requests use."""
    assert set(DESCRIPTION_PROVIDERS) == {*REMOTE, "llava", "bakllava"}
    assert all(name == row.name for name, row in DESCRIPTION_PROVIDERS.items())
    rates = default_rates().rates
    assert all(set(rates[name]) == row.features == {"descriptions"} for name, row in DESCRIPTION_PROVIDERS.items())


def test_keys_come_from_the_providers_own_variables():
    """Keys come from the environment variables that providers document; Ollama has no key and no default address."""
    assert {name: row.key_variable for name, row in DESCRIPTION_PROVIDERS.items() if row.key_variable} == {
        "claude": "ANTHROPIC_API_KEY",
        "gemini": "GEMINI_API_KEY",
        "grok": "XAI_API_KEY",
        "jinaai": "JINA_API_KEY",
        "openai": "OPENAI_API_KEY",
    }
    local = [DESCRIPTION_PROVIDERS["llava"], DESCRIPTION_PROVIDERS["bakllava"]]
    assert all((row.base_url, row.base_url_variable, row.key_variable) == (None, "OLLAMA_HOST", None) for row in local)


@pytest.mark.parametrize("name", DESCRIPTION_PROVIDERS)
def test_every_row_makes_a_back_end(name):
    """Each row creates a working back end without a call."""
    row = DESCRIPTION_PROVIDERS[name]
    settings = ProviderSettings(
        row.name,
        row.base_url or "127.0.0.1:11434",
        row.model or "",
        SecretStr("key") if row.key_variable else None,
        options=row.options,
    )
    adapter = adapter_of(row)(settings)
    assert isinstance(adapter, Backend)
    assert isinstance(adapter, DescriptionAdapter)
    assert (adapter.name, adapter.model, adapter.features) == (name, row.model, row.features)
    assert adapter_of(row).__doc__
    adapter.close()


@pytest.mark.parametrize("name", REMOTE)
def test_addresses_are_encrypted(name):
    """Default addresses are https and do not end with a slash."""
    base_url = DESCRIPTION_PROVIDERS[name].base_url
    assert base_url.startswith("https://")
    assert not base_url.endswith("/")


def test_other_endpoints_have_an_adapter():
    """Any other endpoint with chat completions uses the same adapter class as OpenAI."""
    assert DESCRIPTION_PROVIDERS["openai"].adapter == OPENAI_COMPATIBLE_ADAPTER
    assert adapter_of(DESCRIPTION_PROVIDERS["openai"]).__name__ == "OpenAICompatible"


def test_the_table_is_light_and_prices_are_not_fetched():
    """The SDKs and the price list are not imported with the table; a price is found without opening a connection."""
    code = """
import sys, json
import lightmeter.service.backends.providers.description.provider_table
loaded = [name for name in ("openai", "anthropic", "httpx2", "genai_prices") if name in sys.modules]
asked = []
sys.addaudithook(lambda event, _: asked.append(event) if event.startswith(("socket.", "urllib.")) else None)
import threading
from lightmeter.service.backends.providers.description.adapter import TokenCounts, cost_usd, load_prices
load_prices()
found = cost_usd("https://api.openai.com/v1", "gpt-6-luna", TokenCounts(1000, 100))
print(json.dumps([loaded, asked, str(found), threading.active_count()]))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded, lookups, found, threads = json.loads(ran.stdout)
    assert (loaded, lookups, threads) == ([], [], 1)
    assert Decimal(found) > 0


@pytest.mark.parametrize("name", ["claude", "gemini", "grok", "openai"])
def test_default_models_have_a_price(name):
    """A typical picture costs the operator less than the credits that the service charges for it."""
    row = DESCRIPTION_PROVIDERS[name]
    cost = cost_usd(row.base_url, row.model, TokenCounts(1500, 300))
    credit_usd = Decimal(default_rates().rates[name]["descriptions"]) / 1000 / 100
    assert 0 < cost < credit_usd


@pytest.mark.parametrize(
    ("base_url", "model", "tokens"),
    [
        ("http://127.0.0.1:11434/v1", "gpt-6-luna", TokenCounts(10, 10)),
        ("https://api-beta-vlm.jina.ai/v1", "jina-vlm", TokenCounts(10, 10)),
        ("https://api.openai.com/v1", "a-model-of-2031", TokenCounts(10, 10)),
        ("https://api.openai.com/v1", "", TokenCounts(10, 10)),
        ("https://api.openai.com/v1", "gpt-6-luna", TokenCounts(None, 10)),
        ("https://api.openai.com/v1", "gpt-6-luna", TokenCounts(10, None)),
        ("https://api.openai.com/v1", "gpt-6-luna", TokenCounts(10, 10, cached=20)),
    ],
)
def test_no_price_is_made_up(base_url, model, tokens):
    """The cost is None if address or model is unknown, or the counts are missing or inconsistent."""
    assert cost_usd(base_url, model, tokens) is None


@settings(deadline=None)  # the first call imports the price list
@given(st.integers(0, 10**6), st.integers(0, 10**5))
def test_more_tokens_never_cost_less(read, written):
    """The cost grows with the tokens, and cached tokens cost no more than uncached ones."""

    def cost(tokens):
        return cost_usd("https://api.openai.com/v1", "gpt-6-luna", tokens)

    assert (
        cost(TokenCounts(read, written))
        <= cost(TokenCounts(read + 1, written))
        <= cost(TokenCounts(read + 1, written + 1))
    )
    assert cost(TokenCounts(read, written, cached=read)) <= cost(TokenCounts(read, written))
