"""`collect` fetches answers that wait at the service, and sends no request that costs credits."""

from __future__ import annotations

import asyncio
from dataclasses import asdict

import pytest
from aiohttp import web

import lightmeter as lm
from lightmeter.api.collect_answers import collect
from lightmeter.api.runs import stream_run
from lightmeter.errors import JournalError, JournalLocked
from lightmeter.journal.files import run_lock
from tests.engine.hostile import Hostile, listening

ROWS, WAITING = 400, 3


class Forgetful(Hostile):
    """A service that answers 404 for the requests whose jobs are marked as gone."""

    async def response(self, request: web.Request) -> web.Response:
        """GET /api/response/<id>."""
        if self.jobs[request.match_info["request_id"]].get("gone"):
            return web.json_response({"error": "Not found."}, status=404)
        return await super().response(request)


@pytest.fixture
async def interrupted(tmp_path, charges_at_once):
    """A run of which the service has accepted some requests, whose answers it keeps back; (service, folder)."""
    service, out, stop = (
        Forgetful(lambda number, body: "ok" if number == 1 else "ack"),
        tmp_path / "out",
        asyncio.Event(),
    )
    service.polls_until_done = 1 << 30
    urls = [f"http://pictures.example/{number}.jpg" for number in range(ROWS)]
    async with listening(service) as base_url:
        options = {"features": ["tags"], "backends": ["clarifai"], "precheck": False, "batch_size": 1}
        plan = await lm.aio.plan(urls, **options, max_concurrency=1, base_url=base_url)
        async for _ in stream_run(plan, out, stop=stop):
            if len(service.jobs) >= WAITING:
                stop.set()
        yield service, out


def finish(service: Hostile, requests: int) -> None:
    """Let the service have the answers of the first requests ready."""
    for job in list(service.jobs.values())[:requests]:
        job["left"] = 0


async def test_only_waiting_answers_are_fetched(interrupted):
    """All waiting answers become rows of the tables; the rows that were not sent stay pending, and nothing is sent."""
    service, out = interrupted
    posts, waiting = service.posts, len(service.jobs)
    assert WAITING <= waiting < posts < ROWS
    finish(service, waiting)
    assert asdict(await collect(out)) == {"answered": waiting, "lost": 0, "waiting": 0}
    assert service.posts == len(service.charged) == posts
    run = lm.open(out)
    assert (run.summary().counts["ok"], run.summary().counts["pending"]) == (posts, ROWS - posts)
    assert (run.assets.status == "ok").sum() == posts


async def test_answers_that_are_not_ready_wait_on(interrupted):
    """After `wait_s`, requests without an answer are still accepted ones, and a later call fetches their answers."""
    service, out = interrupted
    posts, waiting = service.posts, len(service.jobs)
    assert asdict(await collect(out, wait_s=0.2)) == {"answered": 0, "lost": 0, "waiting": waiting}
    finish(service, waiting)
    assert asdict(await collect(out)) == {"answered": waiting, "lost": 0, "waiting": 0}
    assert service.posts == posts


async def test_answers_that_the_service_has_deleted_are_lost(interrupted, monkeypatch):
    """A request that the service no longer knows is lost, and its row is not sent again."""
    service, out = interrupted
    posts, waiting = service.posts, len(service.jobs)
    for job in service.jobs.values():
        job["gone"] = True
    monkeypatch.setattr("lightmeter.engine.poller.NEW_ID_S", -1.0)
    assert asdict(await collect(out)) == {"answered": 0, "lost": waiting, "waiting": 0}
    assert service.posts == posts


async def test_folders_without_waiting_answers_ask_nothing(try_out, tmp_path):
    """A finished run needs no service and no key; a folder without a run is an error."""
    run, service = await try_out(lambda number, body: "ok")
    posts = service.posts
    assert asdict(await collect(run.folder)) == {"answered": 0, "lost": 0, "waiting": 0}
    assert service.posts == posts
    with pytest.raises(JournalError):
        await collect(tmp_path / "none")


async def test_a_folder_in_use_is_left_alone(interrupted):
    """While another process runs the folder, `collect` raises an error and changes nothing."""
    service, out = interrupted
    polls = service.polls
    with run_lock(out), pytest.raises(JournalLocked):
        await collect(out)
    assert service.polls == polls
