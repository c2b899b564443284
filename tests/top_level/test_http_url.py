"""URLs are sent as written, and all spellings of a host are one host."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.http_url import host_key, parse_http_url, resolve_location

AS_WRITTEN = [
    "/a.jpg?path=x%2Fy&sig=q%2B%2Fz%3D%3D&to=a%40b",
    "/http%3A%2F%2Fcdn.x%2Fy.jpg",
    "/unsafe/300x200/https://cdn.x//y.jpg",
    "/a%2fb%2Fc%7E~%zz%",
    "/a/./b/../c/%2e%2e/d",
    "//a///b",
    "/a?",
    "/a??b=c?d",
    "/a?b=+&c=%20&d=1+1;e",
    "/a;v=1,2/(b)!$&'*+,:@=~",
    "/a[0].jpg?b[]=1",
]
ENCODED = [
    ("/a b.jpg", "/a%20b.jpg"),
    ("/é/漢", "/%C3%A9/%E6%BC%A2"),
    ('/"<>\\^`{|}', "/%22%3C%3E%5C%5E%60%7B%7C%7D"),
    ("/a\r\nHost: x\t\0\x7f", "/a%0D%0AHost:%20x%09%00%7F"),
    ("/a%20b c", "/a%20b%20c"),
    ("/caf\udce9", "/caf%E9"),
    ("/a#b?c", "/a"),
    ("?a=b", "/?a=b"),
    ("", "/"),
    ("#top", "/"),
]


@pytest.mark.parametrize("target", AS_WRITTEN)
def test_a_target_is_sent_as_written(target):
    """Escapes, dots, letter case and empty queries stay as they are."""
    assert parse_http_url(f"https://h.example{target}").target == target


@pytest.mark.parametrize(("written", "sent"), ENCODED)
def test_only_characters_that_no_request_may_contain_are_encoded(written, sent):
    """Spaces, control and non-ASCII characters and some others are percent-encoded; a fragment is left out."""
    assert parse_http_url(f"https://h.example{written}").target == sent


@given(st.text(alphabet=st.one_of(st.sampled_from("aZ%2fF/?#[]|\\ é"), st.characters(exclude_categories=("Cs",)))))
def test_any_target_becomes_one_line_of_ascii(text):
    """Any path is sent as printable ASCII without spaces, and what is sent is not encoded a second time."""
    sent = parse_http_url(f"http://h/{text}").target
    assert re.fullmatch(r"/[!-~]*", sent)
    assert parse_http_url(f"http://h{sent}").target == sent


SPELLINGS = [
    "h.example/a",
    "h.example?id=1",
    "h.example/",
    "h.example:443/",
    "H.Example/",
    "h.example./",
    "h.example#x",
]


def test_all_spellings_of_a_host_have_one_key():
    """Path, query, default port, letter case and a final dot do not make another host; scheme and port do."""
    keys = {host_key(f"https://{spelling}") for spelling in SPELLINGS}
    assert keys == {"https://h.example:443"}
    assert host_key("https://bücher.example/") == host_key("https://xn--bcher-kva.example")
    assert host_key("http://[::1]/") == host_key("http://[0:0:0:0:0:0:0:1]:80/a")
    others = {host_key(url) for url in ("http://h.example", "https://h.example:444/", "https://g.example", "no URL")}
    assert len(others | keys) == 5


@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("https://cdn.example/a%2Fb?c=%2B", "https://cdn.example/a%2Fb?c=%2B"),
        ("//cdn.example/a%2Fb/../c?", "http://cdn.example/a%2Fb/../c?"),
        ("/a%2fb/../c?d=%40", "http://h.example:8080/a%2fb/../c?d=%40"),
        ("c.jpg?d=%40", "http://h.example:8080/x/c.jpg?d=%40"),
        ("../c%2F.jpg", "http://h.example:8080/c%2F.jpg"),
        ("?d=%2B", "http://h.example:8080/x/y%2Fz?d=%2B"),
        ("caf\udce9.jpg", "http://h.example:8080/x/caf%E9.jpg"),
        ("HTTPS://CDN.example/A", "https://cdn.example/A"),
    ],
)
def test_redirects_are_followed_as_written(location, url):
    """The target of a redirect is requested as the header writes it."""
    base = parse_http_url("http://h.example:8080/x/y%2Fz?q=1")
    assert str(parse_http_url(resolve_location(base, location))) == url


@pytest.mark.parametrize(
    "text",
    [
        "http://user@h/a",
        "http://user:pass@h/a",
        "http://@h/",
        "http://good.example\\@h/",
        "http://h\\a",
        "http:\\\\h\\a",
        "http://h%2eexample/",
        "http://%68/",
        "http://h h/",
        "http://h\t/",
        "http://[fe80::1%25eth0]/",
        "http://[fe80::1%eth0]/",
        "http://[::1/",
        "http://::1/",
        "http://[127.0.0.1]/",
        "http://h:65536/",
        "http://h:-1/",
        "http://h:\uff18\uff10/",
        "http://h:80:80/",
        "http:///a",
        "http:/h/a",
        "//h/a",
        "ftp://h/a",
        "javascript:alert(1)",
        "http://" + "é" * 10_000,
    ],
)
def test_what_is_no_plain_http_url_is_refused(text):
    """User names, other schemes, and hosts and ports that parsers read differently are refused."""
    with pytest.raises(ValueError, match=r"^it"):
        parse_http_url(text)
    assert host_key(text) == ""
