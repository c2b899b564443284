"""Connections of the page of `lightmeter ui`: hostile clients, broken views, slow readers, and restarts."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
from contextlib import asynccontextmanager, suppress
from functools import wraps

import pytest
import traitlets
from aiohttp import ClientSession, WSMsgType
from playwright.sync_api import expect

from lightmeter.api.blocking import wait_for
from lightmeter.background_loop import BackgroundLoop
from lightmeter.errors import UsageError
from lightmeter.ui.view_model import MAX_ERROR_CHARACTERS, ViewModel, request
from lightmeter.ui.web import web_server
from lightmeter.ui.web.outbox import Outbox, OutboxOverflow
from lightmeter.ui.web.web_server import WebServer, WebView, listen
from tests.ui.kernels import wait_until

TOKEN = "a-token-of-this-test"
JUNK = {
    "no JSON": "not json",
    "no object": "5",
    "deep": "[" * 100_000,
    "odd state": '{"state": 5}',
    "odd request": '{"custom": {"id": 1, "method": ["double"]}}',
    "odd parameters": '{"custom": {"id": 1, "method": "double", "params": [1]}}',
    "private trait": '{"state": {"error": "x"}}',
    "unknown trait": '{"state": {"nothing": 1}}',
    "wrong type": '{"state": {"text": 1}}',
    "unknown method": '{"custom": {"id": 1, "method": "close_view"}}',
    "long method": json.dumps({"custom": {"id": 1, "method": "m" * 1_000_000}}),
    "huge float": '{"custom": {"id": 1, "method": "double", "params": {"value": 1e999}}}',
    "huge number": f'{{"custom": {{"id": 1, "method": "double", "params": {{"value": {"9" * 10_000}}}}}}}',
    "half a character": '{"custom": {"id": 1, "method": "\\ud800"}}',
    "bytes": b"\xff\xfe\x00",
}


class Echo(ViewModel):
    """A view with a text that the page sets, and a method."""

    text = traitlets.Unicode("").tag(sync=True, page_writes=True)

    @request
    def double(self, value: int) -> int:
        """Return twice a number."""
        return 2 * value


def in_background(test):
    """Run an asynchronous test in a thread of its own: Playwright's loop runs in that of the tests."""

    @wraps(test)
    def run_test(*args, **kwargs):
        wait_for(test(*args, **kwargs))

    return run_test


@asynccontextmanager
async def served(views, port=0):
    """Serve views, and yield the address and an HTTP client."""
    async with listen(WebServer(views, token=TOKEN), port) as chosen, ClientSession() as client:
        yield f"http://127.0.0.1:{chosen}", client


def view(url: str, name: str = "run") -> str:
    return f"{url}/views/{name}?token={TOKEN}"


async def answer(socket, number: int = 21):
    """Ask for twice a number, and return the answer; other messages are skipped."""
    await socket.send_json({"custom": {"id": "ask", "method": "double", "params": {"value": number}}})
    while True:
        custom = (await socket.receive_json(timeout=20)).get("custom")
        if custom is not None and custom["id"] == "ask":
            return custom.get("result")


@pytest.mark.parametrize("junk", JUNK.values(), ids=JUNK)
@in_background
async def test_junk_becomes_an_error_line(junk):
    """A message that is no request becomes a short error on the page, and the connection serves on."""
    models = []

    def create():
        models.append(Echo())
        return models[-1]

    async with served({"run": WebView("Echo", create)}) as (url, client), client.ws_connect(view(url)) as socket:
        await (socket.send_bytes(junk) if isinstance(junk, bytes) else socket.send_str(junk))
        errors = []
        while not any(errors):
            message = await socket.receive_json(timeout=20)
            errors.append(message.get("state", {}).get("error", ""))
        assert "Traceback" not in errors[-1]
        assert len(errors[-1]) <= MAX_ERROR_CHARACTERS + 1
        assert await answer(socket) == 42


@in_background
async def test_too_long_message_ends_one_connection():
    """A message above the limit closes its connection; others are served on."""
    async with served({"run": WebView("Echo", Echo)}) as (url, client), client.ws_connect(view(url)) as other:
        async with client.ws_connect(view(url)) as socket:
            with suppress(ConnectionError):  # the server may close while it is being sent
                await socket.send_str("x" * (web_server.MAX_MESSAGE_BYTES + 1))
            while (message := await socket.receive(timeout=20)).type is WSMsgType.TEXT:
                pass
            assert message.type in {WSMsgType.CLOSE, WSMsgType.CLOSED, WSMsgType.ERROR}
        assert await answer(other) == 42


@in_background
async def test_connections_are_limited(monkeypatch):
    """Beyond the most connections the server answers 503, and serves again when one is closed."""
    monkeypatch.setattr(web_server, "MAX_OPEN", 2)
    async with served({"run": WebView("Echo", Echo)}) as (url, client):
        first, second = await client.ws_connect(view(url)), await client.ws_connect(view(url))
        async with client.get(f"{url}/?token={TOKEN}") as refused, client.get(f"{url}/?token=wrong") as forbidden:
            assert (refused.status, forbidden.status) == (503, 403)
        await second.close()
        for _ in range(1_000):
            if (await client.get(f"{url}/?token={TOKEN}")).status == 200:
                break
            await asyncio.sleep(0.02)
        assert await answer(first) == 42
        await first.close()


@in_background
async def test_each_tab_has_its_own_state():
    """What one page sets is not seen by another page of the same view."""
    async with (
        served({"run": WebView("Echo", Echo)}) as (url, client),
        client.ws_connect(view(url)) as one,
        client.ws_connect(view(url)) as other,
    ):
        await one.send_json({"state": {"text": "mine"}})
        assert await answer(one) == 42
        await other.send_json({"state": {"text": "yours"}})
        texts = set()
        while "yours" not in texts:
            texts.add((await other.receive_json(timeout=20)).get("state", {}).get("text"))
        assert "mine" not in texts


@in_background
async def test_broken_view_does_not_end_the_server():
    """A view that cannot be created sends its error with the hint; other views are served."""

    def fail():
        raise UsageError("The tables are missing.", hint="Write them: lightmeter rebuild DIR")

    async with served({"explorer": WebView("Broken", fail), "run": WebView("Echo", Echo)}) as (url, client):
        async with client.ws_connect(view(url, "explorer")) as socket:
            fatal = {"message": "The tables are missing.", "hint": "Write them: lightmeter rebuild DIR"}
            assert await socket.receive_json(timeout=20) == {"fatal": fatal}
            assert (await socket.receive(timeout=20)).data == web_server.VIEW_FAILED
        async with client.ws_connect(view(url)) as socket:
            assert await answer(socket) == 42


@in_background
async def test_slow_reader_gets_the_newest_state():
    """Of many changes of a trait, a page that reads late gets one message with the newest value."""
    state = {"text": ""}
    outbox = Outbox(lambda names: {name: state[name] for name in names})
    for number in range(1_000):
        state["text"] = str(number)
        outbox.put_state(["text"])
    outbox.put({"event": "end"})
    assert [json.loads(await outbox.take()) for _ in range(2)] == [
        {"state": {"text": "999"}},
        {"custom": {"event": "end"}},
    ]


@in_background
async def test_page_that_never_reads_takes_little_memory():
    """Events beyond the limit are not kept: the connection is to be closed."""
    outbox = Outbox(lambda _: {}, max_bytes=10_000)
    for _ in range(1_000):
        outbox.put({"event": "x" * 1_000})
    assert sum(map(len, outbox._texts)) < 20_000
    with pytest.raises(OutboxOverflow):
        await outbox.take()


@pytest.mark.parametrize("goes_away", [True, False])
@in_background
async def test_page_that_stops_reading_is_ended_with_its_requests(monkeypatch, goes_away):
    """The view of a page that reads no replies is closed, also while requests of the page wait to be processed."""
    monkeypatch.setattr(web_server, "SEND_TIMEOUT_S", 0.2)
    closed = asyncio.Event()
    loop = asyncio.get_running_loop()

    class Big(ViewModel):
        @request
        def page(self) -> str:
            """Return a reply that is larger than the buffers of a connection."""
            return "x" * 5_000_000

        def close_view(self) -> None:
            loop.call_soon_threadsafe(closed.set)

    async with served({"run": WebView("Big", Big)}) as (url, client):
        socket = await client.ws_connect(view(url), max_msg_size=0)
        transport = socket._response.connection.transport
        transport.pause_reading()
        for number in range(12):
            await socket.send_json({"custom": {"id": number, "method": "page"}})
        if goes_away:
            transport.abort()
        async with asyncio.timeout(60):
            await closed.wait()
        transport.abort()


@in_background
async def test_server_ends_with_open_pages_and_leaves_no_thread():
    """A server with open pages and event streams ends; its threads end too."""
    before = {thread.name for thread in threading.enumerate()}
    async with ClientSession() as client:
        async with listen(WebServer({"run": WebView("Echo", Echo)}, token=TOKEN), 0) as port:
            socket = await client.ws_connect(view(f"http://127.0.0.1:{port}"))
            assert await answer(socket) == 42
        while (message := await socket.receive(timeout=20)).type is WSMsgType.TEXT:
            pass
        assert message.type in {WSMsgType.CLOSE, WSMsgType.CLOSED, WSMsgType.CLOSING}
    gc.collect()
    for thread in threading.enumerate():
        if thread.name.startswith("lightmeter-ui-view") and thread.name not in before:
            await asyncio.to_thread(thread.join, 20)
            assert not thread.is_alive()


@in_background
async def test_the_server_listens_on_loopback_alone():
    """The page is served on 127.0.0.1 and, where there is IPv6, on ::1; `[::1]` is an accepted host."""
    async with served({"run": WebView("Echo", Echo)}) as (url, client):
        port = url.rpartition(":")[2]
        for host in ("127.0.0.1", "localhost", "[::1]"):
            async with client.get(f"{url}/?token={TOKEN}", headers={"Host": f"{host}:{port}"}) as response:
                assert response.status == 200
        for host in ("example.com", "127.0.0.1.example.com", "[::2]", "[", "10.0.0.1"):
            async with client.get(f"{url}/?token={TOKEN}", headers={"Host": f"{host}:{port}"}) as response:
                assert response.status == 403


FIELD = """
export default { render({ model, el }) {
  const field = Object.assign(document.createElement("input"), { value: model.get("text"), ariaLabel: "Text" });
  field.onchange = () => { model.set("text", field.value); model.save_changes(); };
  el.append(field);
} };
"""


def test_page_keeps_its_filters_when_the_server_restarts(monkeypatch, page):
    """After a restart of the server at the same address, the page's new view-model gets what the page had set."""
    monkeypatch.setattr(web_server, "module_source", lambda _: FIELD)
    models: list[Echo] = []

    def create():
        models.append(Echo())
        return models[-1]

    loop = BackgroundLoop("restarts")

    def start(port):
        context = listen(WebServer({"run": WebView("Echo", create)}, token=TOKEN), port)
        return context, loop.run(context.__aenter__())

    try:
        first, port = start(0)
        page.goto(f"http://127.0.0.1:{port}/?token={TOKEN}")
        page.get_by_label("Text").fill("red cars")
        page.get_by_label("Text").press("Tab")
        loop.run(first.__aexit__(None, None, None))
        expect(page.locator("#connection")).to_contain_text("Not connected", timeout=20_000)
        second, _ = start(port)
        expect(page.locator("#connection")).to_have_text("", timeout=20_000)
        expect(page.get_by_label("Text")).to_have_value("red cars", timeout=20_000)
        wait_until(lambda: models[-1] is not models[0] and models[-1].text == "red cars", "the text is lost")
        page.goto("about:blank")
        loop.run(second.__aexit__(None, None, None))
    finally:
        loop.close()


def test_page_does_not_send_what_is_too_long(monkeypatch, serve_views, page):
    """A value above the limit of a message is refused with a sentence; the connection and a reload serve on."""
    monkeypatch.setattr(web_server, "module_source", lambda _: FIELD)
    models: list[Echo] = []
    page.goto(serve_views({"run": WebView("Echo", lambda: models.append(Echo()) or models[-1])}))
    field, connection = page.get_by_label("Text"), page.locator("#connection")
    change = "(field, size) => { field.value = 'x'.repeat(size); field.dispatchEvent(new Event('change')); }"
    field.evaluate(change, web_server.MAX_MESSAGE_BYTES)
    expect(connection).to_have_text("The last change is too long to be sent. It has no effect.")
    page.reload()
    expect(field).to_have_value("")
    field.evaluate(change, web_server.MAX_MESSAGE_BYTES // 2)
    wait_until(lambda: len(models[-1].text) == web_server.MAX_MESSAGE_BYTES // 2, "the text is not sent")
    expect(connection).to_have_text("")
    assert len(models) == 2


def test_page_shows_why_a_view_fails_and_opens_it_later(monkeypatch, serve_views, page):
    """The page shows the error of a view with its hint, and the view as soon as it can be created."""
    monkeypatch.setattr(web_server, "module_source", lambda _: FIELD)
    problems = [UsageError("There are no tables.", hint="Run lightmeter rebuild DIR.")]

    def create():
        if problems:
            raise problems[0]
        return Echo()

    page.goto(serve_views({"run": WebView("Echo", create)}))
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("There are no tables. Run lightmeter rebuild DIR.", timeout=20_000)
    problems.clear()
    expect(page.get_by_label("Text")).to_be_visible(timeout=20_000)
    expect(alert).to_have_count(0)
