"""A flow with the task runner of prefect-dask checks rows on the cluster of that runner."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.sweep

FLOW = """
import json, os, sys
import lightmeter as lm
from lightmeter.scale_out.executors import open_executor
from prefect import flow
from prefect.context import FlowRunContext
from prefect_dask import DaskTaskRunner

def process_id(_shard):
    return os.getpid()

@flow(task_runner=DaskTaskRunner(cluster_kwargs={"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}))
async def check(manifest):
    client = FlowRunContext.get().task_runner.client
    with open_executor(client) as executor:
        pids = sorted({pid for pid in executor.map(process_id, range(8)) if pid})
    report = await lm.check(manifest, executor=client, shard_rows=10, reuse=False)
    return {"own": os.getpid(), "pids": pids, "counts": report.counts, "client": client.status}

if __name__ == "__main__":
    import asyncio
    print(json.dumps(asyncio.run(check(sys.argv[1]))))
"""


def test_the_cluster_of_the_task_runner_checks_the_rows(manifest, tmp_path, environment):
    """The client of the `DaskTaskRunner` is an executor, and stays open."""
    pytest.importorskip("prefect_dask")
    (tmp_path / "flow.py").write_text(FLOW)
    own = {
        **environment,
        "PREFECT_HOME": str(tmp_path / "prefect"),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "240",
    }
    command = [sys.executable, str(tmp_path / "flow.py"), str(manifest)]
    ended = subprocess.run(command, env=own, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    found = json.loads(ended.stdout.splitlines()[-1])
    assert found["client"] == "running"
    assert found["own"] not in found["pids"]
    assert 1 <= len(found["pids"]) <= 2
    assert found["counts"]["skipped"] == 3
