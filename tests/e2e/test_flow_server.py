"""The deployment of `prefect.yaml` on a real Prefect server with a worker; `make test-all` runs it."""

from __future__ import annotations

import pytest

import lightmeter as lm
from lightmeter.journal.files import is_run_locked
from tests.e2e.prefect_server import HoldingService, serving, wait_for
from tests.engine.hostile import Hostile

pytestmark = [pytest.mark.slow, pytest.mark.sweep]

ROWS = 30
OPTIONS = {"features": ["tags"], "backends": ["clarifai"], "precheck": False, "max_frames": 3, "batch_size": 1}


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


def test_the_deployed_check_runs_on_a_worker(prefect, deployed, data_server, sample_rows, tmp_path):
    """A worker runs the deployment of prefect.yaml to its end."""
    assert deployed.returncode == 0, deployed.stdout + deployed.stderr
    (tmp_path / "m.txt").write_text(f"{data_server}/{sample_rows[0]['path']}")
    run = prefect.start_run("precheck/before-nightly", manifest=str(tmp_path / "m.txt"), out=str(tmp_path / "out"))
    assert prefect.wait_until_final(run)["type"] == "COMPLETED"
    assert lm.open(tmp_path / "out").summary().rows == 1
