"""Limits of the engine can be set where it is started, and reach the parts that keep them."""

from __future__ import annotations

import logging

import click
import pytest
from click.testing import CliRunner

from lightmeter.cli.serve_options import serve_options, service_config
from lightmeter.cpu_count import process_cpu_count


@pytest.fixture
def config():
    """What a command line makes of the engine."""
    root = logging.getLogger()
    before = root.handlers[:], root.level

    @click.command()
    @serve_options
    def command(**options):
        made.append(service_config(**options))

    made = []

    def read(*arguments):
        done = CliRunner().invoke(command, arguments, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return made.pop()

    yield read
    root.handlers[:], root.level = before


def test_limits_of_decoding_are_options(config):
    """Processes, time and memory of a video; of time both the clock's and the processor's."""
    limits = config("--decoders", "3", "--video-seconds", "7", "--video-memory", "600").limits.decoding
    assert (limits.decoders, limits.video.wall_s, limits.video.cpu_s) == (3, 7, 7)
    assert limits.video.memory_bytes == 600 * 1024**2


def test_what_is_taken_on_and_remembered_are_options(config):
    """Pictures that may wait, and memory for findings; none is allowed."""
    limits = config("--max-waiting", "5", "--cache", "0").limits
    assert (limits.max_pending_pictures, limits.cache_bytes) == (5, 0)


def test_without_options_the_limits_are_the_library_s_own(config):
    """One set of defaults, and two workers for each core that may be used."""
    made = config()
    assert made.limits == type(made.limits)()
    assert made.workers == 2 * process_cpu_count()
