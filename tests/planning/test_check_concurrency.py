"""Planning checks many rows at once, each host within its limit, and continues after it was killed."""

import asyncio
import signal
from contextlib import asynccontextmanager, suppress

import pytest
from aiohttp import web

import lightmeter as lm
from lightmeter.errors import SettingsError
from lightmeter.journal.thumbnails import THUMBNAILS_NAME
from lightmeter.settings import read_settings
from lightmeter.sqlite import Error, open_read_only
from lightmeter.testing import tiny_jpeg
from tests.e2e.kills.processes import settings_of_the_test

DEADLINE_S = 60


@pytest.fixture(autouse=True)
def _own_folders(monkeypatch, tmp_path):
    monkeypatch.setenv("LIGHTMETER_SETTINGS", "/dev/null")
    monkeypatch.setenv("LIGHTMETER_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("LIGHTMETER_BASE_URL", raising=False)


class PictureHost:
    """A web server of pictures. It holds requests while `free` is not set, and counts them."""

    def __init__(self):
        self.free = asyncio.Event()
        self.free.set()
        self.picture = tiny_jpeg()
        self.paths = []
        self.in_flight = self.most_in_flight = 0
        self.on_request = lambda: None

    async def answer(self, request):
        """Serve the picture, when `free` is set."""
        self.paths.append(request.path)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            self.on_request()
            await self.free.wait()
            return web.Response(body=self.picture + str(request.url).encode(), content_type="image/jpeg")
        finally:
            self.in_flight -= 1


@asynccontextmanager
async def host():
    """Yield a `PictureHost` and its address."""
    pictures = PictureHost()
    app = web.Application()
    app.router.add_get("/{path:.*}", pictures.answer)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
    await runner.setup()
    listening = web.TCPSite(runner, "127.0.0.1", 0)
    await listening.start()
    try:
        yield pictures, f"http://127.0.0.1:{listening._server.sockets[0].getsockname()[1]}"
    finally:
        pictures.free.set()
        await runner.cleanup()


async def test_checks_of_one_host_grow_to_its_limit(monkeypatch):
    """A host that answers gets as many requests at once as the setting allows, and not more."""
    monkeypatch.setenv("LIGHTMETER_MAX_CHECKS_PER_HOST", "20")
    async with asyncio.timeout(DEADLINE_S), host() as (pictures, url):

        def hold():
            if len(pictures.paths) == 300:
                pictures.free.clear()
            if pictures.in_flight == 20:
                pictures.free.set()

        pictures.on_request = hold
        plan = await lm.aio.plan([f"{url}/{number}.jpg" for number in range(500)], features=["colors"])
    assert plan.counts["pending"] == 500
    assert pictures.most_in_flight == 20


async def test_silent_host_does_not_hold_others_back():
    """While one host does not answer, the rows of another are checked, and the rows keep their order."""
    async with asyncio.timeout(DEADLINE_S), host() as (silent, first), host() as (quick, second):
        silent.free.clear()
        quick.on_request = lambda: silent.free.set() if len(quick.paths) == 600 else None
        rows = [f"{first}/{number}.jpg" for number in range(300)] + [f"{second}/{number}.jpg" for number in range(600)]
        plan = await lm.aio.plan(rows, features=["colors"])
    assert plan.counts["pending"] == 900
    with open_read_only(plan.folder / "journal.sqlite") as db:
        assert [url for (url,) in db.execute("SELECT url FROM items ORDER BY seq")] == rows


@pytest.mark.parametrize("name", ["LIGHTMETER_MAX_CHECKS", "LIGHTMETER_MAX_CHECKS_PER_HOST"])
def test_limits_of_zero_are_refused(monkeypatch, name):
    """A limit of no checks is an error of the settings."""
    monkeypatch.setenv(name, "0")
    with pytest.raises(SettingsError, match=name):
        read_settings()


def rows_on_disk(folder):
    """Return how many results are on disk."""
    for path in folder.glob("cache/checks/*.sqlite"):
        with suppress(Error), open_read_only(path) as db:
            return db.execute("SELECT count(*) FROM checks").get
    return 0


async def test_killed_plan_continues(fork_server, tmp_path):
    """A plan that is made again after `kill -9` checks only the rows that it had not checked."""
    async with asyncio.timeout(DEADLINE_S), host() as (pictures, url):
        (tmp_path / "m.csv").write_text("url\n" + "".join(f"{url}/{row}.jpg\n" for row in range(100)))
        pictures.on_request = lambda: pictures.free.clear() if len(pictures.paths) == 60 else None
        process = fork_server.start("plan", tmp_path / "m.csv", "--features", "colors", env=settings_of_the_test())
        while (row_count := rows_on_disk(tmp_path)) < 30:  # noqa: ASYNC110 (another process writes them)
            await asyncio.sleep(0.05)
        process.signal(signal.SIGKILL)
        await asyncio.to_thread(process.wait)
        pictures.on_request, before = lambda: None, len(pictures.paths)
        pictures.free.set()
        plan = await lm.aio.plan(tmp_path / "m.csv", features=["colors"])
    assert plan.counts["pending"] == 100
    assert len(pictures.paths) - before <= 100 - row_count
    assert set(pictures.paths) == {f"/{row}.jpg" for row in range(100)}
    assert rows_on_disk(tmp_path) == 100
    with open_read_only(plan.folder / THUMBNAILS_NAME) as db:
        assert db.execute("SELECT count(*) FROM thumbnails").get == 100, "also those of the killed plan"


async def test_cancelled_plan_checks_rows_with_errors_again(tmp_path):
    """Of a cancelled plan, only the results of sound rows are kept: a repaired picture is seen."""
    request_blocked = asyncio.Event()
    async with asyncio.timeout(DEADLINE_S), host() as (pictures, url):

        def hold():
            pictures.picture = tiny_jpeg() if len(pictures.paths) > 20 else b"Not found"
            if len(pictures.paths) == 60:
                pictures.free.clear()
                request_blocked.set()

        pictures.on_request = hold
        rows = [f"{url}/{row}.jpg" for row in range(100)]
        first = asyncio.create_task(lm.aio.plan(rows, features=["colors"]))
        await request_blocked.wait()
        first.cancel()
        await asyncio.wait({first})
        row_count = rows_on_disk(tmp_path)
        pictures.on_request, before = lambda: None, len(pictures.paths)
        pictures.free.set()
        plan = await lm.aio.plan(rows, features=["colors"])
    assert plan.counts["pending"] == 100
    assert 0 < row_count <= 40
    assert len(pictures.paths) - before == 100 - row_count
    assert rows_on_disk(tmp_path) == 100
