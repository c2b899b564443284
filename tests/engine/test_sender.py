"""A short outage of the service delays a run; a lasting one stops it."""

from __future__ import annotations

import asyncio
import time

import pytest

from lightmeter.client.client import Client
from lightmeter.errors import Unreachable
from tests.engine.hostile import Hostile

CONNECT_S = 0.2


@pytest.fixture
def outage(monkeypatch):
    """Return a function: from the 100th request on, connections cannot be made for a number of seconds."""
    send_request = Client.send_request

    def start(seconds):
        posts, up_at = 0, float("inf")

        async def send(client, body, **options):
            nonlocal posts, up_at
            posts += 1
            if posts == 100:
                up_at = time.monotonic() + seconds
            if posts >= 100 and time.monotonic() < up_at:
                await asyncio.sleep(CONNECT_S)
                raise Unreachable("No connection.")
            return await send_request(client, body, **options)

        monkeypatch.setattr(Client, "send_request", send)

    return start


async def test_a_restart_of_the_service_does_not_stop_the_run(try_out, outage):
    """Requests that fail together in a short outage count as one failure: the run goes on after the outage."""
    outage(1.0)
    run, service = await try_out(Hostile(lambda *_: "well", answer_s=0.05), rows=200, batch_size=1)
    assert (run.stopped_by, run.summary().counts["ok"], len(service.charged)) == (None, 200, 200)


async def test_a_lasting_outage_stops_the_run(try_out, outage, monkeypatch):
    """If the service stays away, the run stops with the reason, and nothing is held for pending rows."""
    monkeypatch.setattr("lightmeter.engine.sender.UNREACHABLE_PAUSE_S", 0.02)
    outage(float("inf"))
    run, _ = await try_out(lambda *_: "well", rows=200, batch_size=1)
    assert isinstance(run.stopped_by, Unreachable)
    assert (run.summary().counts["ok"], run.summary().counts["pending"], run.summary().held) == (99, 101, 0)
