"""A Prefect server with the deployments of `prefect.yaml`."""

from __future__ import annotations

import pytest

from tests.e2e.prefect_server import PREFECT, prefect_server, running


@pytest.fixture(scope="module")
def prefect(environment, tmp_path_factory):
    """A Prefect server with a work pool."""
    own = {"LIGHTMETER_API_KEY": "key", "LIGHTMETER_CHARGES_FINAL_S": "0", "LIGHTMETER_KEEP_RUNS": "2"}
    with prefect_server({**environment, **own}, tmp_path_factory.mktemp("prefect")) as server:
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
