"""Helpers of the tests of `--stream`: a slow web server of pictures, and the steps of a run."""

from __future__ import annotations

import asyncio
from pathlib import Path

from aiohttp import web

import lightmeter as lm
from lightmeter.api.run_steps import StartArguments
from lightmeter.api.streaming_run import stream_manifest
from lightmeter.options import make_options
from lightmeter.planning.progress import Progress
from lightmeter.settings import read_settings
from lightmeter.testing import tiny_jpeg
from tests.engine.hostile import Hostile

OPTIONS = {"features": ["tags"], "backends": ["clarifai"], "budget": 500, "batch_size": 1}


class SlowHost:
    """A web server of pictures, each with its own content; number `held_number` waits until `free` is set."""

    def __init__(self) -> None:
        self.free = asyncio.Event()
        self.held_number = -1
        self.paths: list[str] = []
        self.answered: set[str] = set()

    async def answer(self, request: web.Request) -> web.Response:
        """Serve `/<number>.jpg`, or `/<number>-copy.jpg`, which has the same content."""
        name = request.path.strip("/").removesuffix(".jpg").removesuffix("-copy")
        self.paths.append(request.path)
        if int(name) == self.held_number:
            await self.free.wait()
        self.answered.add(request.path)
        return web.Response(body=tiny_jpeg() + name.encode(), content_type="image/jpeg")


def stream(source, out: Path, service: Hostile, stop: asyncio.Event | None = None, **options):
    """Return the steps of a run with `stream`."""
    wanted = make_options(**{**OPTIONS, "base_url": service.base_url, **options})
    return stream_manifest(source, out, wanted, StartArguments(consent=True), stop, read_settings())


async def until(steps, condition) -> Progress:
    """Return the first progress for which a condition holds."""
    async for step in steps:
        assert isinstance(step, Progress)
        if condition(step):
            return step
    raise AssertionError("the run ended")


async def last(steps) -> lm.Run:
    """Run to the end and return the run."""
    async for step in steps:
        result = step
    return result


def names_charged(service: Hostile) -> list[str]:
    """Return the names of the pictures that were paid for, in order."""
    return sorted(Path(url).stem for url in service.charged)
