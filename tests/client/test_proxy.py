"""The proxy that environment variables name is used as common tools use it."""

from __future__ import annotations

import pytest
from yarl import URL

from lightmeter.client.proxy import PROXY_FROM_ENVIRONMENT, proxy_url


@pytest.fixture
def environment(monkeypatch):
    """Return a function that sets the environment's proxies, and returns the proxy to a service."""

    def chosen(service: str, proxy: str = "http://proxy.example:3128", no_proxy: str = "") -> str | None:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        for name, value in (("http_proxy", proxy), ("https_proxy", proxy), ("no_proxy", no_proxy)):
            monkeypatch.setenv(name, value)
        found = proxy_url(PROXY_FROM_ENVIRONMENT, URL(service))
        return None if found is None else str(found)

    return chosen


@pytest.mark.parametrize(
    ("service", "no_proxy"),
    [
        ("http://service.example", "service.example"),
        ("http://api.service.example", ".service.example"),
        ("http://service.example:8080", "service.example:8080"),
        ("https://service.example", "other.example, service.example:443"),
        ("http://10.1.2.3:8080", "10.0.0.0/8"),
        ("http://10.1.2.3", "192.168.0.0/16,10.1.2.77/24"),
        ("http://10.1.2.3", "10.1.2.3:80"),
        ("http://[fd00::5]:8080", "fd00::/8"),
        ("http://[fd00::5]:8080", "[fd00::5]:8080"),
        ("http://[fd00::5]:8080", "fd00::5"),
        ("http://service.example", "*"),
    ],
)
def test_no_proxy_excludes_names_ports_and_networks(environment, service, no_proxy):
    """NO_PROXY excludes a service by name, domain, port, address and network."""
    assert environment(service) == "http://proxy.example:3128"
    assert environment(service, no_proxy=no_proxy) is None


@pytest.mark.parametrize(
    ("service", "no_proxy"),
    [
        ("http://service.example:8080", "service.example:80"),
        ("http://11.1.2.3", "10.0.0.0/8"),
        ("http://10.1.2.3:8080", "10.1.2.3:80"),
        ("http://service.example", "10.0.0.0/8,fd00::/8,not/a/network"),
        ("http://[fd00::5]", "10.0.0.0/8"),
        ("http://service.example", "vice.example"),
    ],
)
def test_no_proxy_excludes_nothing_else(environment, service, no_proxy):
    """A service on another port, in another network or in another domain is reached through the proxy."""
    assert environment(service, no_proxy=no_proxy) == "http://proxy.example:3128"


@pytest.mark.parametrize("proxy", ["proxy.example:3128", "http://proxy.example:3128", " proxy.example:3128 "])
def test_the_scheme_of_the_proxy_may_be_missing(environment, proxy):
    """A proxy that the environment names without a scheme is an http proxy."""
    assert environment("https://service.example", proxy=proxy) == "http://proxy.example:3128"
