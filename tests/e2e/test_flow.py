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
import asyncio, json, sys
sys.path.insert(0, sys.argv[1])
from analyze import analyze
from prefect.client.orchestration import get_client
from prefect.client.schemas.sorting import TaskRunSort

async def main():
    manifest, out = sys.argv[2:4]
    first = await analyze(manifest, out, {"features": ["colors"], "budget": 5}, shard_rows=4)
    again = await analyze(manifest, out, {"features": ["colors"], "budget": 50}, shard_rows=4)
    async with get_client() as client:
        tasks = [task.name for task in await client.read_task_runs(limit=100, sort=TaskRunSort.NAME_ASC)]
        # Prefect's own reader of artifacts sends nulls that its server refuses; the endpoint itself is well.
        found = (await client._client.post("/artifacts/latest/filter", json={})).json()
        artifacts = [(artifact["key"], artifact["type"], artifact["data"]) for artifact in found]
    print(json.dumps({"first": first, "again": again, "tasks": tasks, "artifacts": artifacts}))

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def flow(environment, data_server, sample_rows, tmp_path_factory):
    """Two runs of the flow into one folder, the second with a higher budget."""
    folder = tmp_path_factory.mktemp("flow")
    urls = [f"{data_server}/{row['path']}" for row in sample_rows if row["kind"] == "image"][:10]
    (folder / "manifest.txt").write_text("\n".join(urls))
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, ROOT / "flows", folder / "manifest.txt", folder / "out"],
        env={**environment, "PREFECT_HOME": str(folder / "prefect"), "PREFECT_LOGGING_LEVEL": "WARNING"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1]), folder / "out"


def test_the_flow_stops_at_its_budget_and_continues(flow):
    """A flow can end over budget; a second run with a larger budget pays only for the remaining rows."""
    output, out = flow
    assert (output["first"]["ok"], output["first"]["over_budget"]) == (5, 5)
    assert (output["again"]["ok"], output["again"]["credits"]["paid"]) == (10, 10)
    assert output["again"]["requests"] == 10
    assert len(lm.open(out).assets) == 10


def test_tasks_are_shards_of_rows(flow):
    """Ten rows in shards of four are three tasks in each run; no task is a single URL."""
    output, _ = flow
    assert sorted(name for name in output["tasks"] if name.startswith("rows ")) == sorted(
        ["rows 0 to 3", "rows 4 to 7", "rows 8 to 9"] * 2
    )


def test_progress_and_summary_are_artifacts(flow):
    """Prefect's web page shows the progress and the summary as artifacts."""
    output, _ = flow
    artifacts = {(key, kind): data for key, kind, data in output["artifacts"]}
    assert float(artifacts["analyze-progress", "progress"]) == 100
    table = artifacts["analyze-summary", "table"]
    assert ["rows", 10] in (json.loads(table) if isinstance(table, str) else table)


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
