"""Services and workers in processes that can be killed and restarted."""

from __future__ import annotations

import os
import signal

import pytest

from tests.e2e.kills.processes import ForkServer, RunningCommand

LEASE_S = "2.5"


class Process:
    """`lightmeter serve` or `lightmeter worker` on one database."""

    backends = "palette"
    lease_s = LEASE_S

    def __init__(self, fork_server: ForkServer, database: str, verb: str = "serve") -> None:
        self.environment = dict(os.environ)
        self.fork_server = fork_server
        self.log = fork_server.folder / "err"
        self.verb = verb
        self.base_url = ""
        self.database = database
        self.running: RunningCommand | None = None
        self.options: list[str] = []

    def begin(self) -> None:
        """Start the process and wait until it is ready."""
        options = ["--database", self.database, "--backends", self.backends, "--allow-private"]
        options += ["--lease", self.lease_s, *self.options]
        if self.verb == "serve":
            options += ["--port", "0"]
        self.running = self.fork_server.start(self.verb, *options, env=self.environment)
        line = self.running.first_line()
        assert line.startswith(("listening on http://127.0.0.1:", "working")), self.log.read_text()
        self.base_url = line.split()[-1]

    def has_died(self) -> bool:
        """Whether the process has ended by itself."""
        return bool(self.running.code)

    def end(self, how: signal.Signals) -> int:
        """Send a signal, wait, and return the exit code."""
        self.running.signal(how)
        return self.running.wait().code


@pytest.fixture
def processes(fork_server, tmp_path):
    """Return a function that creates processes; kill those that still run after the test."""
    started = []

    def make(database, verb="serve"):
        copy = fork_server.copy(tmp_path / "processes" / str(len(started)))
        started.append(Process(copy, database, verb))
        return started[-1]

    yield make
    for process in started:
        if process.running is not None and not process.has_died():
            process.end(signal.SIGKILL)
        process.fork_server.close()


@pytest.fixture
def process(processes, tmp_path):
    """A service on an SQLite file."""
    return processes(f"sqlite:///{tmp_path / 'served.db'}")


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=[pytest.mark.postgres, pytest.mark.sweep])])
def database(request, tmp_path):
    """The URL of a new database, SQLite or PostgreSQL; three processes share a PostgreSQL server."""
    if request.param == "postgresql":
        return request.getfixturevalue("postgres")
    return f"sqlite:///{tmp_path / 'fresh.db'}"
