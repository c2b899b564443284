"""The deployment of `prefect.yaml` on a real Prefect server with a worker; `make test-all` runs it."""

from __future__ import annotations

import json
import os
import signal
import sys

import pytest

import lightmeter as lm
from lightmeter.journal.files import is_run_locked
from lightmeter.prefect_integration.tables import asset_key
from tests.e2e.prefect_server import HoldingService, processes_of, running, serving, wait_for
from tests.engine.hostile import Hostile

pytestmark = [pytest.mark.slow, pytest.mark.sweep]

ROWS = 30
OPTIONS = {"features": ["tags"], "backends": ["clarifai"], "precheck": False, "max_frames": 3, "batch_size": 1}

FLOW_SCRIPT = """
import asyncio, json, sys
sys.path.insert(0, "flows")
from analyze import analyze
asyncio.run(analyze(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), return_state=True))
"""


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
        wait_for(lambda: service.held_requests >= 2)
        prefect.cancel(run)
        assert prefect.wait_until_final(run)["type"] == "CANCELLED"
        cut_off = service.held_requests
        service.released = True
        wait_for(lambda: not is_run_locked(out) and list((out / "tables").glob("assets/*.parquet")))
        summary = lm.open(out).summary()
        assert (summary.counts["in_doubt"], summary.held) == (0, 0)
        assert summary.paid == len(service.charged) == 8 + cut_off < ROWS
        assert len(lm.open(out).assets) == ROWS
        again = prefect.start_run(**parameters)
        assert prefect.wait_until_final(again)["name"] == "Completed"
    assert sorted(service.charged) == sorted({f"http://pictures.example/{number}.jpg" for number in range(ROWS)})


def test_a_flow_that_is_retried_pays_nothing_twice(prefect, deployed, manifest, tmp_path):
    """The button Retry of Prefect, after a kill of the sending process, sends only what was not answered."""
    service, out = HoldingService(answered=8), tmp_path / "out"
    with serving(service) as base_url:
        options = {**OPTIONS, "base_url": base_url, "budget": 500, "sole_spender": True}
        run = prefect.start_run(manifest=manifest, out=str(out), options=options, shard_rows=4)
        wait_for(lambda: service.held_requests >= 2)
        service.charges_held = False
        os.kill(processes_of(run)[-1], signal.SIGKILL)
        assert prefect.wait_until_final(run)["type"] == "FAILED"
        service.released = True
        wait_for(lambda: service.at_once == 0)
        service.to_answer = 10**9
        prefect.post(f"/flow_runs/{run}/set_state", state={"type": "SCHEDULED", "name": "AwaitingRetry"}, force=True)
        wait_for(lambda: prefect.state(run)["type"] == "COMPLETED")
    assert sorted(service.charged) == sorted({f"http://pictures.example/{number}.jpg" for number in range(ROWS)})


def test_a_flow_run_twice_at_once_pays_nothing_twice(prefect, deployed, manifest, tmp_path):
    """A second run of the deployment waits until the first has ended, and then finds nothing to pay for."""
    service, out = HoldingService(answered=8), tmp_path / "out"
    with serving(service) as base_url:
        options = {**OPTIONS, "base_url": base_url, "budget": 500}
        runs = [prefect.start_run(manifest=manifest, out=str(out), options=options, shard_rows=4) for _ in range(2)]
        wait_for(lambda: service.held_requests >= 2)
        wait_for(lambda: "AwaitingConcurrencySlot" in {prefect.state(run)["name"] for run in runs})
        service.released = True
        assert [prefect.wait_until_final(run)["name"] for run in runs] == ["Completed", "Completed"]
    assert sorted(service.charged) == sorted({f"http://pictures.example/{number}.jpg" for number in range(ROWS)})


def test_a_flow_beside_another_process_is_refused(prefect, deployed, manifest, tmp_path):
    """A flow into a folder that another process is running fails and sends nothing, whatever Prefect's limits allow."""
    service, out = HoldingService(answered=8), tmp_path / "out"
    with serving(service) as base_url:
        options = {**OPTIONS, "base_url": base_url, "budget": 500, "max_concurrency": 2}
        script = [sys.executable, "-c", FLOW_SCRIPT, manifest, str(out), json.dumps(options)]
        with running(tuple(script), prefect.environment, tmp_path / "log"):
            wait_for(lambda: service.held_requests >= 2)
            posts = service.posts + service.held_requests
            run = prefect.start_run(manifest=manifest, out=str(out), options=options)
            assert prefect.wait_until_final(run)["type"] == "FAILED"
            assert service.posts + service.held_requests == posts
            service.released = True
            wait_for(lambda: not is_run_locked(out))
    assert len(service.charged) == len(set(service.charged))


def test_the_key_of_a_block_is_used_and_never_shown(prefect, deployed, manifest, tmp_path):
    """A flow run uses the key of its credentials block; its log names the run and the rows, and never the key."""
    service = HoldingService(answered=10**9)
    types = prefect.post("/block_types/filter", block_types={"slug": {"any_": ["lightmeter-credentials"]}})
    if not types:
        assert prefect.command("block", "register", "-m", "lightmeter.prefect_integration").returncode == 0
        types = prefect.post("/block_types/filter", block_types={"slug": {"any_": ["lightmeter-credentials"]}})
    schemas = prefect.post("/block_schemas/filter", block_schemas={"block_type_id": {"any_": [types[0]["id"]]}})
    with serving(service) as base_url:
        data = {"api_key": "KeyOfTheBlock", "base_url": base_url}
        ids = {"block_type_id": types[0]["id"], "block_schema_id": schemas[0]["id"]}
        prefect.post("/block_documents/", name="of-tests", data=data, **ids)
        run = prefect.start_run(manifest=manifest, out=str(tmp_path / "out"), options=OPTIONS, credentials="of-tests")
        assert prefect.wait_until_final(run)["name"] == "Completed"
    logs = "\n".join(entry["message"] for entry in prefect.post("/logs/filter", limit=200))
    assert f"{ROWS} rows" in logs
    assert "KeyOfTheBlock" not in logs + json.dumps(prefect.get(f"/flow_runs/{run}"))


def test_tables_are_assets(prefect, deployed, manifest, tmp_path):
    """Each table that a flow writes is an asset of Prefect, with its number of rows."""
    service = HoldingService(answered=10**9)
    with serving(service) as base_url:
        options = {**OPTIONS, "base_url": base_url}
        run = prefect.start_run(manifest=manifest, out=str(tmp_path / "out"), options=options)
        assert prefect.wait_until_final(run)["name"] == "Completed"

    def found():
        chosen = {"event": {"prefix": ["prefect.asset.materialization.succeeded"]}}
        events = prefect.post("/events/filter", filter=chosen)["events"]
        return {event["resource"]["prefect.resource.id"]: event["payload"].get("rows") for event in events}

    wait_for(lambda: asset_key(tmp_path / "out", "tags") in found())
    assert found()[asset_key(tmp_path / "out", "tags")] == ROWS


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
