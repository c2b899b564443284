"""The aiohttp application: its routes, and middlewares that log requests and turn errors into JSON."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Final

import orjson
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from lightmeter import telemetry
from lightmeter.service import logs
from lightmeter.service.http import index_page, openapi
from lightmeter.service.http.connections import Connections
from lightmeter.service.http.fault_injection import IGNORE_IDEMPOTENCY_KEY, FaultInjector
from lightmeter.service.http.handlers import Handlers, random_hex
from lightmeter.service.http.parameters import from_json, from_query
from lightmeter.service.http.public_url import PublicUrl
from lightmeter.service.http.replies import Reply, error_reply, failure
from lightmeter.service.http.request_body import BodyMemory, defer_continue, read_body
from lightmeter.service.metrics import CONTENT_TYPE, Metrics
from lightmeter.wire.constants import MAX_QUERY_CHARS, QUERY_TOO_LONG, REQUEST_FAILED
from lightmeter.wire.request import AnalyzeRequest

log = logging.getLogger("lightmeter.service")

LARGE_BODY_BYTES: Final = 1024 * 1024
"""Bodies of at least this size are parsed in a thread, because they would block the event loop."""

RETRY_AFTER_S: Final = 2
"""Value of the header Retry-After, in seconds, of an answer with status 503, if the service has no estimate.

It is the interval at which public clients poll.
"""

NOT_READY: Final = failure(503, "The service is starting or stopping: ask again.")
"""Reply to new requests while the service starts or stops; clients can still poll for results."""

REQUEST_ID: Final = "X-Request-ID"

CORS_HEADERS: Final = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Expose-Headers": f"{REQUEST_ID}, Retry-After",
}
"""Headers that allow web pages of any host to call the API (CORS).

This is safe because browsers do not add the API key by themselves.
"""

PREFLIGHT: Final = {
    **CORS_HEADERS,
    "Access-Control-Allow-Methods": "GET, POST",
    "Access-Control-Allow-Headers": f"X-API-Key, Authorization, Content-Type, Idempotency-Key, {REQUEST_ID}",
    "Access-Control-Max-Age": "86400",
}


@dataclass(frozen=True, slots=True)
class HttpContext:
    """Objects that the HTTP routes use in addition to `Handlers`, which contains the logic of the endpoints.

    Attributes:
        is_ready: Function that returns whether the service accepts new requests. It returns False while the service
            starts or stops.
        metrics: Metrics that `/metrics` shows.
        connections: The server's open HTTP connections, and the limits of their number and time.
        public_url: Base URL of the service.
        injector: Injects faults on purpose, for tests of clients; None: no faults are injected.
    """

    is_ready: Callable[[], bool]
    metrics: Metrics
    connections: Connections
    public_url: PublicUrl
    injector: FaultInjector | None = None


def application(handlers: Handlers, context: HttpContext) -> web.Application:
    """Return an aiohttp application with the routes and middlewares of the service."""
    faults = [] if context.injector is None else [context.injector.middleware()]
    app = web.Application(middlewares=[_log_requests(context), *faults, _respond_in_json])
    endpoints = _Endpoints(handlers, context)
    app.router.add_post("/api/fetch", endpoints.post_fetch, expect_handler=defer_continue)
    app.router.add_get("/api/fetch", endpoints.get_fetch, allow_head=False)  # HEAD must not be charged
    app.router.add_get("/api/response/{request_id}", endpoints.response)
    app.router.add_get("/api/credits", endpoints.credits)
    app.router.add_get("/api/backends", endpoints.backends)
    app.router.add_get("/healthz", endpoints.health)
    app.router.add_get("/readyz", endpoints.ready)
    app.router.add_get("/metrics", endpoints.metrics)
    app.router.add_get("/openapi.json", endpoints.openapi)
    app.router.add_get("/", endpoints.index)
    return app


def _json(reply: Reply) -> web.Response:
    response = web.Response(status=reply.status, body=orjson.dumps(reply.body), content_type="application/json")
    response.headers.update(reply.headers)
    if reply.status == 503:  # noqa: PLR2004 (service unavailable)
        response.headers.setdefault("Retry-After", str(RETRY_AFTER_S))
    return response


def _log_requests(context: HttpContext) -> Middleware:
    """Return the outermost middleware: it gives each HTTP request an id, measures its time, and counts and logs it."""

    @web.middleware
    async def observe(request: web.Request, handler: Handler) -> web.StreamResponse:
        start_s = time.perf_counter()
        sent = request.headers.get(REQUEST_ID, "")
        current = sent if logs.CLIENT_REQUEST_ID.fullmatch(sent) else random_hex(8)
        token = logs.request_id.set(current)
        context.metrics.in_flight.inc()
        status = 499  # the client has closed the connection before the answer (nginx's code)
        traceparent = request.headers.get("traceparent")
        try:
            with (
                telemetry.span(f"{request.method} {_route(request)}", kind="server", parent=traceparent) as span,
                context.connections.handling(request),
            ):
                response = await handler(request)
                status = response.status
                span.set(
                    {
                        "http.request.method": request.method,
                        "http.route": _route(request),
                        "http.response.status_code": status,
                        "lightmeter.request_id": request.get(ANALYSIS_ID),
                    }
                )
            response.headers[REQUEST_ID] = current
            response.headers["X-Content-Type-Options"] = "nosniff"
            return response
        finally:
            context.metrics.in_flight.dec()
            seconds = time.perf_counter() - start_s
            context.metrics.count_answer(_route(request), status, seconds)
            ids = request.get(ACCOUNT_ID), request.get(ANALYSIS_ID)
            logs.log_access(request.method, request.rel_url.raw_path, status, seconds, *ids)
            logs.request_id.reset(token)

    return observe


def _route(request: web.Request) -> str:
    """Return the pattern of a request's route, such as `/api/response/{request_id}`.

    Return `other` if no route matches the request.
    """
    resource = request.match_info.route.resource
    return "other" if resource is None else resource.canonical


@web.middleware
async def _respond_in_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Middleware: turn errors of route handlers into JSON answers, and add CORS headers to answers of the API."""
    if not request.path.startswith("/api/"):
        return await _handle_errors(request, handler)
    if request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers:
        return web.Response(status=204, headers=PREFLIGHT)
    response = await _handle_errors(request, handler)
    response.headers.update(CORS_HEADERS)
    response.headers["Cache-Control"] = "no-store"
    return response


async def _handle_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Call the handler of a route, and turn its exceptions into JSON answers with a status and a message."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        response = _json(failure(error.status, f"{error.reason}."))
        if "Allow" in error.headers:
            response.headers["Allow"] = error.headers["Allow"]
        return response
    except Exception as error:
        reply = error_reply(error)
        if reply is not None:
            return _json(reply)
        log.exception("%s %s failed", request.method, request.path)
        return _json(failure(500, f"{REQUEST_FAILED}: {type(error).__name__}."))


ACCOUNT_ID: Final = web.RequestKey("lightmeter_account_id", int)
"""Key under which a request stores the number of its account, for the access log."""

ANALYSIS_ID: Final = web.RequestKey("lightmeter_analysis_id", str)
"""Key under which a request of /api/fetch stores the `request_id` of its answer, for the access log."""


class _Endpoints:
    """Route handlers: they parse the HTTP request, call `Handlers`, and return the reply as JSON."""

    def __init__(self, handlers: Handlers, context: HttpContext) -> None:
        self._handlers = handlers
        self._context = context
        self._bodies = BodyMemory()
        # Created at the first request for it, because most services get none.
        self._openapi = cache(lambda: orjson.dumps(openapi.document(handlers.offers)))

    async def _account(self, request: web.Request) -> int:
        request[ACCOUNT_ID] = await self._handlers.account(request.headers)
        return request[ACCOUNT_ID]

    async def post_fetch(self, request: web.Request) -> web.Response:
        account = await self._account(request)
        if not self._context.is_ready():
            return _json(NOT_READY)
        with self._bodies.share(account) as share:
            body = await read_body(request, share, self._context.connections.limits.body_s)
            parsed = from_json(body) if len(body) < LARGE_BODY_BYTES else await asyncio.to_thread(from_json, body)
            del body  # as large as the uploads in `parsed`
            return await self._analyze(request, account, parsed)

    async def get_fetch(self, request: web.Request) -> web.Response:
        account = await self._account(request)
        if not self._context.is_ready():
            return _json(NOT_READY)
        if len(request.rel_url.raw_query_string) > MAX_QUERY_CHARS:
            return _json(failure(414, QUERY_TOO_LONG))
        return await self._analyze(request, account, from_query(list(request.query.items())))

    async def _analyze(self, request: web.Request, account: int, parsed: AnalyzeRequest) -> web.Response:
        self._context.connections.mark_body_received(request)
        base_url = self._context.public_url.base_url(request)
        key = None if IGNORE_IDEMPOTENCY_KEY in request else request.headers.get("Idempotency-Key")
        reply = await self._handlers.analyze(account, parsed, base_url, key)
        if found := reply.body.get("request_id"):
            request[ANALYSIS_ID] = str(found)
        return _json(reply)

    async def response(self, request: web.Request) -> web.Response:
        account = await self._account(request)
        return _json(await self._handlers.result(account, request.match_info["request_id"]))

    async def credits(self, request: web.Request) -> web.Response:
        return _json(await self._handlers.credits(await self._account(request)))

    async def backends(self, request: web.Request) -> web.Response:
        await self._account(request)
        return _json(Reply(200, self._handlers.offers.model_dump()))

    async def health(self, _: web.Request) -> web.Response:
        return _json(Reply(200, {"status": "ok"}))

    async def ready(self, _: web.Request) -> web.Response:
        if not self._context.is_ready():
            return _json(Reply(503, {"status": "starting or draining"}))
        if not await self._handlers.database_answers():
            return _json(Reply(503, {"status": "the database does not answer"}))
        return _json(Reply(200, {"status": "ready"}))

    async def metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=self._context.metrics.as_text(), headers={"Content-Type": CONTENT_TYPE})

    async def openapi(self, _: web.Request) -> web.Response:
        return web.Response(body=self._openapi(), content_type="application/json", headers=CORS_HEADERS)

    async def index(self, request: web.Request) -> web.Response:
        accepted = request.headers.get("Accept", "")
        if "application/json" in accepted and "text/html" not in accepted:
            return _json(Reply(200, index_page.index(self._handlers.offers)))
        body, headers = index_page.page()
        return web.Response(body=body, content_type="text/html", charset="utf-8", headers=headers)
