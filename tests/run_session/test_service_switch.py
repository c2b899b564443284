"""A run goes on only with the service that it was planned for: the embedded one, or one with an address."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import lightmeter as lm
from lightmeter.api.prepared_run import prepare_run
from lightmeter.api.runs import stream_run
from lightmeter.errors import AccessDenied, SettingsError
from lightmeter.journal.header import read_run_header
from tests.engine.hostile import Hostile, listening

URLS = [f"http://pictures.example/{number}.jpg" for number in range(3)]
OPTIONS = {"precheck": False, "features": ["colors"]}
NAMED = {**OPTIONS, "backends": ["palette"]}


@pytest.fixture
async def service(charges_at_once):
    """Run a service that answers every request."""
    hostile = Hostile(lambda *_: "answer")
    async with listening(hostile) as hostile.base_url:
        yield hostile


@pytest.fixture
def address(monkeypatch):
    """Return a function that sets `LIGHTMETER_BASE_URL`, or deletes it if it gets None."""

    def change(value: str | None) -> None:
        if value is None:
            monkeypatch.delenv("LIGHTMETER_BASE_URL", raising=False)
        else:
            monkeypatch.setenv("LIGHTMETER_BASE_URL", value)

    return change


@pytest.mark.parametrize("way", ["resume", "resume --base-url", "run", "prepare"])
async def test_a_run_on_the_embedded_service_does_not_go_on_with_another(way, service, address, tmp_path):
    """The other service gets no request, the run stays as it is, and it goes on with the embedded service."""
    await lm.aio.run(await lm.aio.plan(URLS, budget=0, **OPTIONS), tmp_path / "out")
    address(service.base_url if way != "resume --base-url" else None)
    with pytest.raises(SettingsError, match="is for the embedded service") as refused:
        await _continue(way, tmp_path / "out", service.base_url)
    assert "LIGHTMETER_BASE_URL" in refused.value.hint
    assert service.posts == 0
    header = read_run_header(tmp_path / "out")
    assert (header.options.budget, header.options.base_url) == (0, None)
    address(None)
    assert (await lm.aio.resume(tmp_path / "out", budget=0)).summary().counts["over_budget"] == 3


async def _continue(way: str, out: Path, base_url: str) -> None:
    """Continue the run in `out` with a larger budget, in one of several ways."""
    if way == "run":
        await lm.aio.run(await lm.aio.plan(URLS, budget=60, **OPTIONS), out, consent=True)
    elif way == "prepare":
        await prepare_run(URLS, out, budget=60, consent=True, **OPTIONS)
    elif way == "resume":
        await lm.aio.resume(out, budget=60)
    else:
        await lm.aio.resume(out, budget=60, base_url=base_url)


@pytest.mark.parametrize("named_by", ["variable", "option"])
async def test_a_run_on_another_service_does_not_go_on_with_the_embedded_one(
    named_by, service, address, tmp_path, monkeypatch
):
    """Without the address no row is sent, and with it the rest is; a repeated `run` needs the address, too."""
    monkeypatch.delenv("LIGHTMETER_PRICES")
    address(service.base_url)
    options = NAMED if named_by == "variable" else {**NAMED, "base_url": service.base_url}
    await lm.aio.run(await lm.aio.plan(URLS, budget=1, **options), tmp_path / "out")
    address(None)
    with pytest.raises(SettingsError, match="address of its service is not set") as refused:
        await lm.aio.resume(tmp_path / "out", budget=60, base_url=None)
    assert "LIGHTMETER_BASE_URL" in refused.value.hint
    with pytest.raises(SettingsError, match="address of its service is not set"):
        await lm.aio.run(await lm.aio.plan(URLS, budget=60, **NAMED), tmp_path / "out")
    assert lm.open(tmp_path / "out").summary().counts["over_budget"] == 2
    run = await lm.aio.resume(tmp_path / "out", budget=60, base_url=service.base_url)
    assert (run.exit_code, len(service.charged)) == (0, 3)


async def test_a_plan_is_run_only_with_the_service_that_it_is_for(service, address, tmp_path):
    """If the address is set or deleted after the plan was made, no folder is made and nothing is sent."""
    embedded = await lm.aio.plan(URLS, **OPTIONS)
    address(service.base_url)
    named = await lm.aio.plan(URLS, **NAMED)
    with pytest.raises(SettingsError, match="is for the embedded service"):
        await lm.aio.run(embedded, tmp_path / "out", consent=True)
    address(None)
    with pytest.raises(SettingsError, match="address of its service is not set"):
        await lm.aio.run(named, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert service.posts == 0


async def test_the_next_run_collects_answers_at_the_address_of_its_own_plan(service, address, tmp_path):
    """Answers of a former run whose service only the variable named are collected where `--base-url` says."""
    service.script, service.polls_until_done = (lambda *_: "ack"), 10**9
    address(service.base_url)
    stop, plan = asyncio.Event(), await lm.aio.plan(URLS[:1], **NAMED)
    async for _ in stream_run(plan, tmp_path / "out", stop=stop):
        if service.posts and service.polls:
            stop.set()
    for job in service.jobs.values():
        job["left"] = 1
    service.script = lambda *_: "answer"
    address(None)
    run = await lm.aio.run(await lm.aio.plan(URLS, base_url=service.base_url, **NAMED), tmp_path / "out")
    assert run.summary().counts["ok"] == 3
    assert sorted(service.charged) == URLS


async def test_the_price_is_learned_anew_at_another_address(charges_at_once, tmp_path):
    """One image is at risk until the service there has charged, also after a stop before that, and the cap holds."""
    urls = [f"http://pictures.example/{number}.jpg" for number in range(60)]
    cheap, dear = Hostile(lambda *_: "answer"), Hostile(lambda *_: "deny", price=10, answer_s=1)
    async with listening(cheap) as before, listening(dear) as after:
        await lm.aio.run(await lm.aio.plan(urls, base_url=before, budget=10, **NAMED), tmp_path / "out")
        denied = await lm.aio.resume(tmp_path / "out", base_url=after, budget=59)
        dear.script = lambda *_: "answer"
        run = await lm.aio.resume(tmp_path / "out")
    assert isinstance(denied.stopped_by, AccessDenied)
    assert (len(cheap.charged), len(dear.charged), run.summary().paid) == (10, 4, 50)
