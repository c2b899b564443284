"""The public clients of this contract are served as they are."""

from __future__ import annotations

import asyncio
import gzip
import json


async def test_the_browser_extension(calling, full_service, encoded):
    """A data URI in a list, an empty prompt, an own tag score."""
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
    """An empty object as key check, then a file with a charset in the content type, polled by its response_uri."""
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
    """Ten images in one call, found again by their names."""
    urls = [site.url(f"picture/{seed}.png") for seed in range(10)]
    done = await caller.finished(await caller.ask(url=urls))
    by_name = {asset["name"]: asset for asset in done["all"]["assets"]}
    assert by_name.keys() == set(urls)
    assert all(asset["colors"] for asset in by_name.values())


async def test_the_documented_sample_loop(caller, site):
    """Completed is done, failed raises, anything else has a response_uri to poll."""

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


async def test_a_compressed_body_is_read(caller, encoded):
    """Content-Encoding: gzip, as some HTTP libraries send it."""
    body = gzip.compress(json.dumps({"file": encoded()}).encode())
    headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    answered = await caller.send("POST", "/api/fetch", data=body, headers=headers)
    assert (answered.status, answered.body["status"]) == (200, "completed")


async def test_our_own_client_is_satisfied(service, caller, site):
    """The toolkit's client, end to end: balance, an image, a batch, a video."""
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
