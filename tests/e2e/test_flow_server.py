"""The deployment of `prefect.yaml` on a real Prefect server with a worker; `make test-all` runs it."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

import lightmeter as lm
from lightmeter.background_loop import BackgroundLoop
from lightmeter.journal.files import is_run_locked
from tests.e2e.prefect_server import PREFECT, HoldingService, prefect_server, running, wait_for
from tests.engine.hostile import Hostile, listening

pytestmark = [pytest.mark.slow, pytest.mark.sweep]

ROWS = 30
OPTIONS = {"features": ["tags"], "backends": ["clarifai"], "precheck": False, "max_frames": 3, "batch_size": 1}


@contextmanager
def serving(service):
    """Serve in a thread; yields the base URL."""
    loop = BackgroundLoop()
    context = listening(service)
    try:
        yield loop.run(context.__aenter__())
    finally:
        loop.run(context.__aexit__(None, None, None))
        loop.close()


@pytest.fixture(scope="module")
def prefect(environment, tmp_path_factory):
    """A Prefect server with a work pool."""
    own = {**environment, "LIGHTMETER_API_KEY": "key", "LIGHTMETER_CHARGES_FINAL_S": "0"}
    with prefect_server(own, tmp_path_factory.mktemp("prefect")) as server:
        created = server.command("work-pool", "create", "default", "--type", "process")
        assert created.returncode == 0, created.stdout
        yield server


@pytest.fixture(scope="module")
def deployed(prefect, tmp_path_factory):
    """The outcome of `prefect deploy --all`, and a worker that runs what is deployed."""
    outcome = prefect.command("deploy", "--all")
    log = tmp_path_factory.mktemp("worker") / "worker.log"
    worker = (*PREFECT, "worker", "start", "--pool", "default")
    with running(worker, {**prefect.environment, "PREFECT_WORKER_QUERY_SECONDS": "2"}, log):
        yield outcome


@pytest.fixture
def manifest(tmp_path):
    """A manifest of addresses that only the service sees."""
    path = tmp_path / "manifest.txt"
    path.write_text("\n".join(f"http://pictures.example/{number}.jpg" for number in range(ROWS)))
    return str(path)


def test_deploy_registers_every_deployment(deployed):
    """`prefect deploy --all` exits with 0."""
    assert deployed.returncode == 0, deployed.stdout + deployed.stderr


def test_cancel_cuts_off_no_request(prefect, deployed, manifest, tmp_path):
    """Requests in flight at Cancel are answered, even after Prefect killed the flow; the next run pays for the rest."""
    service, out = HoldingService(answered=8), tmp_path / "out"
    with serving(service) as base_url:
        options = {**OPTIONS, "base_url": base_url, "budget": 500}
        parameters = {"manifest": manifest, "out": str(out), "options": options, "shard_rows": 20}
        run = prefect.start_run(**parameters)
        wait_for(lambda: service.held >= 2)
        prefect.cancel(run)
        assert prefect.wait_until_final(run)["type"] == "CANCELLED"
        cut_off = service.held
        service.released = True
        wait_for(lambda: not is_run_locked(out) and list((out / "tables").glob("assets/*.parquet")))
        summary = lm.open(out).summary()
        assert (summary.counts["in_doubt"], summary.held) == (0, 0)
        assert summary.paid == len(service.charged) == 8 + cut_off < ROWS
        assert len(lm.open(out).assets) == ROWS
        again = prefect.start_run(**parameters)
        assert prefect.wait_until_final(again)["name"] == "Completed"
    assert sorted(service.charged) == sorted({f"http://pictures.example/{number}.jpg" for number in range(ROWS)})


def test_a_flow_that_leaves_rows_in_doubt_fails(prefect, deployed, manifest, tmp_path):
    """A run that ends with rows in doubt is no completed flow run, and its state names the next command."""
    service = Hostile(lambda number, body: "drop" if number > 5 else "ok")
    with serving(service) as base_url:
        options = {**OPTIONS, "base_url": base_url, "budget": 500}
        run = prefect.start_run(manifest=manifest, out=str(tmp_path / "out"), options=options)
        state = prefect.wait_until_final(run)
    assert state["type"] == "FAILED"
    assert (state["name"], "lightmeter resume" in state["message"]) == ("InDoubt", True)
