"""Settings come from environment variables or a file, and do not reveal the key."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from lightmeter.errors import SettingsError
from lightmeter.settings import _PATHS, Settings, read_settings, settings_file


@pytest.fixture
def file(tmp_path, monkeypatch):
    path = tmp_path / "settings.toml"
    path.touch()
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


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("key_budgt = 2\n", "key_budget"),
        ("KEY_BUDGET = 2\n", "key_budget"),
        ("LIGHTMETER_KEY_BUDGET = 2\n", "key_budget"),
        ("[lightmeter]\nkey_budget = 2\n", ""),
        ("[quality]\ndrk = 0.2\n", "dark"),
        ("key_budget = 2\nkey_budget = 200\n", ""),
        ("key_budget = -1\n", ""),
        ("key_budget = nan\n", ""),
        ("key_budget = inf\n", ""),
        ("key_budget = 2.5\n", ""),
        ("key_budget = [2]\n", ""),
        ("charges_final_s = nan\n", ""),
        ("charges_final_s = inf\n", ""),
        ("answers_days = inf\n", ""),
        ('key_budget_period = "Month"\n', ""),
        ('state_dir = "~no-such-user/x"\nkey_budget = 0x', ""),
    ],
)
def test_a_wrong_entry_of_the_file_is_an_error(file, text, said):
    """An unknown, repeated, negative or mistyped entry is an error with a suggestion: a run never lacks its limit."""
    file.write_text(text)
    with pytest.raises(SettingsError) as error:
        read_settings()
    assert said in error.value.hint


@pytest.mark.parametrize(
    "name",
    [
        *("LIGHTMETER_KEY_BUDGT", "LIGHTMETER_KEYBUDGET", "LIGHTMETR_KEY_BUDGET", "lightmeter_key_budgt"),
        *("LIGHTMETER_SETTNGS", "lightmeter_settings", "LIGHTMETER_SETTINGS_FILE", "LIGHTMETER_CONFIG"),
        *("LIGHTMETER_BUDGET", "LIGHTMETER_MAX_CREDITS", "LIGHTMETER_STATEDIR", "LIGHTMETER_DAILY_LIMIT"),
    ],
)
def test_a_mistyped_variable_is_an_error(file, monkeypatch, name):
    """A variable that is nearly a setting, or whose name is about limits or settings, is not ignored."""
    monkeypatch.setenv(name, "2")
    with pytest.raises(SettingsError, match=name):
        read_settings()


@pytest.mark.parametrize(
    "name",
    [
        *("LIGHTMETER_SERVICE_HOST", "LIGHTMETER_PORT", "LIGHTMETER_PORT_8080_TCP_ADDR", "LIGHTMETER_ROOT"),
        *("LIGHTSAIL_STATE_DIR", "LIGHTHOUSE_TOKEN"),
    ],
)
def test_a_variable_of_another_program_is_no_error(file, monkeypatch, name):
    """Variables that Kubernetes sets for a service, and those of other programs, are no errors."""
    monkeypatch.setenv(name, "2")
    assert read_settings().key_budget is None


def test_one_setting_in_two_variables_is_an_error(file, monkeypatch):
    """Two variables that differ only by case are an error: neither may win silently."""
    monkeypatch.setenv("LIGHTMETER_KEY_BUDGET", "2")
    monkeypatch.setenv("lightmeter_key_budget", "200")
    with pytest.raises(SettingsError, match="same setting"):
        read_settings()


def test_a_repeated_name_in_json_is_an_error(file, monkeypatch):
    """JSON in a variable names each threshold once."""
    monkeypatch.setenv("LIGHTMETER_QUALITY", '{"dark": 0.1, "dark": 0.9}')
    with pytest.raises(SettingsError, match="twice"):
        read_settings()


def test_a_named_file_must_exist(file, monkeypatch):
    """A path in LIGHTMETER_SETTINGS without a file is an error that suggests a file with a similar name."""
    file.write_text("key_budget = 2\n")
    monkeypatch.setenv("LIGHTMETER_SETTINGS", str(file.with_name("setings.toml")))
    with pytest.raises(SettingsError, match="no settings file") as error:
        read_settings()
    assert "settings.toml" in error.value.hint
    monkeypatch.setenv("LIGHTMETER_SETTINGS", str(file.parent))
    with pytest.raises(SettingsError, match="no settings file"):
        read_settings()
    monkeypatch.setenv("LIGHTMETER_SETTINGS", os.devnull)
    assert read_settings().key_budget is None


def test_a_pipe_is_no_settings_file(file, monkeypatch, tmp_path):
    """A pipe, which could be read only once, is refused, and so is a link to a missing file."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "none.toml")
    for name in ("pipe", "link"):
        monkeypatch.setenv("LIGHTMETER_SETTINGS", str(tmp_path / name))
        with pytest.raises(SettingsError, match="no settings file"):
            read_settings()


def test_a_file_of_windows_is_read(file):
    """A byte order mark at the start of the file is no part of its first entry."""
    file.write_bytes(b"\xef\xbb\xbfkey_budget = 2\r\n")
    assert read_settings().key_budget == 2


def test_paths_do_not_depend_on_the_working_folder(file, monkeypatch, tmp_path):
    """`~` is the home folder, and relative paths of the file start from its folder, in every working folder."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("LIGHTMETER_STATE_DIR", raising=False)
    monkeypatch.delenv("LIGHTMETER_PRICES")
    file.write_text('state_dir = "~/state"\nanswers_dir = "answers"\nprices = "./~/p.toml"\n')
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        monkeypatch.chdir(tmp_path / folder)
        settings = read_settings()
        assert settings.state_dir == tmp_path / "home" / "state"
        assert settings.answers_dir == tmp_path / "answers"
        assert settings.prices == tmp_path / "~" / "p.toml"


@pytest.mark.parametrize("path", ["state", "./~/state", "~no-such-user/state"])
def test_a_relative_state_folder_is_refused(file, monkeypatch, path):
    """The folder of the key's ledger is absolute: a relative one would be another ledger in each working folder."""
    monkeypatch.setenv("LIGHTMETER_STATE_DIR", path)
    with pytest.raises(SettingsError, match="LIGHTMETER_STATE_DIR"):
        read_settings()


def test_all_paths_of_settings_are_known():
    """The settings whose relative paths start from the file's folder are all those that are paths."""
    paths = {name for name, field in Settings.model_fields.items() if "Path" in str(field.annotation)}
    assert paths == set(_PATHS)


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root can take another user's id")
def test_an_unknown_home_folder_is_an_error_with_a_hint():
    """A user without HOME and without an entry in the user database, as in some containers, gets a sentence."""
    code = "import os, lightmeter.settings as s; os.environ.clear(); os.setuid(54321); s.read_settings()"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "SettingsError: The home folder of this user is not known." in ended.stderr
