"""The Prefect flows as a scheduler runs them: shards, a second run after a stop, states, artifacts."""

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
from precheck import precheck
from prefect.client.orchestration import get_client
from prefect.client.schemas.sorting import TaskRunSort
import lightmeter as lm
from lightmeter.prefect_integration import events

sent, send_to_prefect = [], events.send_to_prefect

def send(name, resource, payload):
    sent.append([name, payload])
    send_to_prefect(name, resource, payload=payload)

events.send_to_prefect = send

async def run(manifest, out, **options):
    state = await analyze(manifest, out, {"features": ["colors"], **options}, shard_rows=4, return_state=True)
    summary = lm.open(out).summary().to_dict()
    return {"type": state.type.value, "name": state.name, "message": state.message, "summary": summary}

async def check(manifest, out):
    state = await precheck(manifest, out, {"max_frames": 2}, return_state=True)
    report = await state.aresult() if state.is_completed() else None
    return {"type": state.type.value, "name": state.name, "message": state.message, "report": report}

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
    folder = sys.argv[2]
    manifest, out = folder + "/manifest.txt", folder + "/out"
    first = await run(manifest, out, budget=5)
    again = await run(manifest, out, budget=50)
    async with get_client() as client:
        ran = await tasks(client)
        sound = await check(folder + "/sound.txt", folder + "/sound")
        bad = await check(folder + "/bad.txt", folder + "/bad")
        # Prefect's own reader of artifacts sends nulls that its server refuses; the endpoint itself is well.
        found = (await client._client.post("/artifacts/latest/filter", json={})).json()
        artifacts = [(artifact["key"], artifact["type"], artifact["data"]) for artifact in found]
        missing = await check(folder + "/none.txt", folder + "/none")
        refused = await answered(manifest, out + "-asked", approve=False, reason="too dear")
        approved = await answered(manifest, out + "-asked", approve=True)
        asked = {"approve_above": 4, "approval_hours": 0.001, "return_state": True}
        unanswered = await analyze(manifest, out + "-late", {"features": ["colors"]}, **asked)
        unanswered = {"name": unanswered.name, "requests": lm.open(out + "-late").summary().requests}
        at = len(sent)
        options = {"features": ["colors"], "budget": 50}
        streamed = await analyze(manifest, out + "-stream", options, stream=True, **asked)
        streamed = {"name": streamed.name, "events": sent[at:]}
        ran_before = await tasks(client)
        keyless = await run(manifest, out, base_url="http://127.0.0.1:9")
        keyless["tasks"] = len(await tasks(client)) - len(ran_before)
        with sqlite3.connect(os.environ["PREFECT_HOME"] + "/prefect.db") as db:
            for verb in ("INSERT", "UPDATE"):
                db.execute(f"CREATE TRIGGER no_{verb} BEFORE {verb} ON artifact BEGIN SELECT RAISE(FAIL, 'full'); END")
        no_artifacts = [await run(manifest, out, budget=50), await check(folder + "/sound.txt", folder + "/sound")]
    runs = {"first": first, "again": again, "keyless": keyless, "no_artifacts": no_artifacts}
    runs |= {"refused": refused, "approved": approved, "unanswered": unanswered, "streamed": streamed}
    runs |= {"sound": sound, "bad": bad, "missing": missing}
    print(json.dumps({**runs, "tasks": ran, "artifacts": artifacts, "events": sent}))

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def flows(environment, data_server, sample_rows, tmp_path_factory):
    """Runs of the flows in one process, and their folder.

    `analyze` runs with a small budget, a large one, no key, and no artifacts; `precheck` runs on sound rows, on rows
    with errors, without a manifest, and without artifacts.
    """
    folder = tmp_path_factory.mktemp("flow")
    urls = [f"{data_server}/{row['path']}" for row in sample_rows if row["kind"] == "image"][:10]
    (folder / "manifest.txt").write_text("\n".join(urls))
    (folder / "sound.txt").write_text("\n".join(urls[:3]))
    (folder / "bad.txt").write_text("\n".join([*urls[:3], f"{data_server}/none.jpg", f"{data_server}/manifest.csv"]))
    prefect = {
        "PREFECT_HOME": str(folder / "prefect"),
        "PREFECT_LOGGING_LEVEL": "WARNING",
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "600",  # the machine may be busy
    }
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, ROOT / "flows", folder],
        env={**environment, **prefect},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1]), folder, ended.stderr


def test_a_flow_over_budget_fails_and_continues_with_a_larger_one(flows):
    """A flow over budget ends in a failed state with the next command; a larger budget pays for the other rows only."""
    output, folder, _ = flows
    first, again = output["first"], output["again"]
    assert (first["summary"]["ok"], first["summary"]["over_budget"]) == (5, 5)
    assert (first["type"], first["name"]) == ("FAILED", "OverBudget")
    assert "lightmeter resume" in first["message"]
    assert (again["type"], again["name"]) == ("COMPLETED", "Completed")
    assert (again["summary"]["ok"], again["summary"]["credits"]["paid"]) == (10, 10)
    assert again["summary"]["requests"] == 10
    assert len(lm.open(folder / "out").assets) == 10


def test_a_missing_key_fails_before_planning(flows):
    """Without a key the flow ends in its first task, and its state says what to set."""
    keyless = flows[0]["keyless"]
    assert (keyless["type"], keyless["name"], keyless["tasks"]) == ("FAILED", "NotPlanned", 1)
    assert "LIGHTMETER_API_KEY" in keyless["message"]


def test_a_flow_completes_without_artifacts(flows):
    """A server that cannot store artifacts fails no flow."""
    assert [flow["type"] for flow in flows[0]["no_artifacts"]] == ["COMPLETED"] * 2


def test_a_price_above_the_limit_needs_approval(flows):
    """A run whose price a person refuses, or nobody approves in time, sends nothing and says so; approved, it runs."""
    refused, approved = flows[0]["refused"], flows[0]["approved"]
    assert (refused["name"], refused["requests"]) == ("Refused", 0)
    assert "at most 10 credits" in refused["message"]
    assert "too dear" in refused["message"]
    assert (approved["name"], approved["requests"]) == ("Completed", 10)
    assert flows[0]["unanswered"] == {"name": "NotApproved", "requests": 0}


def test_a_flow_that_streams_says_that_it_waits_for_approval(flows):
    """The event that calls for approval is sent also where the manifest is read while it is sent."""
    assert flows[0]["streamed"]["name"] == "NotApproved"
    name, payload = flows[0]["streamed"]["events"][0]
    assert name == "lightmeter.run.approval_required"
    assert (payload["rows"], payload["approve_above"]) == (None, 4)


def test_tasks_are_shards_of_rows(flows):
    """Ten rows in shards of four are three tasks in each run; no task is a single URL."""
    output = flows[0]
    assert sorted(name for name in output["tasks"] if name.startswith("rows ")) == sorted(
        ["rows 0 to 3", "rows 4 to 7", "rows 8 to 9"] * 2
    )


def test_each_failed_night_sends_an_event(flows):
    """A run that is over budget, not planned, refused or not approved sends one event with the name of its state."""
    failed = [payload["state"] for name, payload in flows[0]["events"] if name == "lightmeter.run.failed"]
    assert failed == ["OverBudget", "Refused", "NotApproved", "NotApproved", "NotPlanned"]


def test_a_flow_run_reports_what_it_spent_itself(flows):
    """The second flow run of a run counts its own credits and requests; one that sends nothing counts none."""
    ended = [payload for name, payload in flows[0]["events"] if name == "lightmeter.run.completed"]
    now = [(payload["paid_now"], payload["requests_now"], payload["paid"]) for payload in ended]
    assert now == [(5, 5, 10), (10, 10, 10), (0, 0, 10)]


def test_an_expected_failure_logs_no_traceback(flows):
    """What keeps a run from being planned is a message in the log, and no traceback."""
    assert "lightmeter.errors." not in flows[2]


def test_progress_and_summary_are_artifacts(flows):
    """Prefect's web page shows the progress and the summary as artifacts; the summary has a row for each value."""
    output = flows[0]
    artifacts = {(key, kind): data for key, kind, data in output["artifacts"]}
    assert float(artifacts["analyze-progress", "progress"]) == 100
    table = artifacts["analyze-summary", "table"]
    rows = json.loads(table) if isinstance(table, str) else table
    assert [row["value"] for row in rows[:3]] == [5, 5, 10]
    assert {"name": "paid (run's total)", "value": 10} in rows


def test_states_say_what_the_check_found(flows):
    """Sound rows complete the flow; rows to skip complete it as `RowsSkipped`; a missing manifest fails it."""
    output, folder, _ = flows
    assert (output["sound"]["type"], output["sound"]["name"]) == ("COMPLETED", "Completed")
    assert output["sound"]["report"]["pending"] == 3
    bad = output["bad"]
    assert (bad["type"], bad["name"]) == ("COMPLETED", "RowsSkipped")
    assert (bad["report"]["pending"], bad["report"]["skipped"]) == (3, 2)
    assert "3 can be sent, 2 to skip: 1 reach, 1 type" in bad["message"]
    assert len(lm.open(folder / "bad").assets) == 5
    assert (output["missing"]["type"], output["missing"]["name"]) == ("FAILED", "Failed")
    assert "none.txt" in output["missing"]["message"]


def test_the_summary_of_a_check_is_an_artifact(flows):
    """Prefect's web page shows the rows by outcome, and the findings with an example."""
    artifacts = {(key, kind): data for key, kind, data in flows[0]["artifacts"]}
    table = artifacts["precheck-summary", "table"]
    rows = {row["name"]: row for row in (json.loads(table) if isinstance(table, str) else table)}
    assert (rows["rows"]["rows"], rows["skipped"]["rows"]) == (5, 2)
    assert rows["reach (error)"]["rows"] == 1
    assert "HTTP 404" in rows["reach (error)"]["example"]


def test_credits_colors_and_report_are_artifacts(flows):
    """Prefect's web page shows the statement, the main colors as a picture, and a link to the report."""
    artifacts = {key: data for key, _, data in flows[0]["artifacts"]}
    assert "paid        10 credits" in artifacts["analyze-statement"]
    assert artifacts["analyze-palette"].startswith("![Main colors](data:image/svg+xml;base64,")
    assert "analyze-tags" not in artifacts
    assert "report.html" in artifacts["analyze-report"]
    assert (flows[1] / "out" / "report.html").exists()


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
