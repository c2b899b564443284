"""The list of back ends: tables, settings and the environment become names, prices, and reasons."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.errors import SettingsError
from lightmeter.pricing.rates import default_rates
from lightmeter.service.backends.base import Backend, ComposingBackend
from lightmeter.service.backends.builtin_backends import BUILTIN_BACKENDS, import_target
from lightmeter.service.backends.catalog import ALL_PROVIDERS, read_catalog
from lightmeter.service.backends.settings_tables import ProviderTable, millicredits
from lightmeter.settings import Settings


@pytest.fixture
def catalog(monkeypatch):
    """Read the catalog of a machine with no key but those given, and with these tables in its settings."""
    for row in ALL_PROVIDERS.values():
        for variable in (row.key_variable, row.secret_variable, row.base_url_variable, *row.option_variables.values()):
            if variable:
                monkeypatch.delenv(variable, raising=False)

    def read(tables=None, **variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        return read_catalog(Settings(backends=tables or {}))

    return read


@pytest.mark.parametrize("name", sorted(BUILTIN_BACKENDS))
def test_the_table_says_what_the_class_says(name):
    """The registry agrees with the attributes of each class."""
    builtin = BUILTIN_BACKENDS[name]
    cls = import_target(builtin.target)
    assert (cls.name, cls.features) == (name, builtin.features)


@pytest.mark.parametrize("name", sorted(BUILTIN_BACKENDS))
def test_every_local_back_end_has_a_price_for_each_feature(catalog, name):
    """A local back end is priced in the shipped table, feature by feature, and marked as local there."""
    rates = default_rates()
    assert set(rates.rates[name]) == BUILTIN_BACKENDS[name].features
    assert name in rates.local
    assert catalog().entries[name].prices == rates.rates[name]


def test_providers_are_never_a_default(catalog):
    """A key in the environment makes a provider available, but not a default."""
    variables = {row.key_variable: "k" for row in ALL_PROVIDERS.values() if row.key_variable}
    known = catalog(**variables)
    assert set(known.available) > set(known.defaults)
    assert set(known.defaults) <= set(BUILTIN_BACKENDS)


@pytest.mark.parametrize("name", sorted(ALL_PROVIDERS))
def test_a_provider_that_cannot_be_called_says_what_is_missing(catalog, name):
    """Without its key, or its address, a provider is listed, and its reason names what to set."""
    row = ALL_PROVIDERS[name]
    reason = catalog().entries[name].reason
    assert reason is not None
    missing = row.key_variable if row.base_url else row.base_url_variable
    assert missing is not None
    assert missing in reason
    with pytest.raises(SettingsError, match=missing):
        catalog().create_backend(name)


def test_a_key_makes_a_provider_available(catalog):
    """With its key set, a provider can be made, and its key is in no text about it."""
    known = catalog(OPENAI_API_KEY="sk-secret-of-a-test")
    assert known.entries["openai"].reason is None
    backend = known.create_backend("openai")
    assert isinstance(backend, Backend)
    assert "sk-secret" not in repr(known.entries["openai"]) + repr(backend)


def test_an_own_endpoint_is_a_back_end(catalog):
    """A table with a kind, an address and a model is a further back end with a price of its own."""
    tables = {
        "my-ollama": {
            "kind": "openai-compatible",
            "base_url": "http://127.0.0.1:9/v1/",
            "model": "llava:7b",
            "key_variable": "MY_KEY",
            "prices": {"descriptions": 0.25},
            "default": True,
        }
    }
    entry = catalog(tables, MY_KEY="x").entries["my-ollama"]
    assert (entry.reason, entry.model, entry.prices, entry.default) == (None, "llava:7b", {"descriptions": 250}, True)


def test_a_name_may_stand_for_another_back_end(catalog):
    """An alias such as `gemini = "template"` has the features and prices of its target."""
    known = catalog({"gemini": "template"})
    assert known.aliases == {"gemini": "template"}
    assert known.entries["gemini"].prices == known.entries["template"].prices
    assert "gemini" not in known.available


def test_a_price_can_be_set_for_a_local_back_end(catalog):
    """A table that names a local back end changes its price and whether it is a default, nothing else."""
    known = catalog({"palette": {"prices": {"colors": 1}, "default": False}})
    assert known.rates().rates["palette"] == {"colors": 1000}
    assert "palette" not in known.defaults
    assert "palette" in known.available


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ({"x": 3}, "neither a table nor the name"),
        ({"x": "nobody"}, "no back end 'nobody'"),
        ({"x": "x"}, "no back end 'x'"),
        ({"x": {"kind": "oracle"}}, "no kind 'oracle'"),
        ({"x": {"model": "m"}}, "no kind 'x'"),
        ({"openai": {"base_url": "ftp://h"}}, "base_url"),
        ({"openai": {"concurrency": 0}}, "concurrency"),
        ({"openai": {"colour": "red"}}, "colour"),
        ({"openai": {"prices": {"auras": 1}}}, "no feature 'auras'"),
        ({"openai": {"prices": {"descriptions": -1}}}, "descriptions: .* greater than or equal to 0"),
        ({"openai": {"prices": {"descriptions": 0.00001}}}, "descriptions: .* no more than 3 decimal places"),
    ],
    ids=str,
)
def test_a_wrong_table_is_named(catalog, tables, words):
    """An invalid settings table is one error that names the table and the problem."""
    with pytest.raises(SettingsError, match=words) as refused:
        catalog(tables)
    assert next(iter(tables)) in str(refused.value)


@given(st.integers(0, 10**9))
def test_millicredits_are_exact(price):
    """A price in credits with up to three digits after the point is kept to the last one."""
    table = ProviderTable.model_validate({"prices": {"tags": f"{price / 1000:.3f}"}})
    assert millicredits(table.prices) == {"tags": price}


def test_template_composes(catalog):
    """The template needs other back ends that exist, and features that they offer."""
    template = catalog().create_backend("template")
    assert isinstance(template, ComposingBackend)
    for name, features in template.builds_on.items():
        assert features <= BUILTIN_BACKENDS[name].features
