"""Polls keep to what the service says to polls."""

from __future__ import annotations

import time

from aiohttp import web

from tests.engine.hostile import Hostile

QUIET_S = 1.0
POLLS_AT_ONCE = 8


class Busy(Hostile):
    """For a second after the first poll for the second job it asks every poll to come back in a second."""

    quiet_until = float("inf")
    turned_away = 0

    async def response(self, request: web.Request) -> web.StreamResponse:
        """GET /api/response/<id>."""
        if self.quiet_until == float("inf") and request.match_info["request_id"] == "r2":
            self.quiet_until = time.monotonic() + QUIET_S
        if time.monotonic() < self.quiet_until < float("inf"):
            self.turned_away += 1
            return web.json_response({"error": "Too many requests."}, status=429, headers={"Retry-After": "1"})
        return await super().response(request)


async def test_no_poll_leaves_before_a_retry_after_ends(try_out):
    """What one poll is told holds for all of them: only those on the wire by then still come."""
    run, service = await try_out(Busy(lambda *_: "ack", polls_until_done=1), rows=24, batch_size=1)
    assert run.summary().counts["ok"] == 24
    assert 1 <= service.turned_away <= POLLS_AT_ONCE
    assert len(service.charged) == 24
