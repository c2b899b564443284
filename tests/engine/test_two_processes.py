"""Two processes with one key share a hidden rate limit, and each row is paid for once."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import textwrap
import time

from aiohttp import web

from lightmeter.journal.commands.submissions import get_meta
from lightmeter.journal.store import open_read_only
from tests.engine.hostile import Hostile, listening

LIMIT_RPS = 40.0
ROWS = 240

RUN = textwrap.dedent(f"""
    import sys
    import lightmeter as lm
    urls = [f"http://{{sys.argv[2]}}.example/{{number}}.jpg" for number in range({ROWS})]
    plan = lm.plan(urls, features=["tags"], backends=["clarifai"], precheck=False, base_url=sys.argv[1])
    run = lm.run(plan, sys.argv[3])
    assert run.summary().counts["ok"] == {ROWS}, run.summary()
""")


class Limited(Hostile):
    """A service with a token bucket that counts the accepted requests of each process."""

    tokens = LIMIT_RPS
    refilled_at = 0.0
    refused = 0

    async def fetch(self, request: web.Request) -> web.StreamResponse:
        now = time.monotonic()
        self.tokens = min(LIMIT_RPS, self.tokens + (now - (self.refilled_at or now)) * LIMIT_RPS)
        self.refilled_at = now
        if self.tokens < 1:
            self.refused += 1
            return web.json_response({"error": "Too many requests."}, status=429)
        self.tokens -= 1
        await asyncio.sleep(0.05)
        return await super().fetch(request)


async def test_two_runs_share_the_rate_limit_of_a_key(tmp_path):
    """Both runs end, nothing is paid twice, both share the limit, and few requests are refused."""
    service = Limited(lambda *_: "well")
    async with listening(service) as base_url:
        environment = {
            **os.environ,
            "LIGHTMETER_API_KEY": "key",
            "LIGHTMETER_STATE_DIR": str(tmp_path / "state"),
            "LIGHTMETER_SETTINGS": "/dev/null",
        }
        processes = [
            await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", RUN, base_url, name, str(tmp_path / name)), env=environment
            )
            for name in ("one", "two")
        ]
        ended = await asyncio.gather(*(process.wait() for process in processes))
    assert ended == [0, 0]
    assert len(service.charged) == len(set(service.charged)) == 2 * ROWS
    half = service.charged[: len(service.charged) // 2]
    parts = [sum(name in url for url in half) for name in ("one", "two")]
    assert min(parts) >= len(half) / 5, parts
    assert service.refused <= 0.2 * len(service.charged)
    states = []
    for name in ("one", "two"):
        with open_read_only(tmp_path / name) as db:
            states.append(json.loads(get_meta(db)["pace"])["state"])
    assert max(state.get("sharers", 1) for state in states) == 2
    assert not list((tmp_path / "state").rglob("*.member"))
