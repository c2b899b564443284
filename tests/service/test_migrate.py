"""`lightmeter migrate` creates and migrates the service's database as a step of its own."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from lightmeter.cli.commands.migrate import migrate_command
from lightmeter.errors import SettingsError
from lightmeter.service.store.schema import VERSION


def migrate(*options):
    """Run `lightmeter migrate`; return its result."""
    return CliRunner().invoke(migrate_command, options, catch_exceptions=False, standalone_mode=False)


def test_the_database_is_created_and_can_be_migrated_again(database):
    """The tables are there after the first call, and a second call changes nothing."""
    for _ in range(2):
        assert f"has version {VERSION}" in migrate("--database", database).output


@pytest.mark.postgres
def test_the_environment_names_the_database(postgres, monkeypatch):
    """LIGHTMETER_DATABASE stands for `--database`, and a password in it is not printed."""
    monkeypatch.setenv("LIGHTMETER_DATABASE", postgres.replace("lightmeter@", "lightmeter:secret@"))
    output = migrate().output
    assert "has version" in output
    assert "secret" not in output


def test_a_database_that_cannot_be_reached_is_an_error():
    """Nothing listens at that port: the command says so."""
    with pytest.raises(SettingsError, match="127"):
        migrate("--database", "postgresql://lightmeter@127.0.0.1:1/none")
