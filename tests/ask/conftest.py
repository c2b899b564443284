"""Runs that ask a question of their own, against a service that says what it is told to."""

from __future__ import annotations

import pytest

import lightmeter as lm
from tests.ask.describer import QUESTION, Describer, serving


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    """A key, no settings of the user's own, and a service that charges at once what it charges."""
    monkeypatch.setenv("LIGHTMETER_API_KEY", "key")
    monkeypatch.setenv("LIGHTMETER_CHARGES_FINAL_S", "0")
    monkeypatch.setenv("LIGHTMETER_SETTINGS", str(tmp_path / "none.toml"))
    monkeypatch.setenv("LIGHTMETER_STATE_DIR", str(tmp_path / "state"))


@pytest.fixture
def asking(tmp_path):
    """Ask about some pictures; returns (the run, the service, the plan)."""

    async def ask(describer, rows=4, out="out", urls=None, **options):
        urls = urls or [f"http://pictures.example/{number}.jpg" for number in range(rows)]
        told = describer if isinstance(describer, Describer) else Describer(describer)
        usual = {"features": ["descriptions"], "backends": ["gemini"], "precheck": False, "ask": QUESTION}
        async with serving(told) as base_url:
            plan = await lm.plan(urls, **{**usual, "base_url": base_url, **options})
            return await lm.run(plan, tmp_path / out), told, plan

    return ask
