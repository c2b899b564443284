"""A prompt or question that no back end would follow is refused before anything is priced."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import lightmeter as lm
from lightmeter.errors import SettingsError
from lightmeter.testing import odd_service, openai_stub, tiny_jpeg

ASK = {
    "name": "what",
    "prompt": "What is it?",
    "schema": {"type": "object", "properties": {"what": {"type": "string"}}},
}
DESCRIBED = {"features": ["descriptions"]}


@pytest.fixture
def picture(tmp_path, monkeypatch):
    """Return the path of a small picture. No provider has a key."""
    monkeypatch.setenv("LIGHTMETER_SETTINGS", os.devnull)
    monkeypatch.setenv("LIGHTMETER_API_KEY", "mine")
    for name in ("GEMINI_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "a.jpg"
    path.write_bytes(tiny_jpeg())
    return path


@pytest.mark.parametrize(
    "options",
    [
        {"ask": ASK},
        {"ask": ASK, "backends": ["template", "imagenet"], "features": ["tags"]},
        {"ask": ASK, "backends": ["template"], "max_frames": 1},
        {"prompt": "Count the cups.", **DESCRIBED},
        {"prompt": "Count the cups.", "backends": ["template"]},
        {"prompt": "Count the cups.", "backends": ["imagenet"], "features": ["tags"]},
    ],
    ids=str,
)
async def test_local_back_ends_answer_no_question(picture, options):
    """Where only back ends that ignore prompts describe pictures, the plan is refused and says what to name."""
    with pytest.raises(SettingsError, match=r"^(ask|prompt): ") as refused:
        await lm.aio.plan([picture], **options)
    assert "gemini" in refused.value.hint
    assert refused.value.exit_code == 2


@pytest.mark.parametrize("options", [{"prompt": ""}, {"prompt": "  "}, {"role": "critic"}, {"language": "German"}])
async def test_what_is_no_prompt_is_planned(picture, options):
    """An empty prompt, a role and a language are planned with any back end."""
    plan = await lm.aio.plan([picture], **DESCRIBED, **options)
    assert plan.counts["pending"] == 1


async def test_the_stream_refuses_too(picture, tmp_path):
    """A run that spends while it reads is refused before it sends anything."""
    with pytest.raises(SettingsError, match="ask: template"):
        await lm.aio.run([picture], tmp_path / "out", ask=ASK, budget=5, stream=True)


def test_the_command_exits_with_2(picture, tmp_path):
    """The command line names the option, the back end and the way out."""
    question = tmp_path / "q.json"
    question.write_text(json.dumps(ASK))
    command = [sys.executable, "-m", "lightmeter", "plan", str(picture), "--ask", str(question)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "template cannot answer a question" in ended.stderr
    assert "gemini" in ended.stderr


async def test_a_provider_beside_template(picture, monkeypatch):
    """Beside a provider, `template` may describe pictures by itself, but is not asked a question."""
    monkeypatch.setenv("GEMINI_API_KEY", "of-the-stub")
    with openai_stub() as stub:
        monkeypatch.setenv("GEMINI_BASE_URL", stub.base_url)
        both = {"backends": ["template", "gemini"], **DESCRIBED}
        await lm.aio.plan([picture], prompt="Count the cups.", **both)
        with pytest.raises(SettingsError, match="ask: template cannot") as refused:
            await lm.aio.plan([picture], ask=ASK, **both)
        assert "--backends gemini" in refused.value.hint
        await lm.aio.plan([picture], ask=ASK, backends=["gemini", "imagenet"])


async def test_another_service_says_which_back_ends_follow_prompts(picture, monkeypatch):
    """The list of another service's back ends decides for that service."""
    with (
        odd_service(key="mine", credits=100, backends=["template"]) as base_url,
        pytest.raises(SettingsError, match="ask: template cannot"),
    ):
        await lm.aio.plan([picture], base_url=base_url, ask=ASK, upload="always")
