"""A schedule of a real Prefect server that starts flow runs on its own, while its processes are killed.

Prefect keeps its database in SQLite or in PostgreSQL.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest
from aiohttp import web

import lightmeter as lm
from lightmeter.testing import tiny_jpeg
from tests.e2e.prefect_installation import Installation, installation, kill
from tests.e2e.prefect_server import HoldingService, commands_of, entered_in_thread, processes_of, serving, wait_for
from tests.engine.hostile import served
from tests.postgres_server import postgres_programs, postgres_server
from tests.scale_out.test_check_shards import tables

pytestmark = [
    pytest.mark.slow,
    pytest.mark.sweep,
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds the processes of a flow run in /proc"),
]

NIGHTLY = "analyze/nightly"
CHECK = "precheck/before-nightly"
EVERY_S = 60
OPTIONS = {
    "features": ["tags"],
    "backends": ["clarifai"],
    "precheck": False,
    "batch_size": 1,
    "budget": 500,
    "sole_spender": True,
}
ENDED = {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"}
STATES = {
    "machine": {"CRASHED"},
    "flow": {"CRASHED"},
    "sender": {"FAILED"},
    "worker": {"COMPLETED", "CRASHED"},
    "server": ENDED,
}
"""Victims of a SIGKILL, and the states in which the flow run may end; `machine`: worker, flow and sender together."""


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


def kill_victim(installed: Installation, victim: str, run: str) -> None:
    """Kill one process of a flow run that sends requests, or several."""
    flow, *_, sender = processes_of(run)
    if victim == "server":
        kill(installed.prefect.process)
    if victim in {"worker", "machine"}:
        kill(installed.worker)
    for pid in {"flow": [flow], "sender": [sender], "machine": [flow, sender]}.get(victim, []):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("victim", STATES)
@pytest.mark.parametrize("installed", ["sqlite", "postgresql"], indirect=True)
def test_the_schedule_goes_on_after_a_kill(installed, victim, manifest, tmp_path):
    """After a SIGKILL in the middle the next scheduled run completes, nothing is paid twice, and each run ends."""
    service, out = HoldingService(answered=8), tmp_path / "out"
    service.charges_held = victim not in {"sender", "machine"}  # their answers are lost, and the charges with them
    with serving(service) as base_url:
        parameters = {"manifest": str(manifest.path), "out": str(out), "options": {**OPTIONS, "base_url": base_url}}
        with installed.prefect.schedule(NIGHTLY, every_s=EVERY_S, **parameters):
            wait_for(lambda: service.held_requests >= 2)
            run = newest(installed, NIGHTLY)
            known = {one["id"] for one in installed.prefect.runs_of(NIGHTLY) if one["state"]["type"] in ENDED}
            kill_victim(installed, victim, run)
            service.released, service.to_answer = True, 10**9
            if victim == "server":
                installed.start_server()
            elif victim in {"worker", "machine"}:
                installed.start_worker()
            assert installed.prefect.wait_until_final(run)["type"] in STATES[victim]
            wait_for(lambda: completed(installed, NIGHTLY, {*known, run}), poll_s=2)
        wait_until_all_ended(installed, NIGHTLY)
    assert max(Counter(service.charged).values()) == 1
    assert sorted(service.charged) == sorted(manifest.urls)
    assert lm.open(out).summary().counts["ok"] == len(manifest.urls)


class HoldingPictures:
    """A server of pictures that answers once `released` is set; `numbers` has the number of the picture per request."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.released = False

    async def answer(self, request: web.Request) -> web.Response:
        """GET /NUMBER.jpg."""
        number = int(request.match_info["number"])
        self.numbers.append(number)
        while not self.released:  # noqa: ASYNC110 (another thread sets it)
            await asyncio.sleep(0.02)
        return web.Response(body=tiny_jpeg(number % 17), content_type="image/jpeg")

    def serving(self) -> AbstractContextManager[str]:
        """Serve in a thread; yields the base URL."""
        app = web.Application()
        app.router.add_get(r"/{number:\d+}.jpg", self.answer)
        return entered_in_thread(served(app))


def dask_workers(run: str) -> list[int]:
    """Return the ids of the worker processes of Dask that a flow run has started."""
    return [pid for pid, command in commands_of(run).items() if b"spawn_main" in command]


@pytest.mark.parametrize("victim", ["dask", "flow"])
@pytest.mark.parametrize("installed", ["sqlite"], indirect=True)
def test_a_check_on_dask_survives_a_kill(installed, victim, tmp_path):
    """A run whose Dask worker is killed in the middle of a shard, or the next one, writes the tables of one process."""
    pytest.importorskip("distributed")
    pictures, manifest = HoldingPictures(), tmp_path / "manifest.txt"
    with pictures.serving() as base_url:
        manifest.write_text("\n".join(f"{base_url}/{number}.jpg" for number in range(20)))
        options = {"executor": "dask", "shard_rows": 1}
        given = {"manifest": str(manifest), "out": str(tmp_path / "there"), "options": options}
        run = installed.prefect.start_run(CHECK, **given)
        wait_for(lambda: 0 < len(dask_workers(run)) == len(pictures.numbers))  # each is in the middle of a row
        os.kill((dask_workers if victim == "dask" else processes_of)(run)[0], signal.SIGKILL)
        pictures.released = True
        if victim == "flow":
            assert installed.prefect.wait_until_final(run)["type"] == "CRASHED"
            wait_for(lambda: not processes_of(run))
            run = installed.prefect.start_run(CHECK, **given)
        assert installed.prefect.wait_until_final(run)["name"] == "Completed"
        assert max(Counter(pictures.numbers).values()) > 1
        asyncio.run(lm.aio.check(manifest, tmp_path / "here", reuse=False))
    assert tables(tmp_path / "there") == tables(tmp_path / "here")
