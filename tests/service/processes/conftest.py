"""Services and workers in processes that can be killed and restarted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

LIGHTMETER = Path(sys.executable).with_name("lightmeter")
LEASE_S = "2.5"


class Process:
    """`lightmeter serve` or `lightmeter worker` on one database."""

    backends = "palette"
    lease_s = LEASE_S

    def __init__(self, folder: Path, database: str, verb: str = "serve") -> None:
        self.environment = dict(os.environ)
        self.log = folder / f"{verb}.txt"
        self.verb = verb
        self.base_url = ""
        self.database = database
        self.running: subprocess.Popen | None = None
        self.options: list[str] = []

    def begin(self) -> None:
        """Start the process and wait until it is ready."""
        options = ["--database", self.database, "--backends", self.backends, "--allow-private"]
        options += ["--lease", self.lease_s, *self.options]
        if self.verb == "serve":
            options += ["--port", "0"]
        with self.log.open("ab") as log:
            command = [LIGHTMETER, self.verb, *options]
            self.running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=self.environment)
        line = self.running.stdout.readline().decode()
        assert line.startswith(("listening on http://127.0.0.1:", "working")), self.log.read_text()
        self.base_url = line.split()[-1]

    def has_died(self) -> bool:
        """Whether the process has ended by itself; if so, close its pipe."""
        if self.running.poll() is None:
            return False
        self.running.stdout.close()
        return True

    def end(self, how: signal.Signals) -> int:
        """Send a signal, wait, and return the exit code."""
        self.running.send_signal(how)
        code = self.running.wait(timeout=30)
        self.running.stdout.close()
        return code


@pytest.fixture
def processes(tmp_path):
    """Return a function that creates processes; kill those that still run after the test."""
    made = []

    def make(database, verb="serve"):
        made.append(Process(tmp_path, database, verb))
        return made[-1]

    yield make
    for process in made:
        if process.running is not None and not process.has_died():
            process.end(signal.SIGKILL)


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
