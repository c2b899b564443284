"""Who may open the page of `lightmeter ui`, over real sockets."""

from __future__ import annotations

import asyncio
from contextlib import closing
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest

from lightmeter.ui.gallery.explorer import ExplorerView
from lightmeter.ui.web.web_server import WebServer, WebView, listen


def status(url: str, **headers: str) -> int:
    """Return the HTTP status of a request."""
    address = urlsplit(url)
    with closing(HTTPConnection(address.netloc, timeout=20)) as connection:
        connection.request("GET", f"{address.path}?{address.query}", headers=headers)
        return connection.getresponse().status


@pytest.mark.parametrize("headers", [{"Host": "example.com:80"}, {"Origin": "http://example.com"}])
def test_other_hosts_are_refused(run, serve_views, headers):
    """A request that names another host, or comes from a page of another host, is refused even with the token."""
    url = serve_views({"explorer": WebView("Gallery", lambda: ExplorerView(run))})
    assert (status(url), status(url, **headers)) == (200, 403)


@pytest.mark.parametrize(
    "text", [b"GET * HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"?\r\n\r\n"]
)
async def test_malformed_http_is_answered_and_not_logged(run, caplog, text):
    """A request that is no HTTP gets status 400, and prints no traceback on the terminal of `lightmeter ui`."""
    async with listen(WebServer({"explorer": WebView("Gallery", lambda: ExplorerView(run))}), 0) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(text)
        assert b" 400 " in await reader.readline()
        writer.close()
    assert caplog.records == []


@pytest.mark.parametrize("path", ["/", "/views", "/views/explorer", "/static/page.js", "/static/views/explorer.js"])
def test_token_is_needed(run, serve_views, path):
    """Nothing is served without the token."""
    base = serve_views({"explorer": WebView("Gallery", lambda: ExplorerView(run))}).partition("/?")[0]
    assert [status(f"{base}{path}{query}") for query in ("", "?token=", "?token=wrong")] == [403] * 3
