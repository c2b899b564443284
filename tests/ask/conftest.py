"""Fixtures for runs with a question, against a scripted service."""

from __future__ import annotations

import pytest

import lightmeter as lm
from tests.ask.describer import QUESTION, Describer, serving


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    """Set an API key, ignore the user's settings, and treat charges as final at once."""
    monkeypatch.setenv("LIGHTMETER_API_KEY", "key")
    monkeypatch.setenv("LIGHTMETER_CHARGES_FINAL_S", "0")
    monkeypatch.setenv("LIGHTMETER_SETTINGS", "/dev/null")
    monkeypatch.setenv("LIGHTMETER_STATE_DIR", str(tmp_path / "state"))


@pytest.fixture
def asking(tmp_path):
    """Return a function that asks about some images and returns (run, service, plan)."""

    async def ask(describer, rows=4, out="out", urls=None, **options):
        urls = urls or [f"http://pictures.example/{number}.jpg" for number in range(rows)]
        service = describer if isinstance(describer, Describer) else Describer(describer)
        usual = {"features": ["descriptions"], "backends": ["gemini"], "precheck": False, "ask": QUESTION}
        async with serving(service) as base_url:
            plan = await lm.aio.plan(urls, **{**usual, "base_url": base_url, **options})
            return await lm.aio.run(plan, tmp_path / out), service, plan

    return ask
