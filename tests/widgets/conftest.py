"""Fixtures: one run of a few sample files through the embedded service."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

import lightmeter as lm

DATA = Path(__file__).parents[2] / "data"
IDS = ("chelsea", "coffee", "samoyed")
HTML_NAME = '<img src=x onerror="alert(1)">'


@pytest.fixture(scope="session", autouse=True)
def _isolated_settings(tmp_path_factory):
    """These tests use the embedded service and a separate cache, whatever the user's environment says."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("LIGHTMETER_BASE_URL", raising=False)
        patch.setenv("LIGHTMETER_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def manifest(tmp_path_factory) -> Path:
    """Two photographs and a video, a duplicate of one, and a missing file whose name is HTML markup."""
    with (DATA / "manifest.csv").open(encoding="utf-8", newline="") as lines:
        rows = {row["id"]: row for row in csv.DictReader(lines)}
    selected = [{"id": name, "path": str(DATA / rows[name]["path"]), "subject": rows[name]["subject"]} for name in IDS]
    selected.append({**selected[0], "id": "again"})
    selected.append({"id": HTML_NAME, "path": f"{HTML_NAME.replace('/', '')}.jpg", "subject": HTML_NAME})
    path = tmp_path_factory.mktemp("manifest") / "few.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in selected), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def planner(manifest, tmp_path_factory) -> lm.BudgetPlanner:
    """A planner that has planned and run that manifest; tests do not change it."""
    out = tmp_path_factory.mktemp("runs") / "out"
    planner = lm.BudgetPlanner(manifest, out=out, features=["tags", "nsfw", "colors"], max_frames=2, budget=50)
    planner.plan().result()
    planner.run().result()
    return planner


@pytest.fixture(scope="session")
def run(planner) -> lm.Run:
    """The run of that planner."""
    assert planner.result is not None
    return planner.result
