"""Settings come from environment variables or a file, and do not reveal the key."""

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


def test_settings_have_defaults(file):
    """Without settings there is no key and no service address."""
    settings = read_settings()
    assert settings.api_key is None
    assert settings.base_url is None


def test_a_variable_overrides_the_file(file, monkeypatch):
    """A variable overrides its entry in the file; other entries stay."""
    file.write_text('api_key = "from-file"\nbase_url = "http://file"\n')
    monkeypatch.setenv("LIGHTMETER_BASE_URL", "http://variable")
    settings = read_settings()
    assert settings.api_key.get_secret_value() == "from-file"
    assert settings.base_url == "http://variable"


@pytest.mark.parametrize("name", Settings.model_fields)
@pytest.mark.parametrize("empty", ["", "  "])
def test_an_empty_setting_is_not_set(file, monkeypatch, name, empty):
    """An empty variable or entry counts as not set."""
    monkeypatch.delenv(f"LIGHTMETER_{name.upper()}", raising=False)
    default = getattr(read_settings(), name)
    monkeypatch.setenv(f"LIGHTMETER_{name.upper()}", empty)
    assert getattr(read_settings(), name) == default
    monkeypatch.delenv(f"LIGHTMETER_{name.upper()}")
    file.write_text(f'{name} = "{empty}"\n')
    assert getattr(read_settings(), name) == default


@pytest.mark.parametrize("empty", ["", " ", "\t\n"])
def test_an_empty_variable_does_not_override_the_file(file, monkeypatch, empty):
    """A variable that is empty or white space leaves the file's entry in effect."""
    file.write_text('base_url = "http://file"\n')
    monkeypatch.setenv("LIGHTMETER_BASE_URL", empty)
    assert read_settings().base_url == "http://file"


def test_an_empty_settings_path_is_not_set(monkeypatch):
    """An empty LIGHTMETER_SETTINGS means the default path."""
    monkeypatch.delenv("LIGHTMETER_SETTINGS", raising=False)
    default_path = settings_file()
    monkeypatch.setenv("LIGHTMETER_SETTINGS", " ")
    assert settings_file() == default_path


def test_the_key_is_not_shown(file, monkeypatch):
    """The representation of settings does not contain the key."""
    monkeypatch.setenv("LIGHTMETER_API_KEY", "very-secret")
    assert "very-secret" not in repr(read_settings())


def test_an_invalid_file_is_named(file):
    """A file that is not TOML raises an error with its name."""
    file.write_text("api_key = ")
    with pytest.raises(SettingsError, match=r"settings\.toml"):
        read_settings()


def test_quality_thresholds_are_a_table_or_json(file, monkeypatch):
    """Thresholds are a table of the file, or JSON in the variable, which overrides entries of the table."""
    file.write_text("[quality]\ndark = 0.2\nblurry = 0\n")
    assert (read_settings().quality.dark, read_settings().quality.blurry, read_settings().quality.tiny) == (0.2, 0, 16)
    monkeypatch.setenv("LIGHTMETER_QUALITY", '{"dark": 0.5}')
    assert read_settings().quality.dark == 0.5


@pytest.mark.parametrize("text", ['{"dark": -1}', '{"dim": 1}', "dark", '{"dark": "NaN"}', "[]", "3"])
def test_wrong_quality_thresholds_are_named(file, monkeypatch, text):
    """A threshold that is unknown or no number, and a variable without JSON, are errors that name the variable."""
    monkeypatch.setenv("LIGHTMETER_QUALITY", text)
    with pytest.raises(SettingsError, match="LIGHTMETER_QUALITY"):
        read_settings()
