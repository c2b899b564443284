"""HTTP: which path and method calls which handler, and every answer as JSON."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

import orjson
from aiohttp import web

from lightmeter.models.vocabulary import (
    FILE_TOO_LARGE,
    MAX_FILE_BYTES,
    MAX_QUERY_CHARS,
    QUERY_TOO_LONG,
    REQUEST_FAILED,
)
from lightmeter.service.handlers import Handlers, Reply, refusal
from lightmeter.service.parameters import from_json, from_query

__all__ = ["application"]

log = logging.getLogger("lightmeter.service")

MOST_BODY_BYTES: Final = 10 * MAX_FILE_BYTES * 4 // 3 + 1024 * 1024
"""Ten files of the largest size, as base64."""

LARGE_BODY_BYTES: Final = 1024 * 1024
"""From here on a body is parsed beside the event loop."""


def application(handlers: Handlers, is_ready: Callable[[], bool]) -> web.Application:
    """The service as an aiohttp application."""
    app = web.Application(client_max_size=MOST_BODY_BYTES, middlewares=[_as_json])
    endpoints = _Endpoints(handlers, is_ready)
    app.router.add_post("/api/fetch", endpoints.post_fetch)
    app.router.add_get("/api/fetch", endpoints.get_fetch, allow_head=False)  # HEAD must cost nothing
    app.router.add_get("/api/response/{request_id}", endpoints.response)
    app.router.add_get("/api/credits", endpoints.credits)
    app.router.add_get("/healthz", endpoints.health)
    app.router.add_get("/readyz", endpoints.ready)
    app.router.add_get("/", endpoints.index)
    return app


def _json(reply: Reply) -> web.Response:
    return web.Response(status=reply.status, body=orjson.dumps(reply.body), content_type="application/json")


@web.middleware
async def _as_json(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Errors of ours, of the caller and of the framework, all in one shape."""
    try:
        return await handler(request)
    except web.HTTPRequestEntityTooLarge:
        return _json(Reply(413, {"error": FILE_TOO_LARGE, "status": "failed"}))
    except web.HTTPException as error:
        answer = _json(Reply(error.status, {"error": f"{error.reason}.", "status": "failed"}))
        if "Allow" in error.headers:
            answer.headers["Allow"] = error.headers["Allow"]
        return answer
    except Exception as error:
        refused = refusal(error)
        if refused is not None:
            return _json(refused)
        log.exception("%s %s broke", request.method, request.path)
        return _json(Reply(500, {"error": f"{REQUEST_FAILED}: {type(error).__name__}.", "status": "failed"}))


class _Endpoints:
    """From HTTP to handlers and back."""

    def __init__(self, handlers: Handlers, is_ready: Callable[[], bool]) -> None:
        self._handlers = handlers
        self._is_ready = is_ready

    async def post_fetch(self, request: web.Request) -> web.Response:
        account = await self._handlers.account(request.headers)
        if request.method == "POST" and (request.content_length or 0) > MOST_BODY_BYTES:
            return _json(Reply(413, {"error": FILE_TOO_LARGE, "status": "failed"}))
        body = await request.read()
        asked = from_json(body) if len(body) < LARGE_BODY_BYTES else await asyncio.to_thread(from_json, body)
        key = request.headers.get("Idempotency-Key")
        return _json(await self._handlers.analyze(account, asked, _base_url(request), key))

    async def get_fetch(self, request: web.Request) -> web.Response:
        account = await self._handlers.account(request.headers)
        if len(request.rel_url.raw_query_string) > MAX_QUERY_CHARS:
            return _json(Reply(414, {"error": QUERY_TOO_LONG, "status": "failed"}))
        asked = from_query(list(request.query.items()))
        return _json(await self._handlers.analyze(account, asked, _base_url(request), None))

    async def response(self, request: web.Request) -> web.Response:
        account = await self._handlers.account(request.headers)
        return _json(await self._handlers.result(account, request.match_info["request_id"]))

    async def credits(self, request: web.Request) -> web.Response:
        return _json(await self._handlers.credits(await self._handlers.account(request.headers)))

    async def health(self, _: web.Request) -> web.Response:
        return _json(Reply(200, {"status": "ok"}))

    async def ready(self, _: web.Request) -> web.Response:
        ready = self._is_ready()
        return _json(Reply(200 if ready else 503, {"status": "ready" if ready else "starting"}))

    async def index(self, _: web.Request) -> web.Response:
        return _json(
            Reply(
                200,
                {
                    "service": "lightmeter",
                    "analyze": "POST /api/fetch with X-API-Key: Token KEY",
                    "results": "GET /api/response/<request_id>",
                    "balance": "GET /api/credits",
                },
            )
        )


def _base_url(request: web.Request) -> str:
    return f"{request.scheme}://{request.host}"
