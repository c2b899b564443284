"""Options of `serve` and `worker` become the service configuration."""

from __future__ import annotations

import logging

import click
import pytest
from click.testing import CliRunner

from lightmeter.cli.commands.serve import serve_command, serve_options, service_config
from lightmeter.cpu_count import process_cpu_count


@pytest.fixture
def config():
    """Returns the service configuration for command-line arguments."""
    root = logging.getLogger()
    before = root.handlers[:], root.level

    @click.command()
    @serve_options
    def command(**options):
        configs.append(service_config(**options))

    configs = []

    def read(*arguments):
        result = CliRunner().invoke(command, arguments, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return configs.pop()

    yield read
    root.handlers[:], root.level = before


def test_limits_of_decoding_are_options(config):
    """Number of decoders, time and memory of a video can be set; the time limits wall clock and CPU."""
    limits = config("--decoders", "3", "--video-seconds", "7", "--video-memory", "600").limits.decoding
    assert (limits.decoders, limits.video.wall_s, limits.video.cpu_s) == (3, 7, 7)
    assert limits.video.memory_bytes == 600 * 1024**2


def test_queue_and_cache_limits_are_options(config):
    """The number of waiting pictures and the cache size can be set; a cache of 0 is allowed."""
    limits = config("--max-waiting", "5", "--cache", "0").limits
    assert (limits.max_pending_pictures, limits.cache_bytes) == (5, 0)


def test_defaults_are_those_of_the_library(config):
    """Without options the limits are the library's defaults, with two workers per usable core."""
    defaults = config()
    assert defaults.limits == type(defaults.limits)()
    assert defaults.workers == 2 * process_cpu_count()


@pytest.mark.parametrize("keys", [[" mine=5"], ["mine =5"], ["mi\nne=5"], ["mine=5", "mine=7"]])
def test_keys_that_cannot_be_meant_are_refused(keys, tmp_path):
    """`--key` with a name that no header can contain, or twice with one name, is wrong usage that shows no key."""
    arguments = ["--database", f"sqlite:///{tmp_path / 'none.db'}", *(f"--key={key}" for key in keys)]
    result = CliRunner().invoke(serve_command, arguments, catch_exceptions=False)
    assert (result.exit_code, "Invalid value for '--key'" in result.output) == (2, True), result.output
    assert "mine" not in result.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("credits_", ["9223372036854775808", str(2**53), "9" * 5000, "²", "-1", ""])
def test_credits_of_a_key_that_are_too_many_are_refused(credits_, tmp_path):
    """`--key` with credits that no account can have is wrong usage, before a database is created."""
    database = tmp_path / "none.db"
    arguments = ["--port", "0", "--database", f"sqlite:///{database}", "--key", f"x={credits_}"]
    result = CliRunner().invoke(serve_command, arguments, catch_exceptions=False)
    assert (result.exit_code, "Invalid value for '--key'" in result.output) == (2, True), result.output
    assert not database.exists()
