"""The requests of the public clients of this contract work unchanged."""

from __future__ import annotations

import asyncio
import json
import re

import pytest

from lightmeter.testing import openai_stub


async def test_the_browser_extension(calling, full_service, encoded):
    """The browser extension sends a data URI in a list, an empty prompt and a tag score."""
    caller = await calling(full_service)
    answered = await caller.ask(
        file=[f"data:image/png;base64,{encoded()}"],
        feature=["tags", "nsfw"],
        backend=["imagenet", "opennsfw"],
        tag_score=0.85,
        role="general",
        language="English",
        prompt="",
    )
    assert (answered.status, answered.body["status"], answered.body["tag_score"]) == (200, "completed", 0.85)
    assert not answered.body["prompt"]


async def test_the_cms_plugin(caller, encoded):
    """The CMS plugin checks its key with an empty object, then uploads a file and polls its response_uri."""
    headers = {"Content-Type": "application/json;charset=utf-8"}
    check = await caller.send("POST", "/api/fetch", data=b"{}", headers=headers)
    assert check.body["error"] == "File/URL params are required."
    body = json.dumps({"file": [encoded(1), encoded(2)], "file_name": ["a.png", "b.png"]}).encode()
    answered = (await caller.send("POST", "/api/fetch", data=body, headers=headers)).body
    for _ in range(200):
        async with caller.session.get(answered["response_uri"], headers=caller.headers) as polled:
            answered = {**answered, **await polled.json()}
        if answered["status"] in {"completed", "failed"}:
            break
        await asyncio.sleep(0.05)
    assert answered["status"] == "completed"
    assert [asset["name"] for asset in answered["all"]["assets"]] == ["a.png", "b.png"]


async def test_the_design_tool_plugin(caller, site):
    """The design tool plugin sends ten images in one request, and matches results by name."""
    urls = [site.url(f"picture/{seed}.png") for seed in range(10)]
    done = await caller.finished(await caller.ask(url=urls))
    by_name = {asset["name"]: asset for asset in done["all"]["assets"]}
    assert by_name.keys() == set(urls)
    assert all(asset["colors"] for asset in by_name.values())


async def test_the_documented_sample_loop(caller, site):
    """The documented sample loop polls response_uri until the status is completed or failed."""

    async def sample(**fields):
        answer = (await caller.ask(**fields)).body
        for _ in range(200):
            if answer["status"] == "completed":
                return answer["all"]
            assert answer["status"] != "failed", answer["error"]
            uri = answer.get("response_uri", answer.get("request_id"))
            async with caller.session.get(uri, headers=caller.headers) as polled:
                answer = {"response_uri": uri, **await polled.json()}
            await asyncio.sleep(0.05)
        return None

    assert len((await sample(url=site.url("picture/1.png")))["assets"]) == 1
    assert len((await sample(url=site.url("video/tiny.avi")))["assets"]) == 1


async def test_our_own_client_is_satisfied(service, caller, site):
    """The toolkit's client reads a balance, an image, a batch and a video."""
    from lightmeter.client.client import Client  # noqa: PLC0415 (the other wing: only this test brings them together)

    key = caller.headers["X-API-Key"].removeprefix("Token ")
    async with Client(service.base_url, key) as client:
        assert await client.credits() == 1000
        image = await client.analyze(urls=[site.url("picture/1.png")])
        batch = await client.analyze(urls=[site.url("picture/1.png"), site.url("picture/2.png")])
        video = await client.analyze(urls=[site.url("video/tiny.avi")])
    assert [len(answer.all.assets) for answer in (image, batch, video)] == [1, 2, 1]
    assert video.all.assets[0].frames[2].time == 2.0
    assert video.credits == 1000 - 1 - 2 - 3


PROVIDERS = {"gemini": "GEMINI", "openai": "OPENAI", "grok": "XAI", "jinaai": "JINA"}


@pytest.fixture
async def described(starting, calling, monkeypatch):
    """A service whose providers are a stub on loopback that returns the name of the model."""
    with openai_stub(lambda request: f"Seen by {request.body['model']}.") as stub:
        for variable in PROVIDERS.values():
            monkeypatch.setenv(f"{variable}_API_KEY", "of-the-stub")
            monkeypatch.setenv(f"{variable}_BASE_URL", stub.base_url)
        monkeypatch.setenv("OLLAMA_HOST", stub.origin)
        names = (*PROVIDERS, "llava", "bakllava", "palette")
        yield await calling(await starting(backends=names, allow_private=True))


def sources(asset):
    return [entry["source"] for entry in asset["descriptions"]]


async def test_the_browser_extension_gets_a_description(described, encoded):
    """A data URI, a back end by a provider's name, a role and a language: one description, signed by that provider."""
    answered = await described.ask(
        file=[f"data:image/png;base64,{encoded()}"],
        feature=["descriptions"],
        backend=["gemini"],
        tag_score=0.85,
        role="alttext",
        language="German",
        prompt="",
    )
    body = answered.body
    (asset,) = body["all"]["assets"]
    assert (body["status"], body["all"]["errors"], body["credits_paid"]) == ("completed", [], 1)
    assert sources(asset) == ["gemini"]
    assert asset["descriptions"][0]["description"].startswith("Seen by gemini")


async def test_the_cms_plugin_gets_descriptions(described, encoded):
    """Files that are polled for, and a provider: each asset has its description."""
    body = {"file": [encoded(1), encoded(2)], "file_name": ["a.png", "b.png"], "feature": "descriptions"}
    done = await described.finished(await described.ask(**body, backend="openai"))
    assert [(asset["name"], sources(asset)) for asset in done["all"]["assets"]] == [
        ("a.png", ["openai"]),
        ("b.png", ["openai"]),
    ]
    assert done["credits_paid"] == 4


async def test_the_design_tool_plugin_gets_descriptions(described, site):
    """Ten images in one call through a provider: each is described, and found by its name."""
    urls = [site.url(f"picture/{seed}.png") for seed in range(10)]
    body = {"url": urls, "backend": ["llava"], "feature": ["descriptions"]}
    done = await described.finished(await described.ask(**body))
    by_name = {asset["name"]: sources(asset) for asset in done["all"]["assets"]}
    assert by_name == {url: ["llava"] for url in urls}


async def test_the_sample_loop_gets_all_providers(described, site):
    """Several providers by name in one request: one description of each, and the sum of their prices."""
    names = [*PROVIDERS, "llava", "bakllava"]
    body = (await described.ask(url=site.url("picture/1.png"), backend=names, feature=["descriptions"])).body
    (asset,) = body["all"]["assets"]
    assert (body["status"], body["all"]["errors"], body["credits_paid"]) == ("completed", [], 8)
    assert sorted(sources(asset)) == sorted(names)


async def test_a_provider_without_a_key_is_a_sentence_beside_the_others(described, encoded):
    """Where one provider has no key, its client reads why, and the others answer."""
    body = (await described.ask(file=encoded(), backend=["claude", "gemini"], feature=["descriptions"])).body
    assert body["all"]["errors"] == [
        "Back end claude is not available at this service. Its key is not set: set ANTHROPIC_API_KEY."
    ]
    assert sources(body["all"]["assets"][0]) == ["gemini"]


async def test_a_name_can_be_answered_by_another_back_end(starting, calling, encoded, monkeypatch, tmp_path):
    """An operator lets his own model answer for gemini: the answer says who really answered, for that one's price."""
    with openai_stub(lambda _: "A plain picture.") as stub:
        settings = tmp_path / "settings.toml"
        settings.write_text(
            "[backends]\n"
            'gemini = "my-ollama"\n'
            "[backends.my-ollama]\n"
            'kind = "openai-compatible"\n'
            f'base_url = "{stub.base_url}"\n'
            'model = "qwen-vl"\n'
            "prices = { descriptions = 2 }\n"
        )
        monkeypatch.setenv("LIGHTMETER_SETTINGS", str(settings))
        caller = await calling(await starting(backends=("my-ollama", "palette")))
        body = (await caller.ask(file=encoded(), backend="gemini", feature="descriptions")).body
        offers = (await caller.send("GET", "/api/backends")).body["backends"]
    (asset,) = body["all"]["assets"]
    assert (sources(asset), body["backends"], body["credits_paid"]) == (["my-ollama"], ["gemini"], 2)
    (gemini,) = (offer for offer in offers if offer["name"] == "gemini")
    assert (gemini["available"], gemini["alias_of"], gemini["features"]) == (True, "my-ollama", {"descriptions": 2.0})


async def test_usage_of_providers_is_in_the_metrics(described, encoded):
    """Calls and tokens are counted for each provider and model."""
    await described.ask(file=encoded(), backend="gemini", feature="descriptions")
    async with described.session.get(f"{described.base_url}/metrics") as answered:
        text = await answered.text()
    assert re.search(r'lightmeter_provider_calls_total\{backend="gemini",model="[^"]+"\} 1.0', text)
    assert re.search(
        r'lightmeter_provider_tokens_total\{backend="gemini",direction="output",model="[^"]+"\} 30.0', text
    )
