"""A real run of a few sample files through the real embedded service, made once."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

import lightmeter as lm

DATA = Path(__file__).parents[2] / "data"
IDS = ("chelsea", "coffee", "samoyed")
EVIL = '<img src=x onerror="alert(1)">'


@pytest.fixture(scope="session", autouse=True)
def _own_settings(tmp_path_factory):
    """Whatever service the user's environment names, these tests start the embedded one, with a cache of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("LIGHTMETER_BASE_URL", raising=False)
        patch.setenv("LIGHTMETER_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def manifest(tmp_path_factory) -> Path:
    """Two photographs and a clip, one of them again, and one that is not there and is called like markup."""
    with (DATA / "manifest.csv").open(encoding="utf-8", newline="") as lines:
        rows = {row["id"]: row for row in csv.DictReader(lines)}
    told = [{"id": name, "path": str(DATA / rows[name]["path"]), "subject": rows[name]["subject"]} for name in IDS]
    told.append({**told[0], "id": "again"})
    told.append({"id": EVIL, "path": f"{EVIL.replace('/', '')}.jpg", "subject": EVIL})
    path = tmp_path_factory.mktemp("manifest") / "few.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in told), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def planner(manifest, tmp_path_factory) -> lm.BudgetPlanner:
    """A planner that has planned and run that manifest; nobody changes it."""
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
