"""The Prefect flow `precheck` as a scheduler runs it: states, artifacts, a second run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import lightmeter as lm

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]

SCRIPT = """
import asyncio, json, os, sqlite3, sys
sys.path.insert(0, sys.argv[1])
from precheck import precheck
from prefect.client.orchestration import get_client

async def run(manifest, out):
    state = await precheck(manifest, out, {"max_frames": 2}, return_state=True)
    report = await state.aresult() if state.is_completed() else None
    return {"type": state.type.value, "name": state.name, "message": state.message, "report": report}

async def main():
    folder = sys.argv[2]
    sound = await run(folder + "/sound.txt", folder + "/sound")
    bad = await run(folder + "/bad.txt", folder + "/bad")
    async with get_client() as client:
        found = (await client._client.post("/artifacts/latest/filter", json={})).json()
    artifacts = [(artifact["key"], artifact["type"], artifact["data"]) for artifact in found]
    missing = await run(folder + "/none.txt", folder + "/none")
    with sqlite3.connect(os.environ["PREFECT_HOME"] + "/prefect.db") as db:
        for verb in ("INSERT", "UPDATE"):
            db.execute(f"CREATE TRIGGER no_{verb} BEFORE {verb} ON artifact BEGIN SELECT RAISE(FAIL, 'full'); END")
    no_artifacts = await run(folder + "/sound.txt", folder + "/sound")
    runs = {"sound": sound, "bad": bad, "missing": missing, "no_artifacts": no_artifacts}
    print(json.dumps({**runs, "artifacts": artifacts}))

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def flow(environment, data_server, sample_rows, tmp_path_factory):
    """Runs of the flow: sound rows, rows with errors, no manifest, and no artifacts; the last element is the folder."""
    folder = tmp_path_factory.mktemp("precheck")
    urls = [f"{data_server}/{row['path']}" for row in sample_rows if row["kind"] == "image"][:3]
    (folder / "sound.txt").write_text("\n".join(urls))
    (folder / "bad.txt").write_text("\n".join([*urls, f"{data_server}/none.jpg", f"{data_server}/manifest.csv"]))
    keyless = {name: value for name, value in environment.items() if name != "LIGHTMETER_API_KEY"}
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, ROOT / "flows", folder],
        env={**keyless, "PREFECT_HOME": str(folder / "prefect"), "PREFECT_LOGGING_LEVEL": "WARNING"},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1]), folder


def test_states_say_what_the_check_found(flow):
    """Sound rows complete the flow; rows to skip complete it as `RowsSkipped`; a missing manifest fails it."""
    output, folder = flow
    assert (output["sound"]["type"], output["sound"]["name"]) == ("COMPLETED", "Completed")
    assert output["sound"]["report"]["pending"] == 3
    bad = output["bad"]
    assert (bad["type"], bad["name"]) == ("COMPLETED", "RowsSkipped")
    assert (bad["report"]["pending"], bad["report"]["skipped"]) == (3, 2)
    assert "3 can be sent, 2 to skip: 1 reach, 1 type" in bad["message"]
    assert len(lm.open(folder / "bad").assets) == 5
    assert (output["missing"]["type"], output["missing"]["name"]) == ("FAILED", "Failed")
    assert "none.txt" in output["missing"]["message"]
    assert output["no_artifacts"]["type"] == "COMPLETED"


def test_the_summary_is_an_artifact(flow):
    """Prefect's web page shows the rows by outcome, and the findings with an example."""
    artifacts = {(key, kind): data for key, kind, data in flow[0]["artifacts"]}
    table = artifacts["precheck-summary", "table"]
    rows = {row["name"]: row for row in (json.loads(table) if isinstance(table, str) else table)}
    assert (rows["rows"]["rows"], rows["skipped"]["rows"]) == (5, 2)
    assert rows["reach (error)"]["rows"] == 1
    assert "HTTP 404" in rows["reach (error)"]["example"]


@pytest.mark.sweep
def test_the_deployment_runs_on_a_worker(prefect, deployed, data_server, sample_rows, tmp_path):
    """A worker runs the deployment of prefect.yaml to its end."""
    assert deployed.returncode == 0, deployed.stdout + deployed.stderr
    (tmp_path / "m.txt").write_text(f"{data_server}/{sample_rows[0]['path']}")
    run = prefect.start_run("precheck/before-nightly", manifest=str(tmp_path / "m.txt"), out=str(tmp_path / "out"))
    assert prefect.wait_until_final(run)["type"] == "COMPLETED"
    assert lm.open(tmp_path / "out").summary().rows == 1
