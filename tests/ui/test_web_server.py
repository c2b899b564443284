"""Who may open the page of `lightmeter ui`, over real sockets."""

from __future__ import annotations

from contextlib import closing
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest

from lightmeter.ui.gallery.explorer import ExplorerView
from lightmeter.ui.web.web_server import WebView


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


@pytest.mark.parametrize("path", ["/", "/views", "/views/explorer", "/static/page.js", "/static/views/explorer.js"])
def test_token_is_needed(run, serve_views, path):
    """Nothing is served without the token."""
    base = serve_views({"explorer": WebView("Gallery", lambda: ExplorerView(run))}).partition("/?")[0]
    assert [status(f"{base}{path}{query}") for query in ("", "?token=", "?token=wrong")] == [403] * 3
