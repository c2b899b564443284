"""The Prefect flow as a scheduler runs it: shards, a second run after a stop, artifacts."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import lightmeter as lm

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]

SCRIPT = """
import asyncio, json, os, sqlite3, sys
sys.path.insert(0, sys.argv[1])
from analyze import analyze
from prefect.client.orchestration import get_client
from prefect.client.schemas.sorting import TaskRunSort
import lightmeter as lm

async def run(manifest, out, **options):
    state = await analyze(manifest, out, {"features": ["colors"], **options}, shard_rows=4, return_state=True)
    summary = lm.open(out).summary().to_dict()
    return {"type": state.type.value, "name": state.name, "message": state.message, "summary": summary}

async def answered(manifest, out, **form):
    async def answer():  # as the button Resume on the web page does
        async with get_client() as client:
            while True:
                for paused in filter(lambda found: found.state.is_paused(), await client.read_flow_runs()):
                    await client.resume_flow_run(paused.id, run_input=form)
                    return
                await asyncio.sleep(0.3)
    answering = asyncio.create_task(answer())
    asked = {"approve_above": 4, "report": False, "return_state": True}
    state = await analyze(manifest, out, {"features": ["colors"], "budget": 50}, **asked)
    await answering
    return {"name": state.name, "message": state.message, "requests": lm.open(out).summary().requests}

async def tasks(client):
    return [task.name for task in await client.read_task_runs(limit=100, sort=TaskRunSort.NAME_ASC)]

async def main():
    manifest, out = sys.argv[2:4]
    first = await run(manifest, out, budget=5)
    again = await run(manifest, out, budget=50)
    async with get_client() as client:
        ran = await tasks(client)
        # Prefect's own reader of artifacts sends nulls that its server refuses; the endpoint itself is well.
        found = (await client._client.post("/artifacts/latest/filter", json={})).json()
        artifacts = [(artifact["key"], artifact["type"], artifact["data"]) for artifact in found]
        refused = await answered(manifest, out + "-asked", approve=False, reason="too dear")
        approved = await answered(manifest, out + "-asked", approve=True)
        asked = {"approve_above": 4, "approval_hours": 0.0001, "return_state": True}
        unanswered = await analyze(manifest, out + "-late", {"features": ["colors"]}, **asked)
        unanswered = {"name": unanswered.name, "requests": lm.open(out + "-late").summary().requests}
        ran_before = await tasks(client)
        keyless = await run(manifest, out, base_url="http://127.0.0.1:9")
        keyless["tasks"] = len(await tasks(client)) - len(ran_before)
        with sqlite3.connect(os.environ["PREFECT_HOME"] + "/prefect.db") as db:
            for verb in ("INSERT", "UPDATE"):
                db.execute(f"CREATE TRIGGER no_{verb} BEFORE {verb} ON artifact BEGIN SELECT RAISE(FAIL, 'full'); END")
        no_artifacts = await run(manifest, out, budget=50)
    runs = {"first": first, "again": again, "keyless": keyless, "no_artifacts": no_artifacts}
    runs |= {"refused": refused, "approved": approved, "unanswered": unanswered}
    print(json.dumps({**runs, "tasks": ran, "artifacts": artifacts}))

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def flow(environment, data_server, sample_rows, tmp_path_factory):
    """Runs of the flow into one folder: with a small budget, a large one, no key, and no artifacts."""
    folder = tmp_path_factory.mktemp("flow")
    urls = [f"{data_server}/{row['path']}" for row in sample_rows if row["kind"] == "image"][:10]
    (folder / "manifest.txt").write_text("\n".join(urls))
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, ROOT / "flows", folder / "manifest.txt", folder / "out"],
        env={**environment, "PREFECT_HOME": str(folder / "prefect"), "PREFECT_LOGGING_LEVEL": "WARNING"},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1]), folder / "out"


def test_a_flow_over_budget_fails_and_continues_with_a_larger_one(flow):
    """A flow over budget ends in a failed state with the next command; a larger budget pays for the other rows only."""
    output, out = flow
    first, again = output["first"], output["again"]
    assert (first["summary"]["ok"], first["summary"]["over_budget"]) == (5, 5)
    assert (first["type"], first["name"]) == ("FAILED", "OverBudget")
    assert "lightmeter resume" in first["message"]
    assert (again["type"], again["name"]) == ("COMPLETED", "Completed")
    assert (again["summary"]["ok"], again["summary"]["credits"]["paid"]) == (10, 10)
    assert again["summary"]["requests"] == 10
    assert len(lm.open(out).assets) == 10


def test_a_missing_key_fails_before_planning(flow):
    """Without a key the flow ends in its first task, and its state says what to set."""
    keyless = flow[0]["keyless"]
    assert (keyless["type"], keyless["name"], keyless["tasks"]) == ("FAILED", "Failed", 1)
    assert "LIGHTMETER_API_KEY" in keyless["message"]


def test_a_flow_completes_without_artifacts(flow):
    """A server that cannot store artifacts fails no flow."""
    assert flow[0]["no_artifacts"]["type"] == "COMPLETED"


def test_a_price_above_the_limit_needs_approval(flow):
    """A run whose price a person refuses, or nobody approves in time, sends nothing and says so; approved, it runs."""
    refused, approved = flow[0]["refused"], flow[0]["approved"]
    assert (refused["name"], refused["requests"]) == ("Refused", 0)
    assert "at most 10 credits" in refused["message"]
    assert "too dear" in refused["message"]
    assert (approved["name"], approved["requests"]) == ("Completed", 10)
    assert flow[0]["unanswered"] == {"name": "NotApproved", "requests": 0}


def test_tasks_are_shards_of_rows(flow):
    """Ten rows in shards of four are three tasks in each run; no task is a single URL."""
    output, _ = flow
    assert sorted(name for name in output["tasks"] if name.startswith("rows ")) == sorted(
        ["rows 0 to 3", "rows 4 to 7", "rows 8 to 9"] * 2
    )


def test_progress_and_summary_are_artifacts(flow):
    """Prefect's web page shows the progress and the summary as artifacts; the summary has a row for each value."""
    output, _ = flow
    artifacts = {(key, kind): data for key, kind, data in output["artifacts"]}
    assert float(artifacts["analyze-progress", "progress"]) == 100
    table = artifacts["analyze-summary", "table"]
    assert {"name": "rows", "value": 10} in (json.loads(table) if isinstance(table, str) else table)


def test_credits_colors_and_report_are_artifacts(flow):
    """Prefect's web page shows the statement, the main colors as a picture, and a link to the report."""
    artifacts = {key: data for key, _, data in flow[0]["artifacts"]}
    assert "paid        10 credits" in artifacts["analyze-statement"]
    assert artifacts["analyze-palette"].startswith("![Main colors](data:image/svg+xml;base64,")
    assert "analyze-tags" not in artifacts
    assert "report.html" in artifacts["analyze-report"]
    assert (flow[1] / "report.html").exists()


def test_deployments_exist():
    """Every entry point of prefect.yaml names a flow in flows/ that takes its parameters."""
    deployments = yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]
    assert deployments
    for deployment in deployments:
        path, _, name = deployment["entrypoint"].partition(":")
        tree = ast.parse((ROOT / path).read_text())
        (function,) = [
            node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name
        ]
        parameters = {argument.arg for argument in function.args.args + function.args.kwonlyargs}
        assert set(deployment["parameters"]) <= parameters
