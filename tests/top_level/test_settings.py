"""Settings come from variables or a file, never from arguments, and secrets do not show."""

from __future__ import annotations

import pytest

from lightmeter.errors import SettingsError
from lightmeter.settings import Settings, read_settings, settings_file


@pytest.fixture
def file(tmp_path, monkeypatch):
    path = tmp_path / "settings.toml"
    monkeypatch.setenv("LIGHTMETER_SETTINGS", str(path))
    for name in ("API_KEY", "BASE_URL", "CACHE_DIR"):
        monkeypatch.delenv(f"LIGHTMETER_{name}", raising=False)
    return path


def test_nothing_set_is_fine(file):
    """Without settings there is no key and no service, and the embedded one is used."""
    settings = read_settings()
    assert settings.api_key is None
    assert settings.base_url is None


def test_a_variable_wins_over_the_file(file, monkeypatch):
    """The file holds what is usual, a variable what is wanted now."""
    file.write_text('api_key = "from-file"\nbase_url = "http://file"\n')
    monkeypatch.setenv("LIGHTMETER_BASE_URL", "http://variable")
    settings = read_settings()
    assert settings.api_key.get_secret_value() == "from-file"
    assert settings.base_url == "http://variable"


@pytest.mark.parametrize("name", Settings.model_fields)
@pytest.mark.parametrize("empty", ["", "  "])
def test_an_empty_setting_is_not_set(file, monkeypatch, name, empty):
    """An empty variable is no value: what the file says holds, and else the default."""
    monkeypatch.delenv(f"LIGHTMETER_{name.upper()}", raising=False)
    default = getattr(read_settings(), name)
    monkeypatch.setenv(f"LIGHTMETER_{name.upper()}", empty)
    assert getattr(read_settings(), name) == default
    monkeypatch.delenv(f"LIGHTMETER_{name.upper()}")
    file.write_text(f'{name} = "{empty}"\n')
    assert getattr(read_settings(), name) == default


def test_an_empty_variable_leaves_the_file_its_word(file, monkeypatch):
    """A variable that is set to nothing does not take away what the file sets."""
    file.write_text('base_url = "http://file"\n')
    monkeypatch.setenv("LIGHTMETER_BASE_URL", "")
    assert read_settings().base_url == "http://file"


def test_an_empty_path_of_settings_is_not_set(monkeypatch):
    """LIGHTMETER_SETTINGS set to nothing means the usual place."""
    monkeypatch.delenv("LIGHTMETER_SETTINGS", raising=False)
    usual = settings_file()
    monkeypatch.setenv("LIGHTMETER_SETTINGS", " ")
    assert settings_file() == usual


def test_the_key_does_not_show(file, monkeypatch):
    """Settings can be printed and logged."""
    monkeypatch.setenv("LIGHTMETER_API_KEY", "very-secret")
    assert "very-secret" not in repr(read_settings())


def test_a_broken_file_is_named(file):
    """What is no TOML is an error that names the file."""
    file.write_text("api_key = ")
    with pytest.raises(SettingsError, match=r"settings\.toml"):
        read_settings()
