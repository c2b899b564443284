"""Runs against a service that behaves badly."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # tests are no package; this is how they share a module

from hostile import Hostile, listening

import lightmeter as lm


@pytest.fixture
def charges_at_once(tmp_path, monkeypatch):
    """A key, no settings of the user's own, and a service that charges at once what it charges."""
    monkeypatch.setenv("LIGHTMETER_API_KEY", "key")
    monkeypatch.setenv("LIGHTMETER_CHARGES_FINAL_S", "0")
    monkeypatch.setenv("LIGHTMETER_SETTINGS", str(tmp_path / "none.toml"))
    monkeypatch.setenv("LIGHTMETER_STATE_DIR", str(tmp_path / "state"))


@pytest.fixture
def try_out(tmp_path, charges_at_once):
    """Run a list of URLs against a script; returns (the run, the service's books)."""

    async def run(script, rows=6, **options):
        hostile = script if isinstance(script, Hostile) else Hostile(script)
        urls = [f"http://pictures.example/{number}.jpg" for number in range(rows)]
        async with listening(hostile) as base_url:
            plan = await lm.plan(
                urls,
                **{"features": ["tags"], "backends": ["clarifai"], "precheck": False, "base_url": base_url, **options},
            )
            return await lm.run(plan, tmp_path / "out"), hostile

    return run
