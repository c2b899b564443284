"""Acknowledgments contain a URL under which the client reaches the service, also behind a proxy that ends TLS."""

from __future__ import annotations

from ipaddress import ip_network
from itertools import count

import pytest

from lightmeter.service.http.public_url import PublicUrl

LOOPBACK = (ip_network("127.0.0.0/8"),)
FORWARDED = {"X-Forwarded-Proto": "https", "X-Forwarded-Host": "api.example.org"}


@pytest.fixture
def polling_url(starting, calling, site, tmp_path):
    """Return a function that starts a service, and returns the base URL in the acknowledgment of a request."""
    number = count()

    async def ask(public_url, **headers):
        caller = await calling(
            await starting(public_url=public_url, database=f"sqlite:///{tmp_path / str(next(number))}")
        )
        answered = await caller.ask(headers, url=[site.url("picture/1.png"), site.url("picture/2.png")])
        base_url, _, request_id = answered.body["response_uri"].partition("/api/response/")
        assert request_id == answered.body["request_id"]
        return base_url, caller.base_url

    return ask


@pytest.mark.parametrize("trusted", [(), LOOPBACK])
async def test_the_public_url_overrides_every_header(polling_url, trusted):
    """With a public URL, neither Host nor forwarded headers change the URL of the answer."""
    fixed = PublicUrl("https://api.example.org/images", trusted)
    assert (await polling_url(fixed, Host="evil.example", **FORWARDED))[0] == fixed.fixed


async def test_forwarded_headers_of_others_are_ignored(polling_url):
    """Forwarded headers of a peer that is not a trusted proxy change nothing."""
    for trusted in ((), (ip_network("10.0.0.0/8"), ip_network("::1/128"))):
        url, own = await polling_url(PublicUrl(None, trusted), **FORWARDED)
        assert url == own


async def test_forwarded_headers_of_a_trusted_proxy_count(polling_url):
    """A trusted proxy names scheme and host; of several values, the last one is its own."""
    assert (await polling_url(PublicUrl(None, LOOPBACK), **FORWARDED))[0] == "https://api.example.org"
    several = {"X-Forwarded-Proto": "http, https", "X-Forwarded-Host": "evil.example, api.example.org:8443"}
    assert (await polling_url(PublicUrl(None, LOOPBACK), **several))[0] == "https://api.example.org:8443"


@pytest.mark.parametrize("host", ["evil.example/path", "user@evil.example", "a b", '"><script>', "[::1", "x" * 300])
async def test_a_host_that_is_none_is_not_repeated(polling_url, host):
    """A Host header that is no host and port is replaced by the address of the service."""
    url, own = await polling_url(PublicUrl(), Host=host)
    assert url == own


@pytest.mark.parametrize(("header", "value"), [("X-Forwarded-Proto", "javascript"), ("X-Forwarded-Host", "a/b")])
async def test_nonsense_of_a_trusted_proxy_is_ignored(polling_url, header, value):
    """Forwarded headers with an unknown scheme or no host change nothing."""
    url, own = await polling_url(PublicUrl(None, LOOPBACK), **{header: value})
    assert url == own
