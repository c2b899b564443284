"""Runs that cannot start because the service does not tell the balance, after their journal was written."""

from __future__ import annotations

import json

import pytest
from aiohttp import web

import lightmeter as lm
from lightmeter.errors import AccessDenied, SettingsError, Unreachable
from tests.engine.hostile import Hostile, listening
from tests.engine.streaming import last, stream

OPTIONS = {"features": ["tags"], "backends": ["clarifai"], "precheck": False, "batch_size": 1}


class SilentService(Hostile):
    """A service that tells the balance `told` times, and then answers as `failure` says; None: always."""

    told: int | None = None
    failure = "cut"

    async def credits(self, request: web.Request) -> web.Response:
        """GET /api/credits."""
        if self.told is None:
            return await super().credits(request)
        self.told -= 1
        if self.told >= 0:
            return await super().credits(request)
        if self.failure == "cut":
            request.transport.close()
            return web.Response()
        status = int(self.failure)
        return web.Response(status=status, text="<html>no</html>", content_type="text/html")


@pytest.fixture
async def service(charges_at_once):
    """Run a service that answers every request."""
    silent = SilentService(lambda *_: "answer")
    async with listening(silent) as silent.base_url:
        yield silent


def assets(folder) -> list[tuple[str, str, str | None]]:
    """Return (item id, status, reason) of each row of the table `assets`."""
    rows = lm.open(folder).table("assets").to_pylist()
    return sorted((row["item_id"], row["status"], row["reason"]) for row in rows)


@pytest.mark.parametrize(
    ("failure", "error", "hint"),
    [
        ("cut", Unreachable, "Nothing was spent. Try again later."),
        ("502", Unreachable, "Nothing was spent. Try again later."),
        ("401", AccessDenied, ""),
        ("200", SettingsError, "Check the base URL"),
    ],
)
async def test_a_run_that_cannot_start_writes_its_tables(service, tmp_path, failure, error, hint):
    """The error says that nothing was spent, and the tables show the rows of the new run, which replaced the former."""
    service.failure, out = failure, tmp_path / "out"
    url = "http://pictures.example/{}.jpg"
    first = await lm.aio.plan([{"id": "a", "url": url.format("a")}], base_url=service.base_url, **OPTIONS)
    await lm.aio.run(first, out, consent=True)
    rows = [{"id": name, "url": url.format(name)} for name in "ab"]
    plan = await lm.aio.plan(rows, base_url=service.base_url, **OPTIONS)
    service.told = 0
    with pytest.raises(error) as raised:
        await lm.aio.run(plan, out, consent=True)
    assert hint in raised.value.hint
    assert "charged" not in raised.value.hint
    assert assets(out) == [("a", "ok", "cached"), ("b", "pending", None)]
    assert service.charged == [url.format("a")]
    service.told = None
    await lm.aio.run(plan, out, consent=True)
    assert assets(out) == [("a", "ok", "cached"), ("b", "ok", None)]
    service.told = 0
    with pytest.raises(error) as raised:  # nothing is left to do
        await lm.aio.resume(out)
    assert raised.value.exit_code in {2, 4}


async def test_a_streamed_run_that_cannot_start_says_that_nothing_was_spent(service, tmp_path):
    """The balance is told before the manifest is opened, and not when the run starts: no row of it is gone."""
    manifest, out = tmp_path / "m.jsonl", tmp_path / "out"
    rows = [json.dumps({"id": name, "url": f"http://pictures.example/{name}.jpg"}) for name in "ab"]
    manifest.write_text(rows[0])
    await last(stream(manifest, out, service, precheck=False))
    manifest.write_text("\n".join(rows))
    service.told = 1
    with pytest.raises(Unreachable) as raised:
        await last(stream(manifest, out, service, precheck=False))
    assert (raised.value.exit_code, raised.value.hint) == (2, "Nothing was spent. Try again later.")
    assert assets(out) == [("a", "ok", None)]
    service.told = None
    await last(stream(manifest, out, service, precheck=False))
    assert assets(out) == [("a", "ok", "cached"), ("b", "ok", None)]
