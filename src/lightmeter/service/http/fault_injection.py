"""Faults on their way between HTTP and the API: one layer, and none at all when no fault is asked for.

What goes wrong before the work costs nothing; what goes wrong after it was charged, as with a real service. Each fault
draws from chances of its own, so that one more does not change what the others do.
"""

from __future__ import annotations

import logging
import math
from collections import Counter as Tally
from email.utils import formatdate
from random import Random
from typing import Any, Final

import orjson
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from lightmeter.clock import Clock
from lightmeter.service.faults import spoiled_bodies
from lightmeter.service.faults.grammar import Faults
from lightmeter.service.faults.kinds import ODD_VALUES, Fault, FaultKind, Lane, RateLimitFault
from lightmeter.service.faults.rate_limits import LeakyBucketQueue, LimitCounter, counter
from lightmeter.service.store.auth import read_key

__all__ = ["FORGET_KEY", "FaultInjector"]

log = logging.getLogger("lightmeter.service")

FORGET_KEY: Final = web.RequestKey("lightmeter_forget_key", bool)
"""Set on a request whose Idempotency-Key is to be ignored."""

STATUSES: Final = (500, 502, 503, 504)
CUT_OFF_STATUS: Final = 499
"""What the log says of an answer that was never sent; the caller's connection is gone by then."""

TOO_MANY: Final = {"error": "Too many requests.", "status": "failed"}
PAGE: Final = "<!doctype html><title>{0}</title><h1>{0} on purpose</h1>"
RESPONSE: Final = "/api/response/"
_BODIES: Final = frozenset(
    {
        *spoiled_bodies.BODY_FAULTS,
        FaultKind.MISSING,
        FaultKind.LATE,
        FaultKind.UNKNOWN,
        FaultKind.ODD_VALUE,
        FaultKind.CHARGE_LATE,
    }
)


class FaultInjector:
    """Makes a service misbehave.

    Args:
        faults: As it is told to.
        clock: Time; what is slow sleeps on it.

    Attributes:
        met: How often each fault has happened, by the name it is written with.
    """

    def __init__(self, faults: Faults, clock: Clock) -> None:
        self.met: Tally[str] = Tally()
        self._faults = faults
        self._clock = clock
        self._chances = {
            fault: Random(f"{faults.seed}:{index}:{fault.kind}")  # noqa: S311 (reproducible, no secret)
            for index, fault in enumerate(faults.faults)
        }
        self._lines = {fault: LeakyBucketQueue(fault.low) for fault in faults.faults if fault.kind is FaultKind.QUEUE}
        self._counters: dict[tuple[int, str], LimitCounter] = {}
        self._acknowledged: dict[str, float] = {}
        self._unseen: dict[str, list[tuple[float, int]]] = {}

    def middleware(self) -> Middleware:
        """The layer."""

        @web.middleware
        async def inject(request: web.Request, handler: Handler) -> web.StreamResponse:
            lane = _lane(request)
            if lane is None:
                return await handler(request)
            key = read_key(request.headers) or ""
            inside: list[LimitCounter] = []
            try:
                for index, limit in enumerate(self._faults.limits):
                    if lane in limit.lanes:
                        known = self._counters.setdefault((index, key), counter(limit))
                        wait_s = known.enter(self._clock.monotonic())
                        if wait_s > 0:
                            return self._rejected(limit, wait_s)
                        inside.append(known)
                return await self._through(request, handler, lane)
            finally:
                for known in inside:
                    known.leave()

        return inject

    def _tell(self, kind: FaultKind) -> None:
        self.met[kind] += 1
        log.info("fault on purpose: %s", kind)

    def _draw(self, kind: FaultKind, lane: Lane) -> Fault | None:
        """The first fault of a kind that happens to this request."""
        for fault in self._of(kind, lane):
            if self._chances[fault].random() < fault.low:
                self._tell(kind)
                return fault
        return None

    def _of(self, kind: FaultKind, lane: Lane) -> list[Fault]:
        return [fault for fault in self._faults.faults if fault.kind is kind and lane in fault.lanes]

    def _rejected(self, limit: RateLimitFault, wait_s: float) -> web.Response:
        self._tell(FaultKind.LIMIT)
        response = web.json_response(TOO_MANY, status=limit.status)
        whole_s = max(1, math.ceil(wait_s))
        if limit.retry_after == "yes":
            response.headers["Retry-After"] = str(whole_s)
        elif limit.retry_after == "date":
            response.headers["Retry-After"] = formatdate(self._clock.now() + whole_s, usegmt=True)
        elif limit.retry_after != "no":
            response.headers["Retry-After"] = limit.retry_after
        return response

    async def _through(self, request: web.Request, handler: Handler, lane: Lane) -> web.StreamResponse:
        for fault in self._of(FaultKind.QUEUE, lane):
            await self._clock.sleep(self._lines[fault].wait(self._clock.monotonic()))
        error = self._draw(FaultKind.ERROR, lane)
        if self._draw(FaultKind.DROP_BEFORE, lane):
            return _cut(request)
        if error is not None and not error.charged:
            return self._page(error)
        if lane is Lane.POLL and self._waits(FaultKind.UNKNOWN, request):
            return web.json_response(spoiled_bodies.unknown(request.match_info["request_id"]), status=404)
        if self._of(FaultKind.FORGETFUL, lane):
            request[FORGET_KEY] = True
        response = await handler(request)
        for fault in self._of(FaultKind.SLOW, lane):
            await self._clock.sleep(self._chances[fault].uniform(fault.low, fault.high))
        answer = self._spoilt(request, response, lane)
        return self._page(error) if error is not None else self._sent(request, answer, lane)

    def _sent(self, request: web.Request, response: web.StreamResponse, lane: Lane) -> web.StreamResponse:
        """An answer to work that was done, on its way."""
        if self._draw(FaultKind.DROP_AFTER, lane):
            return _cut(request)
        if isinstance(response, web.Response) and self._draw(FaultKind.TRUNCATE, lane):
            return _Torn(request, response)
        return response

    def _page(self, error: Fault) -> web.Response:
        status = error.status or self._chances[error].choice(STATUSES)
        return web.Response(status=status, text=PAGE.format(status), content_type="text/html")

    def _waits(self, kind: FaultKind, request: web.Request) -> bool:
        """Whether an acknowledged request is still to be late, or unknown, in a poll."""
        name = request.match_info["request_id"]
        at_s = self._acknowledged.get(name)
        if at_s is None:
            return False
        waits = any(
            self._clock.monotonic() - at_s < self._of_id(kind, name).uniform(fault.low, fault.high)
            for fault in self._of(kind, Lane.POLL)
        )
        if waits:
            self._tell(kind)
        return waits

    def _of_id(self, kind: FaultKind, request_id: str) -> Random:
        """Chances of one request: the same in each poll, and in each process."""
        return Random(f"{self._faults.seed}:{kind}:{request_id}")  # noqa: S311 (reproducible, no secret)

    def _spoilt(self, request: web.Request, response: web.StreamResponse, lane: Lane) -> web.StreamResponse:
        wanted = any(fault.kind in _BODIES for fault in self._faults.faults)
        if not wanted or not isinstance(response, web.Response) or response.status != 200:  # noqa: PLR2004 (an answer)
            return response
        body = orjson.loads(_bytes(response))
        if body.get("status") == "queued":
            self._acknowledged[body["request_id"]] = self._clock.monotonic()
            return response
        body = self._before_the_charge(request, body, lane)
        response.body = orjson.dumps(body) if lane is Lane.CREDITS else self._written(request, body, lane)
        return response

    def _before_the_charge(self, request: web.Request, body: dict[str, Any], lane: Lane) -> dict[str, Any]:
        """An answer whose balance does not show yet what is to be charged late."""
        unseen = self._unseen.setdefault(read_key(request.headers) or "", [])
        now_s = self._clock.monotonic()
        for fault in self._of(FaultKind.CHARGE_LATE, lane):
            if body.get("credits_paid"):
                unseen.append((now_s + self._chances[fault].uniform(fault.low, fault.high), body["credits_paid"]))
                self._tell(fault.kind)
        unseen[:] = [charge for charge in unseen if charge[0] > now_s]
        if "credits" not in body:
            return body
        return {**body, "credits": body["credits"] + sum(paid for _, paid in unseen)}

    def _written(self, request: web.Request, body: dict[str, Any], lane: Lane) -> bytes:
        """An answer of a request's own, spoilt as told, as bytes."""
        name, changed = str(body.get("request_id")), self._changed(request, body, lane)
        if "all" in changed:
            for fault in self._of(FaultKind.ODD_VALUE, lane):
                chances = self._of_id(fault.kind, name)
                if chances.random() < fault.low:
                    self._tell(fault.kind)
                    return spoiled_bodies.odd(changed, fault.odd or chances.choice(ODD_VALUES))
        return orjson.dumps(changed)

    def _changed(self, request: web.Request, body: dict[str, Any], lane: Lane) -> dict[str, Any]:
        name = str(body.get("request_id"))
        if body.get("status") in {"completed", "failed"} and lane is Lane.POLL and self._waits(FaultKind.LATE, request):
            return spoiled_bodies.not_done(body)
        if "all" not in body:
            return body
        self._acknowledged.pop(name, None)
        for fault in self._of(FaultKind.MISSING, lane):
            before = len(body["all"]["assets"])
            body = spoiled_bodies.without(body, self._of_id(fault.kind, name), fault.low)
            if len(body["all"]["assets"]) < before:
                self._tell(fault.kind)
        for kind, spoil in spoiled_bodies.BODY_FAULTS.items():
            for fault in self._of(kind, lane):
                chances = self._of_id(kind, name)
                if chances.random() < fault.low:
                    body = spoil(body, chances, fault)
                    self._tell(kind)
        return body


def _lane(request: web.Request) -> Lane | None:
    """What a request of the API is for; None for probes, the page and preflights."""
    if request.method not in {"GET", "POST"}:
        return None
    if request.path.startswith(RESPONSE) and "request_id" in request.match_info:
        return Lane.POLL
    return {"/api/fetch": Lane.SUBMIT, "/api/credits": Lane.CREDITS}.get(request.path)


def _bytes(response: web.Response) -> bytes:
    return response.body if isinstance(response.body, bytes) else b"{}"


def _cut(request: web.Request) -> web.Response:
    """Close the connection at once; what is returned is for the log, and is never sent."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=CUT_OFF_STATUS)


class _Torn(web.StreamResponse):
    """An answer that says how long it is, and ends half way."""

    def __init__(self, request: web.Request, whole: web.Response) -> None:
        super().__init__(status=whole.status, headers=whole.headers)
        self._whole = _bytes(whole)
        self._request = request
        self.content_length = len(self._whole)

    async def write_eof(self, data: bytes = b"") -> None:  # noqa: ARG002 (the framework's own signature)
        """Half of it, then the end of the connection."""
        await self.write(self._whole[: len(self._whole) // 2])
        if self._request.transport is not None:
            self._request.transport.close()
