"""The flows `collect`, `budget-watch` and `compact` as a worker runs them, with blocks and an automation."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import lightmeter as lm
from tests.e2e.prefect_server import ROOT, serving, wait_for
from tests.engine.hostile import Hostile

pytestmark = [pytest.mark.slow, pytest.mark.sweep]

KEY = "KeyOfTheBlock"
EVENT = "lightmeter.budget."

LEAVE_WAITING = """
import asyncio, sys
import lightmeter as lm
from lightmeter.api.runs import stream_run

async def main(base_url, out):
    urls = [f"http://pictures.example/{number}.jpg" for number in range(400)]
    options = {"features": ["tags"], "backends": ["clarifai"], "precheck": False, "batch_size": 1}
    plan = await lm.aio.plan(urls, **options, max_concurrency=1, base_url=base_url)
    stop = asyncio.Event()
    async for step in stream_run(plan, out, stop=stop):
        if getattr(step, "in_flight", 0) > 2:
            stop.set()

asyncio.run(main(*sys.argv[1:]))
"""

SAVE_BLOCKS = """
import sys
from lightmeter.prefect_integration import CredentialsBlock, TableStorageBlock
CredentialsBlock(api_key=sys.argv[1], base_url=sys.argv[2]).save("account", overwrite=True)
TableStorageBlock(location=sys.argv[3]).save("lake", overwrite=True)
"""


def script(prefect, code: str, *arguments: object) -> None:
    """Run Python code with the environment of the Prefect server to its end."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    ended = subprocess.run(command, cwd=ROOT, env=prefect.environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


def budget_events(prefect) -> list[dict[str, Any]]:
    """Return the events about budgets that the server has stored; it stores them some seconds after they came."""
    return prefect.post("/events/filter", filter={"event": {"prefix": [EVENT]}})["events"]


@pytest.fixture
def service():
    """A service that answers the first request at once, and accepts the others without an answer."""
    service = Hostile(lambda number, body: "ok" if number == 1 else "ack", polls_until_done=1 << 30)
    with serving(service) as base_url:
        service.base_url = base_url
        yield service


def test_collect_and_compact_with_blocks(prefect, deployed, service, tmp_path):
    """A worker fetches waiting answers with the key of a block, sends nothing, and copies the tables to a place."""
    assert deployed.returncode == 0, deployed.stdout + deployed.stderr
    out, lake = tmp_path / "runs" / "night", tmp_path / "lake"
    lake.mkdir()
    script(prefect, SAVE_BLOCKS, KEY, service.base_url, lake)
    script(prefect, LEAVE_WAITING, service.base_url, out)
    posts, waiting = service.posts, len(service.jobs)
    assert waiting > 0
    for job in service.jobs.values():
        job["left"] = 0
    run = prefect.start_run("collect/every-six-hours", folders=[str(out.parent / "*")], credentials="account")
    assert prefect.wait_until_final(run)["name"] == "Completed"
    assert (service.posts, lm.open(out).summary().counts["ok"]) == (posts, posts)
    run = prefect.start_run("compact/weekly", out=str(out), storage="lake")
    assert prefect.wait_until_final(run)["name"] == "Completed"
    assert list((lake / "tables" / "assets").glob("*.parquet"))


def test_an_automation_pauses_the_deployment_that_spends(prefect, deployed, service, tmp_path):
    """A balance below the limit makes an event, on which the shipped automation pauses `analyze/nightly`."""
    script(prefect, SAVE_BLOCKS, KEY, service.base_url, tmp_path)
    program = [sys.executable, "-m", "lightmeter.prefect_integration.automations", "--pause", "analyze/nightly"]
    for _ in range(2):
        created = subprocess.run(program, env=prefect.environment, capture_output=True, text=True, check=False)
        assert created.returncode == 0, created.stderr
        assert created.stdout.count("lightmeter: pause") == 2
    assert len(prefect.post("/automations/filter")) == 3
    assert not prefect.get("/deployments/name/analyze/nightly")["paused"]
    run = prefect.start_run("budget-watch/hourly", min_balance=1_000_000, credentials="account")
    state = prefect.wait_until_final(run)
    assert (state["type"], state["name"]) == ("COMPLETED", "BudgetLow")
    assert "The balance is 1000 credits, below 1000000." in state["message"]
    wait_for(lambda: prefect.get("/deployments/name/analyze/nightly")["paused"])
    assert service.posts == 0
    logs = prefect.post("/logs/filter", logs={"flow_run_id": {"any_": [run]}})
    artifacts = prefect.post("/artifacts/filter")
    wait_for(lambda: {event["event"] for event in budget_events(prefect)} == {f"{EVENT}checked", f"{EVENT}balance_low"})
    events = budget_events(prefect)
    assert any("balance 1000" in line["message"] for line in logs)
    assert KEY not in f"{logs} {events} {artifacts} {prefect.get(f'/flow_runs/{run}')}"
    unknown = prefect.start_run("budget-watch/hourly", credentials="none")
    state = prefect.wait_until_final(unknown)
    assert (state["type"], "no block 'none'" in state["message"]) == ("FAILED", True)
