"""The embedded service has every back end that this machine can use, and calls a provider only if a run names it."""

from __future__ import annotations

import pytest

import lightmeter as lm
from lightmeter.errors import SettingsError
from lightmeter.testing import openai_stub, tiny_jpeg


@pytest.fixture
def picture(tmp_path):
    """Return the path of a small picture."""
    path = tmp_path / "a.jpg"
    path.write_bytes(tiny_jpeg())
    return path


async def test_a_named_provider_is_called(picture, tmp_path, monkeypatch):
    """A run that names a provider whose key is set gets its descriptions, and the plan warns of its charges."""
    monkeypatch.setenv("GEMINI_API_KEY", "of-the-stub")
    with openai_stub(lambda _: "A small picture.") as stub:
        monkeypatch.setenv("GEMINI_BASE_URL", stub.base_url)
        plan = await lm.aio.plan([picture], backends=["gemini"], features=["descriptions"])
        assert any("gemini is a provider" in each for each in plan.advice)
        run = await lm.aio.run(plan, tmp_path / "out")
        requests_before = len(stub.requests)
    assert run.descriptions[["description", "source"]].values.tolist() == [["A small picture.", "gemini"]]
    assert requests_before == 1


async def test_a_key_alone_does_not_call_a_provider(picture, tmp_path, monkeypatch):
    """A run that names no back end uses only local ones, even if provider keys are set."""
    monkeypatch.setenv("OPENAI_API_KEY", "of-the-stub")
    with openai_stub() as stub:
        monkeypatch.setenv("OPENAI_BASE_URL", stub.base_url)
        plan = await lm.aio.plan([picture], features=["descriptions"])
        run = await lm.aio.run(plan, tmp_path / "out")
        requests_before = len(stub.requests)
    assert set(run.descriptions["source"]) == {"template"}
    assert requests_before == 0


async def test_a_provider_without_its_key_ends_the_plan(picture):
    """A plan with a provider whose key is missing raises an error that says so."""
    with pytest.raises(SettingsError, match="OPENAI_API_KEY"):
        await lm.aio.plan([picture], backends=["openai"], features=["descriptions"])


async def test_the_settings_file_adds_a_back_end(picture, tmp_path, monkeypatch):
    """The settings file can add a back end with its price to the embedded service, also under an alias."""
    with openai_stub(lambda _: "My own model says so.") as stub:
        settings = tmp_path / "settings.toml"
        settings.write_text(
            '[backends]\nclaude = "mine"\n[backends.mine]\nkind = "openai-compatible"\n'
            f'base_url = "{stub.base_url}"\nmodel = "m"\nprices = {{ descriptions = 1.5 }}\n'
        )
        monkeypatch.setenv("LIGHTMETER_SETTINGS", str(settings))
        plan = await lm.aio.plan([picture], backends=["claude"], features=["descriptions"])
        assert (plan.credits.low, plan.credits.high) == (2, 2)
        run = await lm.aio.run(plan, tmp_path / "out")
    assert run.descriptions["source"].tolist() == ["mine"]
    assert run.statement().paid == 2
