"""A service that keeps honest books and behaves badly: for tests of what the engine does when answers go missing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Script = Callable[[int, dict[str, Any]], str]
"""Says what to do with the n-th POST: a word that `Hostile.fetch` knows."""


@dataclass
class Hostile:
    """Answers as `script` says; every asset it charges for stands in `charged`; jobs are done at so many polls."""

    script: Script
    balance: int = 1000
    posts: int = 0
    charged: list[str] = field(default_factory=list)
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    polls: int = 0
    polls_until_done: int = 2
    answer_s: float = 0.0

    def answer(self, urls: list[str], names: list[str] | None = None) -> dict[str, Any]:
        """Charge one credit for each URL and answer."""
        self.charged += urls
        self.balance -= len(urls)
        assets = [{"name": name, "tags": {"thing": [{"name": "thing", "score": 0.95}]}} for name in names or urls]
        return {"credits_paid": len(urls), "credits": self.balance, "all": {"assets": assets, "errors": []}}

    async def fetch(self, request: web.Request) -> web.StreamResponse:
        """POST /api/fetch."""
        body = json.loads(await request.read())
        urls = [body["url"]] if isinstance(body["url"], str) else body["url"]
        self.posts += 1
        what = self.script(self.posts, body)
        if what == "drop":
            request.transport.close()
            return web.Response()
        if what == "charge and drop":
            self.answer(urls)
            request.transport.close()
            return web.Response()
        if what.startswith("ack"):
            request_id = f"r{self.posts}"
            self.jobs[request_id] = {"left": self.polls_until_done, "urls": urls, "fail": what.removeprefix("ack")}
            return web.json_response({"request_id": request_id, "status": "queued", "success": True})
        await asyncio.sleep(self.answer_s)
        return self._at_once(what, urls)

    def _at_once(self, what: str, urls: list[str]) -> web.Response:
        plain = {
            "throttle": (429, {"error": "Too many requests."}, {"Retry-After": "0"}),
            "refuse": (400, {"error": "Invalid URLs detected."}, {}),
            "break": (500, {"error": "Request failed: disk."}, {}),
            "deny": (403, {"error": "Access denied. Email not verified."}, {}),
        }
        if what in plain:
            status, body, headers = plain[what]
            return web.json_response(body, status=status, headers=headers)
        if what == "rename":
            return web.json_response(self.answer(urls, [f"upload_{index}" for index, _ in enumerate(urls)]))
        if what == "shuffle":
            return web.json_response(self.answer(urls, urls[::-1]))
        if what == "lose one":
            return web.json_response(self.answer(urls, urls[1:]))
        return web.json_response(self.answer(urls))

    async def response(self, request: web.Request) -> web.Response:
        """GET /api/response/<id>."""
        self.polls += 1
        job = self.jobs[request.match_info["request_id"]]
        job["left"] -= 1
        if job["left"] > 0:
            return web.json_response({"status": "processing"})
        if job["fail"]:
            free = {"credits_paid": 0} if job["fail"].endswith("for free") else {}
            return web.json_response({"status": "failed", "error": "Request failed: no frames.", **free})
        return web.json_response({"status": "completed", **self.answer(job["urls"])})

    async def credits(self, _: web.Request) -> web.Response:
        """GET /api/credits."""
        return web.json_response({"credits": self.balance})


@asynccontextmanager
async def listening(hostile: Hostile) -> AsyncIterator[str]:
    """Serve it on a free port for as long as the block lasts."""
    app = web.Application()
    app.router.add_post("/api/fetch", hostile.fetch)
    app.router.add_get("/api/response/{request_id}", hostile.response)
    app.router.add_get("/api/credits", hostile.credits)
    async with served(app) as base_url:
        yield base_url


@asynccontextmanager
async def served(app: web.Application) -> AsyncIterator[str]:
    """An application on a free port for as long as the block lasts."""
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
        await asyncio.sleep(0)
