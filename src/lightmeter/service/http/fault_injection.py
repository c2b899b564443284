"""Middleware that injects faults into requests and answers, so that users can test how their clients handle them.

If a fault happens before the analysis of a request, nothing is charged. If it happens after the analysis, the charge is
not refunded, as with a real service. Each fault has its own random generator. So when the operator adds a fault, the
other faults still happen at the same requests.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from email.utils import formatdate
from random import Random
from typing import Any, Final

import orjson
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from lightmeter.clock import Clock
from lightmeter.service.faults.body_faults import BODY_FAULTS, as_unfinished, encode_malformed
from lightmeter.service.faults.config import FAULT_KINDS, ODD_VALUES, Fault, FaultName, Faults, RequestType
from lightmeter.service.faults.rate_limits import LeakyBucketQueue, LimitCounter, limit_counter
from lightmeter.service.store.auth import read_key
from lightmeter.wire.constants import not_found

log = logging.getLogger("lightmeter.service")

IGNORE_IDEMPOTENCY_KEY: Final = web.RequestKey("lightmeter_ignore_idempotency_key", bool)
"""Key of an aiohttp request. If it is set, the service ignores the header Idempotency-Key of the request."""

TOO_MANY_STATUS: Final = 429
ERROR_STATUSES: Final = (500, 502, 503, 504)

ABORTED_STATUS: Final = 499
"""Status in the log for an answer that was not sent. nginx uses the same number."""

TOO_MANY: Final = {"error": "Too many requests.", "status": "failed"}
ERROR_PAGE: Final = "<!doctype html><title>{0}</title><h1>{0} on purpose</h1>"
RESPONSE_PATH: Final = "/api/response/"

_BODY_READERS: Final = frozenset({*BODY_FAULTS, "late", "unknown", "odd-value", "charge-late"})
"""Names of the faults that need the parsed JSON of an answer. If none of them is configured, no answer is parsed."""


class FaultInjector:
    """Injects the faults that the operator configured into requests and answers, so that users can test their clients.

    Attributes:
        fault_counts: Name of a fault → how often it has been injected since the start of the service.
    """

    def __init__(self, faults: Faults, clock: Clock) -> None:
        self.fault_counts: Counter[str] = Counter()
        self._faults = faults
        self._clock = clock
        self._random = {
            fault: Random(f"{faults.seed}:{index}:{fault.name}")  # noqa: S311 (reproducible, no secret)
            for name in FAULT_KINDS
            for index, fault in enumerate(faults.active(name))
        }
        self._queues = {fault: LeakyBucketQueue(fault.per_second) for fault in faults.active("queue")}
        self._limit_counters: dict[tuple[Fault, str], LimitCounter] = {}
        self._acknowledged_s: dict[str, float] = {}
        self._late_charges: dict[str, list[tuple[float, int]]] = {}

    def middleware(self) -> Middleware:
        """Return the aiohttp middleware that injects the faults."""

        @web.middleware
        async def inject(request: web.Request, handler: Handler) -> web.StreamResponse:
            request_type = _request_type(request)
            if request_type is None:
                return await handler(request)
            key = read_key(request.headers) or ""
            entered: list[LimitCounter] = []
            try:
                for limit in self._faults.active("429", request_type):
                    counter = self._limit_counters.setdefault((limit, key), limit_counter(limit))
                    wait_s = counter.enter(self._clock.monotonic())
                    if wait_s > 0:
                        return self._rate_limited(limit, wait_s)
                    entered.append(counter)
                return await self._handle(request, handler, request_type)
            finally:
                for counter in entered:
                    counter.leave()

        return inject

    def _count(self, fault: Fault) -> None:
        self.fault_counts[fault.name] += 1
        log.info("fault on purpose: %s", fault.name)

    def _draw_fault(self, name: FaultName, request_type: RequestType) -> Fault | None:
        """Decide at random whether a fault called `name` happens to a request. If so, count it.

        Return the fault that happens; None: no such fault happens. `request_type` is the type of the request, such as
        a poll; the operator may limit a fault to some types.
        """
        for fault in self._faults.active(name, request_type):
            if self._random[fault].random() < fault.chance:
                self._count(fault)
                return fault
        return None

    def _request_random(self, fault: Fault, request_id: str) -> Random:
        """Return a random generator whose numbers depend only on the seed, the fault's name and `request_id`."""
        return Random(f"{self._faults.seed}:{fault.name}:{request_id}")  # noqa: S311 (reproducible, no secret)

    def _rate_limited(self, limit: Fault, wait_s: float) -> web.Response:
        self._count(limit)
        response = web.json_response(TOO_MANY, status=limit.status or TOO_MANY_STATUS)
        whole_s = max(1, math.ceil(wait_s))
        if limit.retry_after == "yes":
            response.headers["Retry-After"] = str(whole_s)
        elif limit.retry_after == "date":
            response.headers["Retry-After"] = formatdate(self._clock.now() + whole_s, usegmt=True)
        elif limit.retry_after != "no":
            response.headers["Retry-After"] = f"{limit.retry_after:g}"
        return response

    async def _handle(self, request: web.Request, handler: Handler, request_type: RequestType) -> web.StreamResponse:
        """Answer a request, and inject all faults except rate limits, which the middleware has already applied.

        Args:
            request: The request.
            handler: The route's handler, which returns the answer without faults.
            request_type: Type of the request, such as a poll; the operator may limit a fault to some types.
        """
        for queue in self._faults.active("queue", request_type):
            await self._clock.sleep(self._queues[queue].delay_s(self._clock.monotonic()))
        error = self._draw_fault("5xx", request_type)
        if self._draw_fault("drop-before", request_type):
            return _abort_connection(request)
        if error is not None and error.when == "before":
            return self._error_page(error)
        if request_type is RequestType.POLL and self._hides_result("unknown", request):
            body = {"error": not_found(request.match_info["request_id"]), "status": "failed"}
            return web.json_response(body, status=404)
        if self._faults.active("forgetful", request_type):
            request[IGNORE_IDEMPOTENCY_KEY] = True
        response = await handler(request)
        for slow in self._faults.active("slow", request_type):
            await self._clock.sleep(self._random[slow].uniform(*slow.seconds))
        response = self._change_response(request, response, request_type)
        return self._error_page(error) if error is not None else self._deliver(request, response, request_type)

    def _deliver(
        self, request: web.Request, response: web.StreamResponse, request_type: RequestType
    ) -> web.StreamResponse:
        """Return the response, unless one of two faults happens that break the connection.

        The fault `drop-after` closes the connection without an answer. The fault `truncate` sends half of the answer,
        and then closes the connection. `request_type` is the type of `request`, such as a poll.
        """
        if self._draw_fault("drop-after", request_type):
            return _abort_connection(request)
        if isinstance(response, web.Response) and self._draw_fault("truncate", request_type):
            return _TruncatedResponse(request, response)
        return response

    def _error_page(self, error: Fault) -> web.Response:
        status: int = error.status or self._random[error].choice(ERROR_STATUSES)
        return web.Response(status=status, text=ERROR_PAGE.format(status), content_type="text/html")

    def _hides_result(self, name: FaultName, request: web.Request) -> bool:
        """Return whether a fault called `name` hides the result from the poll `request`. If so, count the fault.

        `name` is `late` (the caller then answers that the request still runs) or `unknown` (the caller then answers
        404). The fault starts when the service tells the client to poll. It lasts a random time in the range
        `Fault.seconds`.
        """
        request_id = request.match_info["request_id"]
        acknowledged_s = self._acknowledged_s.get(request_id)
        if acknowledged_s is None:
            return False
        for fault in self._faults.active(name, RequestType.POLL):
            delay_s = self._request_random(fault, request_id).uniform(*fault.seconds)
            if self._clock.monotonic() - acknowledged_s < delay_s:
                self._count(fault)
                return True
        return False

    def _change_response(
        self, request: web.Request, response: web.StreamResponse, request_type: RequestType
    ) -> web.StreamResponse:
        """Apply faults to the JSON of a response, and return the response. Only responses with status 200 change.

        `request_type` is the type of `request`, such as a poll.
        """
        needs_json = any(fault.name in _BODY_READERS for fault in self._faults.entries)
        if not needs_json or not isinstance(response, web.Response) or response.status != 200:  # noqa: PLR2004 (an answer)
            return response
        body = orjson.loads(_response_bytes(response))
        if body.get("status") == "queued":
            self._acknowledged_s[body["request_id"]] = self._clock.monotonic()
            return response
        body = self._hide_late_charges(request, body, request_type)
        response.body = (
            orjson.dumps(body)
            if request_type is RequestType.CREDITS
            else self._change_result(request, body, request_type)
        )
        return response

    def _hide_late_charges(
        self, request: web.Request, body: dict[str, Any], request_type: RequestType
    ) -> dict[str, Any]:
        """Apply the fault `charge-late`: hide each new charge from the balance for a random time.

        Return `body` with a balance (`credits`) to which the hidden charges of the account are added again. `body` is
        the JSON of the answer to `request`. `request_type` is the type of `request`, such as a poll.
        """
        late = self._late_charges.setdefault(read_key(request.headers) or "", [])
        now_s = self._clock.monotonic()
        for fault in self._faults.active("charge-late", request_type):
            if body.get("credits_paid"):
                late.append((now_s + self._random[fault].uniform(*fault.seconds), body["credits_paid"]))
                self._count(fault)
        late[:] = [charge for charge in late if charge[0] > now_s]
        if "credits" not in body:
            return body
        return {**body, "credits": body["credits"] + sum(credits_paid for _, credits_paid in late)}

    def _change_result(self, request: web.Request, body: dict[str, Any], request_type: RequestType) -> bytes:
        """Apply faults to `body`, the JSON of an answer to /api/fetch or to a poll, and encode it as bytes.

        `request_type` is the type of `request`: submission or poll.
        """
        is_final = body.get("status") in {"completed", "failed"}
        if is_final and request_type is RequestType.POLL and self._hides_result("late", request):
            return orjson.dumps(as_unfinished(body))
        if "all" not in body:
            return orjson.dumps(body)
        request_id = str(body.get("request_id"))
        self._acknowledged_s.pop(request_id, None)
        for name, change in BODY_FAULTS.items():
            for fault in self._faults.active(name, request_type):
                random = self._request_random(fault, request_id)
                if name != "missing" and random.random() >= fault.chance:
                    continue
                before, body = body, change(body, random, fault)
                if body != before:
                    self._count(fault)
        for odd in self._faults.active("odd-value", request_type) if "all" in body else ():
            random = self._request_random(odd, request_id)
            if random.random() < odd.chance:
                self._count(odd)
                return encode_malformed(body, random.choice(ODD_VALUES) if odd.kind is None else odd.kind)
        return orjson.dumps(body)


def _request_type(request: web.Request) -> RequestType | None:
    """Return the type of an API request: submit, poll or read the balance.

    Return None for any other request, such as GET /healthz.
    """
    if request.method not in {"GET", "POST"}:
        return None
    if request.path.startswith(RESPONSE_PATH) and "request_id" in request.match_info:
        return RequestType.POLL
    return {"/api/fetch": RequestType.SUBMIT, "/api/credits": RequestType.CREDITS}.get(request.path)


def _response_bytes(response: web.Response) -> bytes:
    return response.body if isinstance(response.body, bytes) else b"{}"


def _abort_connection(request: web.Request) -> web.Response:
    """Close the connection of a request at once, without an answer.

    Return a response, because aiohttp needs one. It is not sent; only its status is logged.
    """
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=ABORTED_STATUS)


class _TruncatedResponse(web.StreamResponse):
    """Response for the fault `truncate`: it sends only half of the bytes that its Content-Length declares."""

    def __init__(self, request: web.Request, whole: web.Response) -> None:
        super().__init__(status=whole.status, headers=whole.headers)
        self._whole = _response_bytes(whole)
        self._request = request
        self.content_length = len(self._whole)

    async def write_eof(self, data: bytes = b"") -> None:  # noqa: ARG002 (the framework's own signature)
        """Write half of the content, then close the connection; `data` is not used."""
        await self.write(self._whole[: len(self._whole) // 2])
        if self._request.transport is not None:
            self._request.transport.close()
