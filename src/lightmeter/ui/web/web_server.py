"""The web server of `lightmeter ui`: serves view-models and their ES modules to a browser on this machine."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from html import escape
from pathlib import Path
from secrets import compare_digest, token_urlsafe
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from aiohttp import WSCloseCode, WSMsgType, web
from aiohttp.http_exceptions import HttpProcessingError

from lightmeter.ui.assets import module_source, static_text, style_source
from lightmeter.ui.view_model import ViewModel, error_text
from lightmeter.ui.web.outbox import Outbox, OutboxOverflow

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
MAX_MESSAGE_BYTES: Final = 4 * 1024 * 1024
"""Maximum size of a message from a page, in bytes."""

MAX_OPEN: Final = 48
"""Maximum number of requests, WebSockets and event streams that are open at a time. More are answered with 503."""

KEEP_ALIVE_S: Final = 15.0
"""If an event stream has no event for this number of seconds, a comment is sent, so that a lost client is noticed."""

SEND_TIMEOUT_S: Final = 30.0
"""A page that does not read a message within this number of seconds is disconnected."""

VIEW_FAILED: Final = 4000
"""Code with which a WebSocket is closed because its view could not be created."""

HEADERS: Final = {
    # Pictures of a manifest may lie on any host; scripts and connections only here.
    "Content-Security-Policy": "default-src 'self'; img-src * data: blob:; style-src 'self' 'unsafe-inline'; "
    "object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}

_log: Final = logging.getLogger(__name__)

_http_log: Final = logging.getLogger(f"{__name__}.http")
_http_log.addFilter(lambda record: not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError)))
"""Log of aiohttp without malformed requests, which are answered with status 400 and are no errors of this server."""


@dataclass(frozen=True, slots=True)
class WebView:
    """A page, such as the gallery.

    Attributes:
        title: Title of the page.
        create: Function that creates a view-model, the Python object behind a page, for a browser tab.
    """

    title: str
    create: Callable[[], ViewModel]


class WebServer:
    """Serves the page of `lightmeter ui`. Each browser tab has its own WebSocket and view-model (Python object).

    Every request must have the token in its URL, and a loopback address as its host, so that other users and other web
    pages cannot read anything.

    Attributes:
        token: The secret that every URL must contain.
    """

    def __init__(self, views: Mapping[str, WebView], *, token: str | None = None, report: Path | None = None) -> None:
        """Create the server. It does not listen before `listen` is called.

        Args:
            views: Name → view. The names, such as `run`, are keys of `lightmeter.ui.assets.MODULES`.
            token: The secret that every URL must contain; None for a random secret.
            report: Path of the run's HTML report, which is served at `/report` if the file exists.
        """
        self._views = dict(views)
        self._report = report
        self._open = 0
        self._sockets: set[web.WebSocketResponse] = set()
        self._closing = asyncio.Event()
        self._threads = ThreadPoolExecutor(MAX_OPEN, "lightmeter-ui-view")
        self.token = token or token_urlsafe(24)

    def app(self) -> web.Application:
        """Return the aiohttp application. The caller must serve it on a loopback address only."""
        app = web.Application(middlewares=[self._guard])
        routes = {
            "/": self._page,
            "/views": self._list_views,
            "/views/{view}": self._connect,
            "/events": self._events,
            "/report": self._send_report,
            "/static/views/{file}": self._module,
            "/static/{file}": self._static,
        }
        for path, handler in routes.items():
            app.router.add_get(path, handler, allow_head=False)
        app.on_shutdown.append(self._close)
        app.on_cleanup.append(self._end_threads)
        return app

    def url(self, port: int) -> str:
        """Return the address of the page, with its token; `port` is the port on which the server listens."""
        return f"http://127.0.0.1:{port}/?{urlencode({'token': self.token})}"

    async def _close(self, _: web.Application) -> None:
        """Close the connections of all pages."""
        self._closing.set()
        closes = [socket.close(code=WSCloseCode.GOING_AWAY) for socket in list(self._sockets)]
        if closes:
            await asyncio.wait(map(asyncio.ensure_future, closes), timeout=2)

    async def _end_threads(self, _: web.Application) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        host, origin = request.headers.get("Host", ""), request.headers.get("Origin")
        if _host_name(host) not in LOOPBACK or (origin is not None and urlsplit(origin).netloc != host):
            raise web.HTTPForbidden(text="Only pages of this machine may be opened here.", headers=HEADERS)
        if not compare_digest(request.query.get("token", "").encode(errors="replace"), self.token.encode()):
            raise web.HTTPForbidden(text="Open the address that `lightmeter ui` printed.", headers=HEADERS)
        if self._open >= MAX_OPEN:
            raise web.HTTPServiceUnavailable(text="Too many pages are open. Close some.", headers=HEADERS)
        self._open += 1
        try:
            response = await handler(request)
        except web.HTTPException as error:
            error.headers.update(HEADERS)
            raise
        finally:
            self._open -= 1
        if not response.prepared:
            response.headers.update(HEADERS)
        return response

    async def _page(self, _: web.Request) -> web.Response:
        text = static_text("page.html").replace("TOKEN", escape(self.token))
        return web.Response(text=text, content_type="text/html")

    async def _list_views(self, _: web.Request) -> web.Response:
        return web.json_response({name: view.title for name, view in self._views.items()})

    async def _static(self, request: web.Request) -> web.Response:
        name = request.match_info["file"]
        if name not in {"page.js", "page.css"}:
            raise web.HTTPNotFound
        return _asset(static_text(name), name)

    async def _module(self, request: web.Request) -> web.Response:
        name, _, suffix = request.match_info["file"].partition(".")
        if name not in self._views or suffix not in {"js", "css"}:
            raise web.HTTPNotFound
        return _asset(module_source(name) if suffix == "js" else style_source(name), request.match_info["file"])

    async def _send_report(self, _: web.Request) -> web.StreamResponse:
        if self._report is None or not self._report.is_file():
            raise web.HTTPNotFound(text="There is no report yet. Write it with: lightmeter report DIR")
        return web.FileResponse(self._report)

    async def _in_thread(self, function: Callable[..., Any], *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *args)

    async def _connect(self, request: web.Request) -> web.WebSocketResponse:
        view = self._views.get(request.match_info["view"])
        if view is None:
            raise web.HTTPNotFound
        socket = web.WebSocketResponse(max_msg_size=MAX_MESSAGE_BYTES, heartbeat=20, timeout=2)
        await socket.prepare(request)
        self._sockets.add(socket)
        try:
            await self._serve_view(socket, view)
        finally:
            self._sockets.discard(socket)
        return socket

    async def _serve_view(self, socket: web.WebSocketResponse, view: WebView) -> None:
        """Create the Python object behind a page, and pass messages between page and object until the page disconnects.

        `view` creates the object. `socket` is the connection to the page.
        """
        try:
            model: ViewModel = await self._in_thread(view.create)
        except Exception as error:  # noqa: BLE001 (the page must show any error)
            fatal = {"message": error_text(error), "hint": getattr(error, "hint", "")}
            with suppress(ConnectionError):
                await socket.send_json({"fatal": fatal})
            await socket.close(code=VIEW_FAILED)
            return
        outbox = Outbox(model.page_state)
        names = list(model.traits(sync=True))
        outbox.put_state(names)
        model.connect(outbox.put)
        model.observe(lambda change: outbox.put_state([change["name"]]), names)
        with suppress(ConnectionError):
            await socket.send_json({"writes": list(model.traits(sync=True, page_writes=True))})
        sender = asyncio.create_task(_send_all(socket, outbox))
        try:
            async for message in socket:
                if message.type in {WSMsgType.TEXT, WSMsgType.BINARY}:
                    if not await outbox.wait_for_room():
                        break  # nobody would read the reply
                    await self._in_thread(_process, model, message.data)
        finally:
            sender.cancel()
            model.unobserve_all()
            await self._end_view(model)

    async def _end_view(self, model: ViewModel) -> None:
        try:
            await asyncio.to_thread(model.close_view)
        except Exception:  # noqa: BLE001 (a broken view does not end the server)
            _log.exception("A view could not be closed.")

    async def _events(self, request: web.Request) -> web.StreamResponse:
        """Send the state of the run's live page as server-sent events: the present state, then each changed state."""
        view = self._views.get("run")
        if view is None:
            raise web.HTTPNotFound
        model: ViewModel = await self._in_thread(view.create)
        loop, changed = asyncio.get_running_loop(), asyncio.Event()
        if model.page_state(["snapshot"])["snapshot"]:
            changed.set()
        model.observe(lambda _: loop.call_soon_threadsafe(changed.set), ["snapshot"])
        response = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/event-stream"})
        closing = asyncio.create_task(self._closing.wait())
        try:
            await response.prepare(request)
            await response.write(b"retry: 1000\n\n")
            while not closing.done():
                waiting = asyncio.create_task(changed.wait())
                await asyncio.wait({waiting, closing}, timeout=KEEP_ALIVE_S, return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
                text = ": nothing changed\n\n"
                if changed.is_set():
                    changed.clear()
                    text = f"data: {json.dumps(model.page_state(['snapshot'])['snapshot'])}\n\n"
                async with asyncio.timeout(SEND_TIMEOUT_S):
                    await response.write(text.encode())
        except (ConnectionError, TimeoutError):
            pass  # the client has gone, or does not read
        finally:
            closing.cancel()
            model.unobserve_all()
            await self._end_view(model)
        return response


@asynccontextmanager
async def listen(server: WebServer, port: int) -> AsyncIterator[int]:
    """Make `server` listen on the loopback addresses during the `with` block, and yield the port.

    If `port` is 0, a free port is chosen. Requests are not logged, because their URLs contain the token.

    Raises:
        OSError: The port is in use.
    """
    runner = web.AppRunner(
        server.app(), access_log=None, logger=_http_log, shutdown_timeout=2.0, keepalive_timeout=KEEP_ALIVE_S
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        chosen: int = runner.addresses[0][1]
        with suppress(OSError):  # (a machine without IPv6)
            await web.TCPSite(runner, "::1", chosen).start()
        yield chosen
    finally:
        await runner.cleanup()


async def _send_all(socket: web.WebSocketResponse, outbox: Outbox) -> None:
    try:
        while True:
            text = await outbox.take()
            async with asyncio.timeout(SEND_TIMEOUT_S):
                await socket.send_str(text)
    except (OutboxOverflow, TimeoutError):
        await socket.close(code=WSCloseCode.TRY_AGAIN_LATER)
    except ConnectionError:
        pass  # the page was closed
    except Exception:  # noqa: BLE001 (likewise)
        _log.exception("A message to the page could not be sent.")
        await socket.close(code=WSCloseCode.INTERNAL_ERROR)
    finally:
        outbox.close()


def _process(model: ViewModel, text: str | bytes) -> None:
    """Apply one message of a page to `model`, the Python object behind the page.

    `text` is the message as JSON: `{"state": …}` has new values of traits, `{"custom": …}` has a request.
    """
    try:
        message = json.loads(text)
        if "state" in message:
            model.set_from_page(message["state"])
        if "custom" in message:
            model.on_message(message["custom"])
    except Exception as error:  # noqa: BLE001 (the page must show any error)
        model.error = error_text(error)


def _host_name(host: str) -> str | None:
    """Return the host of a `Host` header without port and brackets; None if it is malformed."""
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def _asset(text: str, name: str) -> web.Response:
    return web.Response(text=text, content_type="text/javascript" if name.endswith(".js") else "text/css")
