"""The poller respects the rate limits that answers to polls state, and gives up jobs whose polls are refused."""

from __future__ import annotations

import asyncio
import time

from aiohttp import web

from lightmeter.clock import SystemClock
from tests.engine.hostile import Hostile

QUIET_S = 1.0
POLLS_AT_ONCE = 8
SPEED_UP = 20


class SpeedUpClock(SystemClock):
    """The clock of the machine until `fast_from` (monotonic seconds); from then on it runs faster."""

    fast_from = float("inf")

    def monotonic(self) -> float:
        """Return seconds on a clock that never steps."""
        return time.monotonic() + SPEED_UP * max(0.0, time.monotonic() - self.fast_from)

    async def sleep(self, seconds: float) -> None:
        """Suspend the current task for a number of seconds of this clock."""
        await asyncio.sleep(seconds / SPEED_UP if time.monotonic() > self.fast_from else seconds)


class ThrottlingPolls(Hostile):
    """A service that refuses all polls with Retry-After for a second after the first poll for its second job."""

    quiet_until = float("inf")
    turned_away = 0
    clock = SpeedUpClock()

    async def response(self, request: web.Request) -> web.StreamResponse:
        """GET /api/response/<id>."""
        if self.quiet_until == float("inf") and request.match_info["request_id"] == "r2":
            self.quiet_until = time.monotonic() + QUIET_S
            self.clock.fast_from = self.quiet_until + QUIET_S / 2
        if time.monotonic() < self.quiet_until < float("inf"):
            self.turned_away += 1
            return web.json_response({"error": "Too many requests."}, status=429, headers={"Retry-After": "1"})
        return await super().response(request)


async def test_no_poll_leaves_before_a_retry_after_ends(try_out, monkeypatch):
    """A Retry-After in one answer holds for all polls; only polls in flight by then still arrive."""
    throttling = ThrottlingPolls(lambda *_: "ack", polls_until_done=1)
    monkeypatch.setattr("lightmeter.run_session.session.SystemClock", lambda: throttling.clock)
    run, service = await try_out(throttling, rows=24, batch_size=1)
    assert run.summary().counts["ok"] == 24
    assert 1 <= service.turned_away <= POLLS_AT_ONCE
    assert len(service.charged) == 24


class Forgetful(Hostile):
    """A service that refuses all polls for its second job."""

    async def response(self, request: web.Request) -> web.Response:
        """GET /api/response/<id>."""
        if request.match_info["request_id"] == "r2":
            self.polls += 1
            return web.json_response({"error": "Bad id."}, status=400)
        return await super().response(request)


async def test_a_job_whose_polls_are_refused_is_in_doubt(try_out, monkeypatch):
    """A new job is polled for again, an older one is given up; it was charged, so that its row stays in doubt."""
    monkeypatch.setattr("lightmeter.engine.poller.NEW_ID_S", 1.0)
    service = Forgetful(lambda *_: "charge ack")
    service.answer = lambda urls, names=None: {"credits_paid": 1, "all": {"assets": [{"name": url} for url in urls]}}
    run, _ = await asyncio.wait_for(try_out(service, rows=3, batch_size=1), 60)
    assert (run.summary().counts["ok"], run.summary().counts["in_doubt"]) == (2, 1)
    assert (run.summary().paid, run.summary().held) == (2, 1)
