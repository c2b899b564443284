"""A real Prefect server and worker on loopback, and an analysis service that holds its answers back."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from aiohttp import web

from lightmeter.background_loop import BackgroundLoop
from tests.engine.hostile import Hostile, listening

ROOT = Path(__file__).resolve().parents[2]
PREFECT = (sys.executable, "-m", "prefect", "--no-prompt")
DEADLINE_S = 600


class HoldingService(Hostile):
    """A service that answers some requests now, and the others when `released` is set; `held_requests` counts them.

    Requests whose body has the text `never_held` are always answered at once. Without `charges_held` it closes the
    connections of the held ones instead, and charges nothing for them.
    """

    def __init__(self, answered: int) -> None:
        super().__init__(lambda number, body: "ok")
        self.to_answer = answered
        self.held_requests = 0
        self.released = False
        self.charges_held = True
        self.never_held: bytes | None = None

    async def fetch(self, request: web.Request) -> web.StreamResponse:
        """POST /api/fetch."""
        body = await request.read()  # so that a request whose client is gone by now is charged too
        if self.never_held is not None and self.never_held in body:
            return await super().fetch(request)
        self.to_answer -= 1
        if self.to_answer < 0:
            self.held_requests += 1
            while not self.released:  # noqa: ASYNC110 (another thread sets it)
                await asyncio.sleep(0.02)
            if not self.charges_held:
                if request.transport is not None:  # the client may be gone
                    request.transport.abort()
                return web.Response()
        return await super().fetch(request)


def serving(service: Hostile) -> AbstractContextManager[str]:
    """Serve in a thread; yields the base URL."""
    return entered_in_thread(listening(service))


@contextmanager
def entered_in_thread(context: AbstractAsyncContextManager[str]) -> Iterator[str]:
    """Enter an asynchronous context in a thread of its own; yields what the context yields."""
    loop = BackgroundLoop()
    try:
        yield loop.run(context.__aenter__())
    finally:
        loop.run(context.__aexit__(None, None, None))
        loop.close()


@dataclass(frozen=True)
class Prefect:
    """A running Prefect server; `environment` is that of its commands, `process` that of the server."""

    url: str
    environment: dict[str, str]
    process: subprocess.Popen[bytes]

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `prefect …` in this repository to its end."""
        return subprocess.run(
            [*PREFECT, *arguments],
            cwd=ROOT,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )

    def get(self, path: str) -> Any:
        """GET the JSON of a path of the server's API; a busy server that does not answer is asked again."""
        return self._read("GET", path)

    def filter(self, path: str, **chosen: Any) -> Any:
        """POST a filter, and return what the server has found; a busy server is asked again."""
        return self._read("POST", f"{path}/filter", json=chosen)

    def _read(self, method: str, path: str, **more: Any) -> Any:
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                return httpx2.request(method, f"{self.url}{path}", timeout=60, **more).raise_for_status().json()
            except httpx2.HTTPError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(1)

    def post(self, path: str, **body: Any) -> Any:
        """POST JSON to the server's API, again while it is overloaded; return the JSON of the answer."""
        return self._write("POST", path, json=body).json()

    def _write(self, method: str, path: str, **more: Any) -> httpx2.Response:
        """Send a request that changes something, again while the server is overloaded and so has changed nothing."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            answer = httpx2.request(method, f"{self.url}{path}", timeout=DEADLINE_S, **more)
            if answer.status_code != 503 or time.monotonic() > deadline:
                return answer.raise_for_status()
            time.sleep(1)

    def start_run(self, deployed: str = "analyze/nightly", /, **parameters: Any) -> str:
        """Start a deployment with other parameters; return the id of the flow run."""
        deployment = self.get(f"/deployments/name/{deployed}")
        return self.post(f"/deployments/{deployment['id']}/create_flow_run", parameters=parameters)["id"]

    def runs_of(self, deployed: str) -> list[dict[str, Any]]:
        """Return the flow runs of a deployment that are late or have started, the newest first."""
        states = {"state": {"name": {"not_any_": ["Scheduled"]}}}
        flows = {"name": {"any_": [deployed.split("/", maxsplit=1)[0]]}}
        runs: list[dict[str, Any]] = self.filter(
            "/flow_runs", flows=flows, flow_runs=states, sort="EXPECTED_START_TIME_DESC"
        )
        return runs

    @contextmanager
    def schedule(self, deployed: str, *, every_s: int, **parameters: Any) -> Iterator[None]:
        """Start a deployment by a schedule of its own while the block lasts."""
        path = f"/deployments/{self.get(f'/deployments/name/{deployed}')['id']}/schedules"
        schedule = {"schedule": {"interval": every_s}, "active": True, "parameters": parameters}
        (created,) = self._write("POST", path, json=[schedule]).json()
        try:
            yield
        finally:
            self._write("DELETE", f"{path}/{created['id']}")

    def state(self, run: str) -> dict[str, Any]:
        """Return the state of a flow run."""
        return self.get(f"/flow_runs/{run}")["state"]

    def cancel(self, run: str) -> None:
        """Cancel a flow run as the button on the web page does."""
        self.post(f"/flow_runs/{run}/set_state", state={"type": "CANCELLING"})

    def wait_until_final(self, run: str) -> dict[str, Any]:
        """Return the final state of a flow run."""
        wait_for(lambda: self.state(run)["type"] in {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"}, poll_s=1)
        return self.state(run)


def commands_of(run: str) -> dict[int, bytes]:
    """Return the command line of each process of a flow run by the id of the process."""
    mark, found = f"PREFECT__FLOW_RUN_ID={run}".encode(), {}
    for folder in sorted(Path("/proc").glob("[0-9]*"), key=lambda path: int(path.name)):
        with suppress(OSError):
            parent = int(re.findall(r"PPid:\s+(\d+)", (folder / "status").read_text())[0])
            # A child has an environment of its own, without Prefect's variables.
            if parent in found or mark in (folder / "environ").read_bytes():
                found[int(folder.name)] = (folder / "cmdline").read_bytes()
    return found


def processes_of(run: str) -> list[int]:
    """Return the ids of the processes of a flow run: that of the flow first, then that which sends its requests."""
    found = commands_of(run)
    return sorted(found, key=lambda pid: (b"prefect.engine" not in found[pid], b"resume_process" in found[pid]))


def wait_for(condition: Callable[[], Any], *, poll_s: float = 0.1) -> None:
    """Wait until the condition holds; ask again after `poll_s` seconds."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(poll_s)


@contextmanager
def running(command: tuple[str, ...], environment: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command in this repository while the block lasts."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_port() -> int:
    """Return a port of loopback that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


@contextmanager
def prefect_server(environment: dict[str, str], folder: Path, port: int | None = None) -> Iterator[Prefect]:
    """Start a Prefect server for a block; `PREFECT_HOME` is in `folder`."""
    port = port or free_port()
    url = f"http://127.0.0.1:{port}/api"
    own = {
        **environment,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}",
        "PREFECT_HOME": str(folder / "prefect"),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_API_URL": url,
    }
    start = (*PREFECT, "server", "start", "--host", "127.0.0.1", "--port", str(port))
    with running(start, own, folder / "server.log") as process:

        def is_up() -> bool:
            assert process.poll() is None, (folder / "server.log").read_text()
            try:
                return httpx2.get(f"{url}/health", timeout=5).status_code == 200
            except httpx2.HTTPError:
                return False

        wait_for(is_up)
        yield Prefect(url, own, process)
