"""Runs that are killed, interrupted or out of disk space, against a simulated service with its own ledger."""

from __future__ import annotations

import pytest

from tests.e2e.kills.processes import ServiceProcess, strace_works
from tests.e2e.kills.scenario import ScenarioFactory


@pytest.fixture(scope="session")
def factory(fork_server, tmp_path_factory):
    """A scenario factory with one service and one fork server for all tests."""
    service = ServiceProcess()
    yield ScenarioFactory(service, fork_server, tmp_path_factory.mktemp("scenarios"))
    service.close()


@pytest.fixture(scope="session")
def traced_factory(factory, tmp_path_factory):
    """The same factory, on a machine where strace may attach to a process."""
    if not strace_works(tmp_path_factory.mktemp("probe")):
        pytest.skip("needs strace, and permission to trace")
    return factory


@pytest.fixture(scope="session")
def second_fork_server(fork_server, tmp_path_factory):
    """Another fork server, for a second run at the same time."""
    second = fork_server.copy(tmp_path_factory.mktemp("second") / "commands")
    yield second
    second.close()
