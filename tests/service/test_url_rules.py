"""The rules for URLs that hold before their host is resolved."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.service.ingest.url_rules import PORTS, url_rejection


@given(st.text())
def test_any_text_can_be_checked(text):
    """No text raises an error, and the rules for public hosts are at least as strict as with `allow_private`."""
    lenient, strict = (url_rejection(text, allow_private=allow) for allow in (True, False))
    assert lenient is None or strict is not None


@given(st.integers(0, 65535))
def test_only_web_ports_are_accepted(port):
    """Ports 80 and 443 are accepted; with `allow_private`, every port."""
    for scheme in ("http", "https"):
        url = f"{scheme}://example.org:{port}/x.png"
        assert (url_rejection(url, allow_private=False) is None) == (port in PORTS)
        assert url_rejection(url, allow_private=True) is None


@pytest.mark.parametrize("host", ["xn--localhost-9m0.test", "xn--a", "xn--", "%6c", "a b", "a\tb", "\ud800"])
def test_unreadable_hosts_are_refused(host):
    """Invalid punycode, percent signs and blanks are refused without an exception."""
    assert url_rejection(f"http://{host}/x.png", allow_private=True).startswith("not a URL")
