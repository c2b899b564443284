"""Runs that are killed, starved and interrupted, against a counterpart that keeps its own books."""

from __future__ import annotations

import os

import pytest

from tests.e2e.kills.harness import Counterpart, Nursery, strace_works
from tests.e2e.kills.story import World


@pytest.fixture(scope="session")
def world(environment, tmp_path_factory):
    """One counterpart and one nursery for all stories."""
    if not hasattr(os, "fork"):
        pytest.skip("needs a POSIX system")
    folder = tmp_path_factory.mktemp("world")
    counterpart, nursery = Counterpart(), Nursery(folder, environment)
    yield World(counterpart, nursery, folder)
    nursery.close()
    counterpart.close()


@pytest.fixture(scope="session")
def traced(world, tmp_path_factory):
    """The same world, on a machine where strace may take hold of a process."""
    if not strace_works(tmp_path_factory.mktemp("probe")):
        pytest.skip("needs strace, and leave to trace")
    return world
