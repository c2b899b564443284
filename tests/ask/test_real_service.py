"""The project's own service answers a question and charges what was planned."""

from __future__ import annotations

import pytest

import lightmeter as lm
from lightmeter.testing import odd_service, openai_stub
from tests.ask.describer import AGAIN, QUESTION, good


def answered(request):
    """Answer invalidly the first time, and validly the second."""
    (message,) = (each for each in request.body["messages"] if each["role"] == "user")
    prompt = " ".join(part.get("text", "") for part in message["content"])
    return good() if AGAIN in prompt else "a cup, I think"


@pytest.fixture
def service(monkeypatch):
    """The project's service; its back end gemini is a local stub of OpenAI's protocol."""
    monkeypatch.setenv("LIGHTMETER_API_KEY", "mine")
    monkeypatch.setenv("GEMINI_API_KEY", "of-the-stub")
    with openai_stub(answered) as stub:
        monkeypatch.setenv("GEMINI_BASE_URL", stub.base_url)
        with odd_service(key="mine", credits=100, backends=["gemini"]) as base_url:
            yield base_url


async def test_a_question_about_the_sample_images(service, data_server, sample_rows, tmp_path):
    """A long prompt costs two blocks; each image is asked about twice and paid for twice."""
    urls = [f"{data_server}/{row['path']}" for row in sample_rows if row["path"].endswith(".jpg")][:3]
    ask = {**QUESTION, "prompt": "What is it? " * 170}
    plan = await lm.aio.plan(urls, base_url=service, backends=["gemini"], features=["descriptions"], ask=ask)
    assert (plan.credits.low, plan.credits.high) == (2 * len(urls), 4 * len(urls))
    run = await lm.aio.run(plan, tmp_path / "out")
    assert run.answers["what"].tolist() == ["a cup"] * len(urls)
    statement = run.statement()
    assert (statement.paid, statement.balance_after) == (plan.credits.high, 100 - plan.credits.high)
    assert statement.reconciliation.missing == 0
