"""The real service answers a question as any other service of the contract does, and charges what was planned."""

from __future__ import annotations

import pytest
from describer import QUESTION

import lightmeter as lm
from lightmeter.service.backends import registry
from lightmeter.testing import odd_service


@pytest.fixture
def service(monkeypatch):
    """Our service, with a back end that describes."""
    monkeypatch.setitem(registry.BUILTIN, "gemini", "describing_backend:Gemini")
    registry._known.cache_clear()
    monkeypatch.setenv("LIGHTMETER_API_KEY", "mine")
    with odd_service(key="mine", credits=100, backends=["gemini"]) as base_url:
        yield base_url
    registry._known.cache_clear()


async def test_the_sample_pictures_are_asked_about(service, data_server, sample_rows, tmp_path):
    """A long prompt costs two blocks; each picture is asked about twice, in another prompt, and paid for twice."""
    urls = [f"{data_server}/{row['path']}" for row in sample_rows if row["path"].endswith(".jpg")][:3]
    ask = {**QUESTION, "prompt": "What is it? " * 170}
    plan = await lm.plan(urls, base_url=service, backends=["gemini"], features=["descriptions"], ask=ask)
    assert (plan.credits.low, plan.credits.high) == (2 * len(urls), 4 * len(urls))
    run = await lm.run(plan, tmp_path / "out")
    assert run.answers["what"].tolist() == ["a cup"] * len(urls)
    statement = run.statement()
    assert (statement.paid, statement.balance_after) == (plan.credits.high, 100 - plan.credits.high)
    assert statement.balances.missing == 0
