"""Fixtures: runs with results, the page of `lightmeter ui` on loopback, and a browser."""

from __future__ import annotations

import csv
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from aiohttp import web

import lightmeter as lm
from lightmeter.background_loop import BackgroundLoop
from lightmeter.service.app import RunningService
from lightmeter.ui.web.web_server import WebServer, WebView
from tests.ui.slow_service import KEY, running_slow_service

DATA = Path(__file__).parents[2] / "data"
IDS = ("chelsea", "coffee", "samoyed")
CHROMIUM = shutil.which("chromium")
CHROMIUM_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


@pytest.fixture(scope="session", autouse=True)
def _isolated_settings(tmp_path_factory):
    """These tests use the embedded service and a separate cache, whatever the user's environment says."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("LIGHTMETER_BASE_URL", raising=False)
        patch.setenv("LIGHTMETER_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


def make_run(folder: Path) -> None:
    """Run two photographs and a video, a duplicate of one, and a missing file, in a folder."""
    with (DATA / "manifest.csv").open(encoding="utf-8", newline="") as lines:
        rows = {row["id"]: row for row in csv.DictReader(lines)}
    selected = [{"id": name, "path": str(DATA / rows[name]["path"]), "subject": rows[name]["subject"]} for name in IDS]
    selected += [{**selected[0], "id": "again"}, {"id": "<b>gone</b>", "path": "gone.jpg", "subject": "<i>"}]
    manifest = folder / "few.jsonl"
    manifest.write_text("".join(json.dumps(row) + "\n" for row in selected), encoding="utf-8")
    plan = lm.plan(manifest, features=["tags", "nsfw", "colors"], max_frames=2, budget=50)
    lm.run(plan, out=folder / "out")


@pytest.fixture(scope="session")
def run(tmp_path_factory) -> lm.Run:
    """The run of `make_run`, made once and copied for each process of pytest-xdist; tests do not change it."""
    own = tmp_path_factory.getbasetemp()
    common = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "run-of-ui"
    common.mkdir(exist_ok=True)
    with (common / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (common / "finished").exists():
            made = Path(tempfile.mkdtemp(dir=common))
            make_run(made)
            (common / "finished").symlink_to(made)
        shutil.copytree(common / "finished" / "out", own / "copied-run" / "out")
    return lm.open(own / "copied-run" / "out")


@pytest.fixture
def serve_views() -> Iterator[Callable[[Mapping[str, WebView]], str]]:
    """A function that serves views on loopback until the test ends, and returns the address of their page."""
    loop = BackgroundLoop("ui-test")
    runners = []

    async def start(views: Mapping[str, WebView]) -> str:
        server = WebServer(views)
        runner = web.AppRunner(server.app())
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        runners.append(runner)
        return server.url(runner.addresses[0][1])

    yield lambda views: loop.run(start(views))
    for runner in runners:
        loop.run(runner.cleanup())
    loop.close()


@pytest.fixture
def slow_service(tmp_path, monkeypatch) -> Iterator[RunningService]:
    """A service that delays and counts the requests that are charged; processes of the test use its key."""
    monkeypatch.setenv("LIGHTMETER_API_KEY", KEY)
    with running_slow_service(tmp_path) as running:
        yield running


@pytest.fixture(scope="module")
def chromium():
    """Debian's Chromium, driven by Playwright, whose event loop must end before asynchronous tests of other files."""
    playwright = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("needs Debian's chromium")
    playwright.expect.set_options(timeout=30_000)  # the machine may be busy
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def browser_tab(chromium):
    """The browser tab of a module's tests; a new one for each test would take four times as long as its page."""
    context = chromium.new_context()
    yield context.new_page()
    context.close()


@pytest.fixture
def page(browser_tab):
    """An empty browser tab in its first state; the test fails if a script of the page fails."""
    browser_tab.set_viewport_size({"width": 1200, "height": 900})
    browser_tab.emulate_media(color_scheme="light")
    problems: list[str] = []

    def record(error: Exception) -> None:
        problems.append(str(error))

    browser_tab.on("pageerror", record)
    yield browser_tab
    for other in browser_tab.context.pages[1:]:
        other.close()
    browser_tab.evaluate("location.protocol == 'about:' || sessionStorage.clear()")
    browser_tab.goto("about:blank")
    browser_tab.remove_listener("pageerror", record)
    browser_tab.context.clear_cookies()
    browser_tab.context.clear_permissions()
    assert problems == []
