"""HTTP: which path and method calls which handler, and every answer of the API as JSON.

Two layers lie around the handlers: the outer one gives each request an id, times, counts and logs it; the inner one
turns errors of ours, of the caller and of the framework into answers of one shape.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import cache
from typing import Final

import orjson
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from lightmeter.models.vocabulary import (
    FILE_TOO_LARGE,
    MAX_FILE_BYTES,
    MAX_QUERY_CHARS,
    QUERY_TOO_LONG,
    REQUEST_FAILED,
)
from lightmeter.service import logs
from lightmeter.service.http import index_page, openapi
from lightmeter.service.http.fault_injection import IGNORE_IDEMPOTENCY_KEY, FaultInjector
from lightmeter.service.http.handlers import Handlers, Reply, error_reply
from lightmeter.service.http.parameters import from_json, from_query
from lightmeter.service.http.request_ids import random_hex
from lightmeter.service.metrics import CONTENT_TYPE, Metrics
from lightmeter.service.store.auth import Account

__all__ = ["application"]

log = logging.getLogger("lightmeter.service")

MAX_BODY_BYTES: Final = 10 * MAX_FILE_BYTES * 4 // 3 + 1024 * 1024
"""Ten files of the largest size, as base64."""

LARGE_BODY_BYTES: Final = 1024 * 1024
"""From here on a body is parsed beside the event loop."""


RETRY_AFTER_S: Final = 2
"""When to ask again after 503, unless the refusal says better: the poll interval the public clients use."""

NOT_READY: Final = Reply(503, {"error": "The service is starting or stopping: ask again.", "status": "failed"})
"""While it drains, results can still be read; nothing new is begun."""

REQUEST_ID: Final = "X-Request-ID"

FROM_ANYWHERE: Final = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Expose-Headers": f"{REQUEST_ID}, Retry-After",
}
"""Plugins call from pages of other hosts. Who asks is told by a key that no browser adds by itself, so any page may."""

PREFLIGHT: Final = {
    **FROM_ANYWHERE,
    "Access-Control-Allow-Methods": "GET, POST",
    "Access-Control-Allow-Headers": f"X-API-Key, Authorization, Content-Type, Idempotency-Key, {REQUEST_ID}",
    "Access-Control-Max-Age": "86400",
}


def application(
    handlers: Handlers,
    is_ready: Callable[[], bool],
    metrics: Metrics | None = None,
    injection: FaultInjector | None = None,
) -> web.Application:
    """The service as an aiohttp application.

    Args:
        handlers: What the endpoints do.
        is_ready: Whether requests are welcome: not while models load, nor once the service drains.
        metrics: What is counted; shown at `/metrics`.
        injection: Faults on purpose.
    """
    metrics = metrics or Metrics()
    faults = [] if injection is None else [injection.middleware()]
    app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[_observed(metrics), *faults, _as_json])
    endpoints = _Endpoints(handlers, is_ready)
    probes = _Probes(handlers, is_ready, metrics)
    app.router.add_post("/api/fetch", endpoints.post_fetch)
    app.router.add_get("/api/fetch", endpoints.get_fetch, allow_head=False)  # HEAD must cost nothing
    app.router.add_get("/api/response/{request_id}", endpoints.response)
    app.router.add_get("/api/credits", endpoints.credits)
    app.router.add_get("/api/backends", endpoints.backends)
    app.router.add_get("/healthz", probes.health)
    app.router.add_get("/readyz", probes.ready)
    app.router.add_get("/metrics", probes.metrics)
    app.router.add_get("/openapi.json", probes.openapi)
    app.router.add_get("/", probes.index)
    return app


def _json(reply: Reply) -> web.Response:
    response = web.Response(status=reply.status, body=orjson.dumps(reply.body), content_type="application/json")
    response.headers.update(reply.headers)
    if reply.status == 503:  # noqa: PLR2004 (service unavailable)
        response.headers.setdefault("Retry-After", str(RETRY_AFTER_S))
    return response


def _observed(metrics: Metrics) -> Middleware:
    """The outer layer: an id for each request, in its answer and in every line logged for it; its time and status."""

    @web.middleware
    async def observe(request: web.Request, handler: Handler) -> web.StreamResponse:
        begun = time.perf_counter()
        current = logs.request_id_or_new(request.headers.get(REQUEST_ID) or random_hex(8))
        token = logs.request_id.set(current)
        status = 499  # as web servers write down a caller who left before the answer
        try:
            response = await handler(request)
            status = response.status
            response.headers[REQUEST_ID] = current
            response.headers["X-Content-Type-Options"] = "nosniff"
            return response
        finally:
            seconds = time.perf_counter() - begun
            resource = request.match_info.route.resource
            metrics.answered("other" if resource is None else resource.canonical, status, seconds)
            account = request.get(ACCOUNT)
            account_id = None if account is None else account.account_id
            logs.access(request.method, request.rel_url.raw_path, status, seconds, account_id)
            logs.request_id.reset(token)

    return observe


@web.middleware
async def _as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The inner layer: every answer in one shape, and the API's for pages of any host."""
    if not request.path.startswith("/api/"):
        return await _answer(request, handler)
    if request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers:
        return web.Response(status=204, headers=PREFLIGHT)
    response = await _answer(request, handler)
    response.headers.update(FROM_ANYWHERE)
    response.headers["Cache-Control"] = "no-store"
    return response


async def _answer(request: web.Request, handler: Handler) -> web.StreamResponse:
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
        refused = error_reply(error)
        if refused is not None:
            return _json(refused)
        log.exception("%s %s broke", request.method, request.path)
        return _json(Reply(500, {"error": f"{REQUEST_FAILED}: {type(error).__name__}.", "status": "failed"}))


ACCOUNT: Final = web.RequestKey("lightmeter_account", Account)
"""Where a request keeps whose it is, for the access log."""


class _Endpoints:
    """From HTTP to handlers and back."""

    def __init__(self, handlers: Handlers, is_ready: Callable[[], bool]) -> None:
        self._handlers = handlers
        self._is_ready = is_ready

    async def _account(self, request: web.Request) -> Account:
        account = await self._handlers.account(request.headers)
        request[ACCOUNT] = account
        return account

    async def post_fetch(self, request: web.Request) -> web.Response:
        account = await self._account(request)
        if not self._is_ready():
            return _json(NOT_READY)
        if request.method == "POST" and (request.content_length or 0) > MAX_BODY_BYTES:
            return _json(Reply(413, {"error": FILE_TOO_LARGE, "status": "failed"}))
        body = await request.read()
        asked = from_json(body) if len(body) < LARGE_BODY_BYTES else await asyncio.to_thread(from_json, body)
        key = None if IGNORE_IDEMPOTENCY_KEY in request else request.headers.get("Idempotency-Key")
        return _json(await self._handlers.analyze(account, asked, _base_url(request), key))

    async def get_fetch(self, request: web.Request) -> web.Response:
        account = await self._account(request)
        if not self._is_ready():
            return _json(NOT_READY)
        if len(request.rel_url.raw_query_string) > MAX_QUERY_CHARS:
            return _json(Reply(414, {"error": QUERY_TOO_LONG, "status": "failed"}))
        asked = from_query(list(request.query.items()))
        return _json(await self._handlers.analyze(account, asked, _base_url(request), None))

    async def response(self, request: web.Request) -> web.Response:
        account = await self._account(request)
        return _json(await self._handlers.result(account, request.match_info["request_id"]))

    async def credits(self, request: web.Request) -> web.Response:
        return _json(await self._handlers.credits(await self._account(request)))

    async def backends(self, request: web.Request) -> web.Response:
        await self._account(request)
        return _json(self._handlers.backends())


class _Probes:
    """What needs no key: the page, the description, and what machines ask."""

    def __init__(self, handlers: Handlers, is_ready: Callable[[], bool], metrics: Metrics) -> None:
        self._is_ready = is_ready
        self._metrics = metrics
        self._index = index_page.index(handlers.offers)
        # Made when it is first asked for: most services are never asked.
        self._openapi = cache(lambda: orjson.dumps(openapi.document(handlers.offers)))

    async def health(self, _: web.Request) -> web.Response:
        return _json(Reply(200, {"status": "ok"}))

    async def ready(self, _: web.Request) -> web.Response:
        ready = self._is_ready()
        return _json(Reply(200 if ready else 503, {"status": "ready" if ready else "starting or draining"}))

    async def metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=self._metrics.written(), headers={"Content-Type": CONTENT_TYPE})

    async def openapi(self, _: web.Request) -> web.Response:
        return web.Response(body=self._openapi(), content_type="application/json", headers=FROM_ANYWHERE)

    async def index(self, request: web.Request) -> web.Response:
        accepted = request.headers.get("Accept", "")
        if "application/json" in accepted and "text/html" not in accepted:
            return _json(Reply(200, self._index))
        shown = index_page.page()
        return web.Response(body=shown.body, content_type="text/html", charset="utf-8", headers=shown.headers)


def _base_url(request: web.Request) -> str:
    return f"{request.scheme}://{request.host}"
