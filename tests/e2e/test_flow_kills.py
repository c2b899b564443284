"""A schedule of a real Prefect server that starts flow runs on its own, while its processes are killed.

Prefect keeps its database in SQLite or in PostgreSQL.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx2
import pytest

import lightmeter as lm
from lightmeter.testing import tiny_jpeg
from tests.e2e.prefect_installation import Installation, installation, kill
from tests.e2e.prefect_server import HoldingService, processes_of, serving, wait_for
from tests.postgres_server import postgres_programs, postgres_server

pytestmark = [
    pytest.mark.slow,
    pytest.mark.sweep,
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds the processes of a flow run in /proc"),
]

NIGHTLY, CHECK = "analyze/nightly", "precheck/before-nightly"
EVERY_S = 60
OPTIONS = {
    "features": ["tags"],
    "backends": ["clarifai"],
    "precheck": False,
    "batch_size": 1,
    "budget": 500,
    "sole_spender": True,
}
KILLS = ["flow", "worker", "worker and flow", "server"]
CASES = [*(("sqlite", killed) for killed in KILLS), *(("postgresql", killed) for killed in KILLS[2:])]
ENDED = {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"}


@pytest.fixture(scope="module")
def installed(request, environment, tmp_path_factory):
    """Prefect with a server, a worker, the deployments and the automations, on one of its two databases."""
    with ExitStack() as stack:
        if request.param == "postgresql":
            programs = postgres_programs()
            if programs is None:
                pytest.skip("needs PostgreSQL")
            url = stack.enter_context(postgres_server(*programs))("prefect")
            environment = {
                **environment,
                "PREFECT_API_DATABASE_CONNECTION_URL": url.replace("postgresql:", "postgresql+asyncpg:"),
            }
        yield stack.enter_context(installation(environment, tmp_path_factory.mktemp("prefect")))


class Manifest:
    """A manifest that grows; its addresses are seen by the service alone."""

    def __init__(self, path: Path) -> None:
        self.path, self.urls = path, []

    def grow(self, rows: int) -> None:
        """Append new rows."""
        first = len(self.urls)
        self.urls += [f"http://pictures.example/{number}.jpg" for number in range(first, first + rows)]
        self.path.write_text("\n".join(self.urls))


@pytest.fixture
def manifest(tmp_path):
    """A manifest of 20 rows."""
    manifest = Manifest(tmp_path / "manifest.txt")
    manifest.grow(20)
    return manifest


def completed(installed: Installation, deployed: str, after: set[str] = frozenset()) -> list[str]:
    """Return the completed flow runs of a deployment but those known before."""
    runs = installed.prefect.runs_of(deployed)
    return [run["id"] for run in runs if run["state"]["type"] == "COMPLETED" and run["id"] not in after]


def newest(installed: Installation, deployed: str) -> str:
    """Return the id of the flow run that is running."""
    return next(run["id"] for run in installed.prefect.runs_of(deployed) if run["state"]["type"] == "RUNNING")


def wait_until_all_ended(installed: Installation, deployed: str) -> None:
    """Wait until each flow run that has started is in a final state."""
    wait_for(lambda: all(run["state"]["type"] in ENDED for run in installed.prefect.runs_of(deployed)), poll_s=2)


@pytest.mark.parametrize("installed", ["sqlite", "postgresql"], indirect=True)
def test_a_schedule_runs_twice_on_its_own_and_pays_for_new_rows_only(installed, manifest, tmp_path):
    """The first scheduled run pays for all rows, and a later one for those that the manifest has gained."""
    service, out = HoldingService(answered=10**9), tmp_path / "out"
    with serving(service) as base_url:
        parameters = {"manifest": str(manifest.path), "out": str(out), "options": {**OPTIONS, "base_url": base_url}}
        with installed.prefect.schedule(NIGHTLY, every_s=EVERY_S, **parameters):
            wait_for(lambda: completed(installed, NIGHTLY), poll_s=2)
            assert sorted(service.charged) == sorted(manifest.urls)
            manifest.grow(5)
            wait_for(lambda: len(service.charged) >= len(manifest.urls))
            known = {run["id"] for run in installed.prefect.runs_of(NIGHTLY)}
            wait_for(lambda: completed(installed, NIGHTLY, known), poll_s=2)
        wait_until_all_ended(installed, NIGHTLY)
    assert sorted(service.charged) == sorted(manifest.urls)
    assert all(run["auto_scheduled"] for run in installed.prefect.runs_of(NIGHTLY))
    assert lm.open(out).summary().counts["ok"] == len(manifest.urls)


@pytest.mark.parametrize(("installed", "killed"), CASES, indirect=["installed"])
def test_the_schedule_goes_on_after_a_kill(installed, manifest, tmp_path, killed):
    """After a SIGKILL in the middle the next scheduled run completes, nothing is paid twice, and each run ends."""
    service, out = HoldingService(answered=8), tmp_path / "out"
    service.charges_held = killed != "worker and flow"  # else the answers are lost, and their charges with them
    with serving(service) as base_url:
        parameters = {"manifest": str(manifest.path), "out": str(out), "options": {**OPTIONS, "base_url": base_url}}
        with installed.prefect.schedule(NIGHTLY, every_s=EVERY_S, **parameters):
            wait_for(lambda: service.held >= 2)
            run = newest(installed, NIGHTLY)
            stop(installed, run, killed)
            service.released, service.to_answer = True, 10**9
            restart(installed, killed)
            installed.prefect.wait_until_final(run)
            known = {one["id"] for one in installed.prefect.runs_of(NIGHTLY) if one["state"]["type"] in ENDED}
            wait_for(lambda: completed(installed, NIGHTLY, known), poll_s=2)
        wait_until_all_ended(installed, NIGHTLY)
    if killed in {"flow", "worker and flow"}:
        assert installed.prefect.state(run)["type"] == "CRASHED"
    assert max(Counter(service.charged).values()) == 1
    assert sorted(service.charged) == sorted(manifest.urls)
    assert lm.open(out).summary().counts["ok"] == len(manifest.urls)


def stop(installed: Installation, run: str, killed: str) -> None:
    """Kill processes in the middle of a flow run."""
    pids = processes_of(run)
    if killed == "flow":
        os.kill(pids[0], signal.SIGKILL)
    if killed.startswith("worker"):
        kill(installed.worker)
    if killed == "worker and flow":  # as a machine does that is switched off
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
    if killed == "server":
        kill(installed.prefect.process)


def restart(installed: Installation, killed: str) -> None:
    """Start again what was killed, as systemd does, and the worker if it gave up."""
    if killed == "server":
        installed.start_server()
    if installed.worker.poll() is not None:
        installed.start_worker()


@pytest.mark.parametrize("installed", ["sqlite"], indirect=True)
def test_a_lease_outlives_its_server(installed, manifest, tmp_path):
    """A flow run keeps its place in the concurrency limit when the server is started again, and so is not stopped."""
    service = HoldingService(answered=8)
    with serving(service) as base_url:
        options = {**OPTIONS, "base_url": base_url}
        run = installed.prefect.start_run(manifest=str(manifest.path), out=str(tmp_path / "out"), options=options)
        wait_for(lambda: service.held >= 2)
        lease = installed.prefect.state(run)["state_details"]["deployment_concurrency_lease_id"]
        kill(installed.prefect.process)
        restart(installed, "server")
        path = f"{installed.prefect.url}/v2/concurrency_limits/leases/{lease}/renew"
        assert httpx2.post(path, json={"lease_duration": 300}, timeout=60).status_code == 204
        service.released = True
        assert installed.prefect.wait_until_final(run)["name"] == "Completed"
    assert sorted(service.charged) == sorted(manifest.urls)


class HoldingPictures(ThreadingHTTPServer):
    """Serves pictures: the first five at once, and the others when `released` is set; `held` counts these."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), PictureHandler)
        self.answered, self.held, self.released = 0, 0, threading.Event()

    @property
    def base_url(self) -> str:
        """The address of the server."""
        return f"http://127.0.0.1:{self.server_address[1]}"


class PictureHandler(BaseHTTPRequestHandler):
    """Answers requests for /NUMBER.jpg."""

    def do_GET(self) -> None:
        """Send a picture."""
        self.server.answered += 1
        if self.server.answered > 5:
            self.server.held += 1
            self.server.released.wait()
        body = tiny_jpeg(int(self.path.strip("/").removesuffix(".jpg")))
        self.send_response(200)
        self.send_header("Content-Type", "image/jpeg")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def pictures():
    """A server of pictures that holds its answers back."""
    with HoldingPictures() as server:
        serving = threading.Thread(target=server.serve_forever, daemon=True)
        serving.start()
        yield server
        server.released.set()
        server.shutdown()


def dask_workers(run: str) -> list[int]:
    """Return the ids of the Dask workers of a flow run; Python's multiprocessing starts them."""
    return [pid for pid in processes_of(run) if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


@pytest.mark.parametrize("installed", ["sqlite"], indirect=True)
def test_a_check_survives_the_kill_of_a_dask_worker(installed, pictures, tmp_path):
    """A Dask worker that is killed in the middle of a scheduled check costs no row, and the next check completes."""
    pytest.importorskip("distributed")
    rows, out = 24, tmp_path / "out"
    (tmp_path / "m.txt").write_text("\n".join(f"{pictures.base_url}/{number}.jpg" for number in range(rows)))
    options = {"executor": "dask", "shard_rows": 6}
    parameters = {"manifest": str(tmp_path / "m.txt"), "out": str(out), "options": options}
    with installed.prefect.schedule(CHECK, every_s=EVERY_S, **parameters):
        wait_for(lambda: pictures.held >= 2)
        run = newest(installed, CHECK)
        os.kill(dask_workers(run)[0], signal.SIGKILL)
        pictures.released.set()
        assert installed.prefect.wait_until_final(run)["name"] == "Completed"
        assert lm.open(out).summary().counts["pending"] == rows
        wait_for(lambda: completed(installed, CHECK, {run}), poll_s=2)
    wait_until_all_ended(installed, CHECK)
