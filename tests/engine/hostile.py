"""A test service that misbehaves as a script says and records exactly what it charged."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Script = Callable[[int, dict[str, Any]], str]
"""Returns the behavior for POST number n with this body: one of the words that `Hostile.fetch` knows."""


@dataclass
class Hostile:
    """A service of the wire contract; `charged` lists every URL, or name of a file, that it charged for.

    It refuses an idempotency key that came before with other URLs, as `lightmeter serve` does.
    """

    script: Script
    balance: int = 1000
    price: int = 1
    posts: int = 0
    charged: list[str] = field(default_factory=list)
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    polls: int = 0
    polls_until_done: int = 2
    images: list[int] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0
    answer_s: float = 0.0
    urls_by_key: dict[str, list[str]] = field(default_factory=dict)

    def answer(self, urls: list[str], names: list[str] | None = None) -> dict[str, Any]:
        """Charge for each URL and return an answer; the source of each tag is the image's URL."""
        self.charge(urls)
        assets = [
            {"name": name, "tags": {"thing": [{"name": "thing", "score": 0.95, "source": url}]}}
            for name, url in zip(urls if names is None else names, urls, strict=False)
        ]
        paid = self.price * len(urls)
        return {"credits_paid": paid, "credits": self.balance, "all": {"assets": assets, "errors": []}}

    def charge(self, urls: list[str]) -> None:
        """Charge for these URLs."""
        self.charged += urls
        self.balance -= self.price * len(urls)

    async def fetch(self, request: web.Request) -> web.StreamResponse:
        """POST /api/fetch."""
        body = json.loads(await request.read())
        urls = body["url"] if "url" in body else body["file_name"]
        urls = [urls] if isinstance(urls, str) else urls
        key = request.headers.get("Idempotency-Key")
        if key is not None and self.urls_by_key.setdefault(key, urls) != urls:
            return web.json_response({"error": "This Idempotency-Key was sent before."}, status=422)
        self.posts += 1
        number = self.posts
        self.images.append(len(urls))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(self.answer_s)
            return await self._answered(request, urls, self.script(number, body), number)
        finally:
            self.at_once -= 1

    async def _answered(self, request: web.Request, urls: list[str], what: str, number: int) -> web.StreamResponse:
        if what == "drop":
            request.transport.close()
            return web.Response()
        if what == "charge and drop":
            self.answer(urls)
            request.transport.close()
            return web.Response()
        if what.startswith("raw "):
            self.charge(urls)
            return web.Response(body=what.removeprefix("raw ").encode("latin-1"), content_type="application/json")
        if what == "cut":
            return await self._cut(request, urls)
        if what.startswith(("ack", "charge ack")):
            if what.startswith("charge"):
                self.charge(urls)
            request_id = f"r{number}"
            self.jobs[request_id] = {"left": self.polls_until_done, "urls": urls, "fail": what.partition("ack")[2]}
            return web.json_response({"request_id": request_id, "status": "queued", "success": True})
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
        return web.json_response(self._named(what, urls))

    def _named(self, what: str, urls: list[str]) -> dict[str, Any]:
        """Return an answer whose asset names and order are those of a word such as `shuffled`."""
        names: dict[str, list[Any]] = {
            "rename": [f"upload_{index}" for index, _ in enumerate(urls)],
            "redirect": [_redirected(url) for url in urls],
            "nameless": [None] * len(urls),
        }
        answer = self.answer(urls, names.get(what))
        assets = answer["all"]["assets"]
        if what in {"redirect", "nameless"}:
            random.Random(self.posts).shuffle(assets)  # noqa: S311 (a dice, no secret)
        elif what == "shuffle":
            assets.reverse()
        elif what == "lose one":
            del assets[-1]
        elif what == "one for another":
            assets[0] = {"name": "http://pictures.example/of-somebody.jpg", "tags": {"no": [{"name": "no"}]}}
        return answer

    async def _cut(self, request: web.Request, urls: list[str]) -> web.StreamResponse:
        """Send a complete JSON answer and cut the transfer before its announced end."""
        body = json.dumps(self.answer(urls)).encode()
        stream = web.StreamResponse(headers={"Content-Length": str(len(body) + 7)})
        await stream.prepare(request)
        await stream.write(body)
        await asyncio.sleep(0.05)
        request.transport.close()
        return stream

    async def response(self, request: web.Request) -> web.Response:
        """GET /api/response/<id>."""
        self.polls += 1
        job = self.jobs[request.match_info["request_id"]]
        job["left"] -= 1
        if job["left"] > 0:
            return web.json_response({"status": "processing"})
        if job["fail"].startswith(" says "):
            return web.Response(body=job["fail"].removeprefix(" says ").encode("latin-1"))
        if job["fail"]:
            free = {"credits_paid": 0} if job["fail"].endswith("for free") else {}
            return web.json_response({"status": "failed", "error": "Request failed: no frames.", **free})
        return web.json_response({"status": "completed", **self.answer(job["urls"])})

    async def credits(self, _: web.Request) -> web.Response:
        """GET /api/credits."""
        return web.json_response({"credits": self.balance})


def _redirected(url: str) -> str:
    """Return a URL from which the original URL cannot be derived."""
    return f"http://cdn.example/{abs(hash(url)) % 10**9}"


@asynccontextmanager
async def listening(hostile: Hostile) -> AsyncIterator[str]:
    """Serve it on a free port while the block lasts; yields the base URL."""
    app = web.Application()
    app.router.add_post("/api/fetch", hostile.fetch)
    app.router.add_get("/api/response/{request_id}", hostile.response)
    app.router.add_get("/api/credits", hostile.credits)
    async with served(app) as base_url:
        yield base_url


@asynccontextmanager
async def served(app: web.Application) -> AsyncIterator[str]:
    """Serve an application on a free port while the block lasts; yields the base URL."""
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
        await asyncio.sleep(0)


@asynccontextmanager
async def gallery(pictures: Mapping[str, bytes], broken: Collection[str] = ()) -> AsyncIterator[str]:
    """Serve pictures over HTTP, each with an entity tag, and yield the base URL.

    Args:
        pictures: Path → content; it may change meanwhile.
        broken: Paths of the pictures whose transfer breaks off; it may change meanwhile.
    """

    async def show(request: web.Request) -> web.StreamResponse:
        content = pictures[request.path]
        marks = {"ETag": f'"{hash(content)}"', "Content-Length": str(len(content)), "Content-Type": "image/jpeg"}
        if request.path not in broken:
            return web.Response(body=content, headers=marks)
        response = web.StreamResponse(headers=marks)
        await response.prepare(request)
        await response.write(content[:500])
        await asyncio.sleep(0.05)  # a client that sees the break before it reads has no content
        request.transport.close()
        return response

    app = web.Application()
    app.router.add_get("/{name}", show)
    async with served(app) as base_url:
        yield base_url
