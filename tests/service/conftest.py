"""Fixtures: the real service on a socket, and a site on loopback with media to fetch."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from dataclasses import dataclass, field
from io import BytesIO
from itertools import count
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from lightmeter.background_loop import BackgroundLoop
from lightmeter.service.app import ServiceConfig, create_api_key, start_service
from lightmeter.service.store.credits import balances
from lightmeter.service.store.store import Store
from lightmeter.testing import tiny_jpeg, tiny_png, tiny_video
from tests.postgres_server import postgres_or_skip

MEDIA = Path(__file__).parents[2] / "data" / "media"
JSON = {"Content-Type": "application/json"}
POLLS = 600
VIDEO_FRAMES = 25
"""Frames at ten a second, which give captures at 0, 1 and 2 s."""


@dataclass
class Answered:
    """An answer of the service."""

    status: int
    body: dict
    headers: dict


class Caller:
    """A client of the service, with or without a key."""

    def __init__(self, session: aiohttp.ClientSession, base_url: str, headers: dict[str, str]) -> None:
        self.session = session
        self.base_url = base_url
        self.headers = headers

    async def send(self, method: str, path: str, **more) -> Answered:
        """Send any request; the answer must be JSON."""
        headers = {**self.headers, **more.pop("headers", {})}
        async with self.session.request(method, self.base_url + path, headers=headers, **more) as answer:
            assert answer.content_type == "application/json", await answer.text()
            return Answered(answer.status, await answer.json() if method != "HEAD" else {}, dict(answer.headers))

    async def ask(self, headers: dict[str, str] | None = None, **fields) -> Answered:
        """POST /api/fetch."""
        body = BytesIO(json.dumps(fields).encode())
        return await self.send("POST", "/api/fetch", data=body, headers={**JSON, **(headers or {})})

    async def poll(self, request_id: str) -> Answered:
        """GET /api/response/<id>, once."""
        return await self.send("GET", f"/api/response/{request_id}")

    async def finished(self, acknowledged: Answered) -> dict:
        """Poll until the status is final, and return the answer."""
        assert acknowledged.body["status"] == "queued", acknowledged.body
        for _ in range(POLLS):
            polled = await self.poll(acknowledged.body["request_id"])
            assert polled.status == 200, polled.body
            if polled.body["status"] not in {"queued", "processing"}:
                return polled.body
            await asyncio.sleep(0.05)
        pytest.fail("it never finished")

    async def balance(self) -> int:
        """GET /api/credits."""
        answered = await self.send("GET", "/api/credits")
        assert answered.status == 200, answered.body
        return answered.body["credits"]


@dataclass
class Site:
    """A site with media. `/held/…` answers when `gate` is set; `paths` has the requested paths."""

    folder: Path
    base_url: str = ""
    port: int = 0
    paths: list[str] = field(default_factory=list)
    arrived: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    gate: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.video = tiny_video(self.folder / "tiny.avi", frames=VIDEO_FRAMES).read_bytes()

    def url(self, path: str) -> str:
        """Return the URL of a path."""
        return f"{self.base_url}/{path}"

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer by the first part of the path."""
        self.paths.append(request.path)
        name, _, rest = request.path.strip("/").partition("/")
        return await getattr(self, f"_{name}")(request, rest)

    async def _media(self, _, rest):
        return web.Response(body=(MEDIA / rest).read_bytes())

    async def _picture(self, _, rest):
        seed = int("".join(filter(str.isdigit, rest)) or 0)
        return web.Response(body=tiny_jpeg(seed) if rest.endswith(".jpg") else tiny_png(seed))

    async def _video(self, *_):
        return web.Response(body=self.video)

    async def _held(self, request, rest):
        self.arrived.release()
        while not self.gate.is_set():  # noqa: ASYNC110 (opened from another thread)
            await asyncio.sleep(0.01)
        return await self._picture(request, rest)

    async def _page(self, *_):
        return web.Response(text="<!doctype html><title>Log in</title>", content_type="text/html")

    async def _empty(self, *_):
        return web.Response(body=b"")

    async def _broken(self, *_):
        return web.Response(body=tiny_jpeg()[:200])

    async def _broken_video(self, *_):
        return web.Response(body=b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom" + b"\0" * 99)

    async def _status(self, _, rest):
        return web.Response(status=int(rest.partition("/")[0]), text="no")

    async def _hop(self, _, rest):
        left = int(rest.partition("/")[0])
        raise web.HTTPFound(f"/hop/{left - 1}/x.png" if left else "/picture/1.png")

    async def _to(self, request, _):
        return web.Response(status=302, headers={"Location": request.query["where"]})

    async def _gzip(self, *_):
        response = web.Response(body=tiny_png(3))
        response.enable_compression(web.ContentCoding.gzip)
        return response

    async def _truncated(self, request, _):
        response = web.StreamResponse(headers={"Content-Length": "100000"})
        await response.prepare(request)
        await response.write(tiny_jpeg()[:300])
        await asyncio.sleep(0.02)
        request.transport.abort()
        return response

    async def _endless(self, request, rest):
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(tiny_jpeg() if rest.endswith(".jpg") else b"\0\0\0\x18ftypmp42")
        for _ in range(100_000):
            await response.write(b"\0" * 65_536)
        return response

    async def _slow(self, request, _):
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(tiny_jpeg()[:100])
        await asyncio.sleep(60)
        return response

    async def _cookie(self, request, _):
        if "Cookie" in request.headers:
            return web.Response(status=418)
        response = web.Response(body=tiny_png(4))
        response.set_cookie("mine", "1")
        return response


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory):
    """Use a cache folder of this run for converted models instead of the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LIGHTMETER_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def portal():
    """An event loop for servers, which live longer than the loop of a test."""
    portal = BackgroundLoop("lightmeter-test-servers")
    yield portal
    assert portal.run(_others()) == []
    portal.close()


async def _others() -> list[str]:
    """Return unfinished tasks; a server waits ten seconds for the rest of a refused body."""
    for _ in range(POLLS):
        others = [repr(task) for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        if not others:
            return []
        await asyncio.sleep(0.02)
    return others


@pytest.fixture(scope="session")
def _site(portal, tmp_path_factory):
    site = Site(tmp_path_factory.mktemp("site"))
    app = web.Application()
    app.router.add_get("/{path:.*}", site.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)

    async def serve():
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()

    portal.run(serve())
    site.port = runner.addresses[0][1]
    site.base_url = f"http://127.0.0.1:{site.port}"
    yield site
    portal.run(runner.cleanup())


@pytest.fixture
def site(_site):
    """The site, reset for a test."""
    _site.paths.clear()
    _site.gate.clear()
    _site.arrived = threading.Semaphore(0)
    yield _site
    _site.gate.set()


@pytest.fixture(scope="session")
def service(portal, tmp_path_factory):
    """A service with the palette back end (1 credit a picture), which may fetch from loopback."""
    database = f"sqlite:///{tmp_path_factory.mktemp('service') / 'service.db'}"
    running = portal.run(start_service(ServiceConfig(database=database, backends=("palette",), allow_private=True)))
    running.database = database
    yield running
    portal.run(running.close())


@pytest.fixture(scope="session")
def full_service(portal, tmp_path_factory):
    """A service with all local back ends."""
    database = f"sqlite:///{tmp_path_factory.mktemp('full') / 'service.db'}"
    running = portal.run(start_service(ServiceConfig(database=database, allow_private=True)))
    running.database = database
    yield running
    portal.run(running.close())


@pytest.fixture
async def starting(portal, tmp_path):
    """Start services for one test, by default with one SQLite file and the palette back end."""
    running = []

    async def begin(**config):
        database = config.pop("database", f"sqlite:///{tmp_path / 'own.db'}")
        options = {"backends": ("palette",), "allow_private": True, **config}
        service = await portal.call(start_service(ServiceConfig(database=database, **options)))
        service.database = database
        running.append(service)
        return service

    yield begin
    for service in running:
        await portal.call(service.close())


@pytest.fixture(scope="session")
def _postgres():
    """Start a PostgreSQL server, and return a function that creates databases."""
    yield from postgres_or_skip()


@pytest.fixture
def postgres(_postgres):
    """The URL of a new PostgreSQL database."""
    return _postgres(f"test_{next(_number)}")


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def database(request, tmp_path):
    """The URL of a new database, SQLite or PostgreSQL."""
    if request.param == "postgresql":
        return request.getfixturevalue("postgres")
    return f"sqlite:///{tmp_path / 'fresh.db'}"


@pytest.fixture
def books():
    """Return a function that reads all accounts with their ledgers."""

    async def look(database):
        store = Store(database)
        try:
            return await store.read(balances)
        finally:
            store.close()

    return look


@pytest.fixture
async def session():
    """An HTTP session."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        yield session


_number = count(1)


@pytest.fixture
async def calling(session):
    """Create clients, each with a new account."""

    async def begin(service, credits=1000):  # noqa: A002 (as it reads in the tests)
        key = await create_api_key(service.database, f"account-{next(_number)}", credits)
        return Caller(session, service.base_url, {"X-API-Key": f"Token {key}"})

    return begin


@pytest.fixture
async def caller(calling, service):
    """A client of the shared service with a thousand credits."""
    return await calling(service)


@pytest.fixture
def encoded():
    """Return a function that encodes a tiny picture as base64."""

    def encode(seed=0):
        return base64.b64encode(tiny_png(seed)).decode()

    return encode
