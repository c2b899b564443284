"""Prefect repeats nothing that spends: no retries and no caches around it, whatever its settings say."""

from __future__ import annotations

import json
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import yaml

from lightmeter import prefect_integration
from tests.prefect_integration.flow_modules import FLOWS

ROOT = Path(__file__).resolve().parents[2]
FREE_TASKS = {"check_rows"}
"""Tasks that may have retries, because they never send anything to an analysis service."""

LIST_TASKS = """
import json, sys
from prefect import Flow, Task
from prefect.cache_policies import NO_CACHE
import importlib
from tests.prefect_integration.flow_modules import FLOWS, load_flow
modules = [load_flow(path.stem) for path in FLOWS] + [importlib.import_module(name) for name in sys.argv[1:]]
objects = {id(one): one for module in modules for one in vars(module).values() if isinstance(one, Task | Flow)}
print(json.dumps([
    {"name": one.name, "task": isinstance(one, Task), "retries": one.retries,
     "cached": isinstance(one, Task) and (one.cache_policy is not NO_CACHE or one.cache_key_fn is not None)}
    for one in objects.values()
]))
"""


def test_nothing_that_spends_is_repeated_by_prefect():
    """No task or flow but those that never spend has retries or a cache, even if Prefect's defaults have."""
    package = "lightmeter.prefect_integration"
    names = [module.name for module in pkgutil.iter_modules(prefect_integration.__path__, f"{package}.")]
    environment = {
        **os.environ,
        "PREFECT_TASKS_DEFAULT_RETRIES": "3",
        "PREFECT_FLOWS_DEFAULT_RETRIES": "3",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
    }
    ended = subprocess.run(
        [sys.executable, "-c", LIST_TASKS, *names], env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    found = [one for one in json.loads(ended.stdout.splitlines()[-1]) if one["name"] not in FREE_TASKS]
    assert {"analyze", "make_plan", "wait_for_rows"} <= {one["name"] for one in found}
    assert [one for one in found if one["cached"]] == []
    assert [one for one in found if one["retries"] and (one["task"] or one["name"] == "analyze")] == []


def test_deployments_that_spend_run_one_at_a_time():
    """Each deployment of `analyze` has a concurrency limit of 1, and further runs wait."""
    deployments = yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]
    spending = [one for one in deployments if one["entrypoint"] == "flows/analyze.py:analyze"]
    assert spending
    for one in spending:
        assert one["concurrency_limit"] == {"limit": 1, "collision_strategy": "ENQUEUE"}


def test_every_flow_is_looked_at():
    """The flows of the scheduler are the files in `flows/`."""
    deployments = yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]
    assert {one["entrypoint"].partition(":")[0] for one in deployments} <= {f"flows/{path.name}" for path in FLOWS}
