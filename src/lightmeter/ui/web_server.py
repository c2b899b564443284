"""Serves view-models and their ES modules to a browser on this machine: the HTTP half of `lightmeter ui`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from html import escape
from secrets import compare_digest, token_urlsafe
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import traitlets
from aiohttp import WSMsgType, web

from lightmeter.ui.assets import module_source, static_text, style_source
from lightmeter.ui.view_model import ViewModel, error_text

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
MAX_MESSAGE_BYTES: Final = 4 * 1024 * 1024
HEADERS: Final = {
    # Pictures of a manifest may lie on any host; scripts and connections only here.
    "Content-Security-Policy": "default-src 'self'; img-src * data: blob:; style-src 'self' 'unsafe-inline'; "
    "object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True, slots=True)
class WebView:
    """A view of the page: its title in the navigation, and the function that creates a view-model for each tab."""

    title: str
    create: Callable[[], ViewModel]


class WebServer:
    """The page of `lightmeter ui`: each open view has a WebSocket and a view-model of its own.

    Every request needs the token in its URL, and must name a loopback host, so that other users and other web pages
    cannot read anything.

    Attributes:
        token: The token that every URL needs.
    """

    def __init__(self, views: Mapping[str, WebView]) -> None:
        """Create the server of these views, by their names in `lightmeter.ui.assets.MODULES`."""
        self._views = dict(views)
        self.token = token_urlsafe(24)

    def app(self) -> web.Application:
        """Return the aiohttp application; the caller serves it on a loopback address."""
        app = web.Application(middlewares=[self._guard])
        app.router.add_get("/", self._page)
        app.router.add_get("/views", self._list_views)
        app.router.add_get("/views/{view}", self._connect)
        app.router.add_get("/static/views/{file}", self._module)
        app.router.add_get("/static/{file}", self._static)
        return app

    def url(self, port: int) -> str:
        """Return the address of the page, with its token."""
        return f"http://127.0.0.1:{port}/?{urlencode({'token': self.token})}"

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        host, origin = request.headers.get("Host", ""), request.headers.get("Origin")
        if host.rpartition(":")[0] not in LOOPBACK or (origin is not None and urlsplit(origin).netloc != host):
            raise web.HTTPForbidden(text="Only pages of this machine may be opened here.", headers=HEADERS)
        if not compare_digest(request.query.get("token", "").encode(), self.token.encode()):
            raise web.HTTPForbidden(text="Open the address that `lightmeter ui` printed.", headers=HEADERS)
        response = await handler(request)
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

    async def _connect(self, request: web.Request) -> web.WebSocketResponse:
        view = self._views.get(request.match_info["view"])
        if view is None:
            raise web.HTTPNotFound
        socket = web.WebSocketResponse(max_msg_size=MAX_MESSAGE_BYTES, heartbeat=20)
        await socket.prepare(request)
        model = await asyncio.to_thread(view.create)
        outbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def send(message: dict[str, Any]) -> None:
            loop.call_soon_threadsafe(outbox.put_nowait, message)

        def send_trait(change: Any) -> None:
            send({"state": {change["name"]: model.page_state()[change["name"]]}})

        send({"state": model.page_state()})
        model.connect(lambda custom: send({"custom": custom}))
        model.observe(send_trait, list(model.traits(sync=True)))
        sender = asyncio.create_task(_send_all(socket, outbox))
        try:
            async for message in socket:
                if message.type is WSMsgType.TEXT:
                    await asyncio.to_thread(_process, model, message.data)
        finally:
            sender.cancel()
            await asyncio.to_thread(model.close_view)
        return socket


async def _send_all(socket: web.WebSocketResponse, outbox: asyncio.Queue[dict[str, Any]]) -> None:
    while True:
        await socket.send_json(await outbox.get())


def _process(model: ViewModel, text: str) -> None:
    """Apply one message of the page, `{"state": …}` or `{"custom": …}`, to its view-model."""
    try:
        message = json.loads(text)
        if "state" in message:
            model.set_from_page(message["state"])
    except (ValueError, TypeError, AttributeError, traitlets.TraitError) as error:
        model.error = error_text(error)
        return
    if "custom" in message:
        model.on_message(message["custom"])


def _asset(text: str, name: str) -> web.Response:
    return web.Response(text=text, content_type="text/javascript" if name.endswith(".js") else "text/css")
