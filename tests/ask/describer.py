"""A scripted service of the wire contract that only describes images and keeps a ledger of its charges.

It shares no code with the product. A prompt costs once more for each further block of 2500 characters. Without faults
it answers single images at once, and batches and videos by polling.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

GOOD = {"what": "a cup", "count": 2, "parts": [{"name": "handle"}], "kind": "image"}
SCHEMA = {
    "type": "object",
    "properties": {
        "what": {"type": "string", "description": "What is seen."},
        "count": {"type": ["integer", "null"], "minimum": 0},
        "share": {"type": "number"},
        "safe": {"type": "boolean"},
        "kind": {"enum": ["image", "drawing"]},
        "words": {"type": "array", "items": {"type": "string"}},
        "parts": {"type": "array", "items": {"$ref": "#/$defs/Part"}},
    },
    "required": ["what", "count"],
    "$defs": {
        "Part": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    },
}
QUESTION = {"name": "Product", "prompt": "What is it?", "schema": SCHEMA}
AGAIN = "Your last answer to this was not valid: "
BLOCK_CHARS = 2500


@dataclass(frozen=True)
class Post:
    """A received POST: its URLs, its prompt, its back ends and its charge."""

    urls: tuple[str, ...]
    prompt: str
    features: tuple[str, ...]
    backends: tuple[str, ...]
    charged: int

    @property
    def again(self) -> bool:
        """Whether it repeats a question."""
        return AGAIN in self.prompt


Says = Callable[[str, "Post"], Any]
"""The answer about a URL: a text, a mapping from back end to text, a list of these (one per frame), or None."""


@dataclass
class Describer:
    """The service.

    Attributes:
        says: What it answers.
        does: What happens to a POST instead: `drop`, `refuse`, `throttle`, `hang` or nothing; charged unless free.
        price: Credits a description, for each block of the prompt.
    """

    says: Says
    does: Callable[[Post], str | None] = lambda _: None
    price: int = 1
    balance: int = 10_000
    posts: list[Post] = field(default_factory=list)
    jobs: dict[str, tuple[Post, int]] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def charged(self) -> int:
        """Credits charged so far."""
        return sum(post.charged for post in self.posts)

    @property
    def second(self) -> list[Post]:
        """The POSTs that repeat a question."""
        return [post for post in self.posts if post.again]

    async def fetch(self, request: web.Request) -> web.StreamResponse:
        """POST /api/fetch."""
        body = await request.json()
        urls = tuple(_list(body.get("url")) or _list(body.get("file_name")))
        backends, prompt = tuple(_list(body.get("backend"))), body.get("prompt") or ""
        blocks = max(1, -(-len(prompt) // BLOCK_CHARS))
        frames = sum(3 if url.endswith(".mp4") else 1 for url in urls)
        cost = self.price * blocks * frames * len(backends)
        new_post = Post(urls, prompt, tuple(_list(body.get("feature"))), backends, cost)
        what = self.does(new_post) or ""
        post = new_post if "free" not in what else Post(*urls_of(new_post), 0)
        self.posts.append(post)
        self.keys.append(request.headers.get("Idempotency-Key", ""))
        self.balance -= post.charged
        self.arrived.set()
        if what.startswith("refuse"):
            return web.json_response({"error": "Invalid request format."}, status=400)
        if what.startswith("throttle"):
            return web.json_response({"error": "Too many requests."}, status=429, headers={"Retry-After": "0"})
        if what.startswith("drop"):
            request.transport.close()
            return web.Response()
        if what.startswith("hang"):
            await asyncio.sleep(60)
        if len(urls) > 1 or urls[0].endswith(".mp4"):
            name = f"job{len(self.posts)}"
            self.jobs[name] = (post, self.balance)
            return web.json_response({"request_id": name, "status": "queued", "success": True})
        return web.json_response(self.answer(post, self.balance))

    async def response(self, request: web.Request) -> web.Response:
        """GET /api/response/ID."""
        name = request.match_info["name"]
        return web.json_response({"request_id": name, **self.answer(*self.jobs[name])})

    async def credits(self, _: web.Request) -> web.Response:
        """GET /api/credits."""
        return web.json_response({"credits": self.balance})

    def answer(self, post: Post, balance: int) -> dict[str, Any]:
        """Return the results of a POST."""
        assets, errors = [], []
        for url in post.urls:
            text_or_frames = self.says(url, post)
            asset: dict[str, Any] = {"name": url, "tags": {}, "colors": {}, "nsfw": [], "descriptions": []}
            if isinstance(text_or_frames, list):
                asset["frames"] = [
                    {"index": n, "descriptions": entries(post, one)} for n, one in enumerate(text_or_frames)
                ]
                asset["descriptions"] = [entry for frame in asset["frames"] for entry in frame["descriptions"]]
            else:
                asset["descriptions"] = entries(post, text_or_frames)
            if not asset["descriptions"]:
                errors.append("gemini: the provider is asleep")
            assets.append(asset)
        paid = {"credits_paid": post.charged, "credits": balance}
        return {"status": "completed", **paid, "all": {"assets": assets, "errors": errors}}


def urls_of(post: Post) -> tuple[Any, ...]:
    """Return what identifies a POST: all of it but its charge."""
    return post.urls, post.prompt, post.features, post.backends


def entries(post: Post, answer: Any) -> list[dict[str, str]]:
    """Return the description of each back end."""
    if answer is None:
        return []
    by_backend = answer if isinstance(answer, dict) else dict.fromkeys(post.backends, answer)
    return [{"description": text, "source": name} for name, text in by_backend.items() if name in post.backends]


def _list(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value or [])


def good(**changes: Any) -> str:
    """Return a valid answer with these changes."""
    return json.dumps({**GOOD, **changes})


@asynccontextmanager
async def serving(describer: Describer) -> AsyncIterator[str]:
    """Serve it on a free port while the block lasts; yields the base URL."""
    app = web.Application()
    app.router.add_post("/api/fetch", describer.fetch)
    app.router.add_get("/api/response/{name}", describer.response)
    app.router.add_get("/api/credits", describer.credits)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
        await asyncio.sleep(0)
