"""A Prefect server and a worker that tests kill and start again; both keep their address, database and settings."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.e2e.prefect_server import PREFECT, Prefect, free_port, prefect_server, running

CRASHED_AFTER_S = 120
LEASES = "prefect.server.concurrency.lease_storage.filesystem"


class Installation:
    """What a user has installed by the README: a server, a worker, the deployments and the automations."""

    def __init__(self, environment: dict[str, str], folder: Path, stack: ExitStack) -> None:
        own = {
            "LIGHTMETER_API_KEY": "key",
            "LIGHTMETER_CHARGES_FINAL_S": "0",
            "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
            "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": LEASES,
            "PREFECT_WORKER_QUERY_SECONDS": "2",
        }
        self._environment, self._folder, self._stack = {**environment, **own}, folder, stack
        self._port = free_port()
        self.prefect: Prefect
        self.worker: subprocess.Popen[bytes]

    def start_server(self) -> None:
        """Start the server, at the same port each time."""
        self.prefect = self._stack.enter_context(prefect_server(self._environment, self._folder, self._port))

    def start_worker(self) -> None:
        """Start a worker."""
        command = (*PREFECT, "worker", "start", "--pool", "default")
        self.worker = self._stack.enter_context(running(command, self.prefect.environment, self._folder / "worker.log"))

    def deploy(self) -> None:
        """Create the work pool, the deployments and the automations."""
        program = (sys.executable, "-m", "lightmeter.prefect_integration.automations")
        subprocess.run(
            [*program, "--crashed-after", str(CRASHED_AFTER_S)],
            env=self.prefect.environment,
            check=True,
            capture_output=True,
        )
        for arguments in (("work-pool", "create", "default", "--type", "process"), ("deploy", "--all")):
            done = self.prefect.command(*arguments)
            assert done.returncode == 0, done.stdout + done.stderr


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and wait until it is gone."""
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


@contextmanager
def installation(environment: dict[str, str], folder: Path) -> Iterator[Installation]:
    """Start a server with the deployments and automations, and a worker, while the block lasts."""
    with ExitStack() as stack:
        started = Installation(environment, folder, stack)
        started.start_server()
        started.deploy()
        started.start_worker()
        yield started
