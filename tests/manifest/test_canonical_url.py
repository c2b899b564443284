"""Canonical URLs and ids."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.manifest.canonical_url import _canonicalize, canonical_url
from lightmeter.manifest.item import stable_id

EQUIVALENT = [
    ("HTTP://Example.COM/a.jpg", "http://example.com/a.jpg"),
    ("http://example.com", "http://example.com/"),
    ("http://example.com:80/a", "http://example.com/a"),
    ("http://example.com:/a", "http://example.com/a"),
    ("https://example.com:443/a", "https://example.com/a"),
    ("https://example.com:80/a", "https://example.com:80/a"),
    ("https://example.com/a.jpg#top", "https://example.com/a.jpg"),
    ("https://example.com/a/./b/../c", "https://example.com/a/c"),
    ("https://example.com/a/b/..", "https://example.com/a/"),
    ("https://example.com/..", "https://example.com/"),
    ("https://example.com/../../a", "https://example.com/a"),
    ("https://example.com/%2E%2e/a", "https://example.com/a"),
    ("https://example.com/a//b", "https://example.com/a//b"),
    ("https://example.com/%7euser/%c3%a9", "https://example.com/~user/%C3%A9"),
    ("https://example.com/é", "https://example.com/%C3%A9"),
    ("https://example.com/a%2fb", "https://example.com/a%2Fb"),
    ("https://example.com/100%", "https://example.com/100%25"),
    ("https://example.com/%%34%31", "https://example.com/%2541"),
    ("https://example.com/a?b=2&a=1", "https://example.com/a?b=2&a=1"),
    ("https://example.com/a?", "https://example.com/a"),
    ("https://example.com/a?q=a+b%2Bc", "https://example.com/a?q=a+b%2Bc"),
    ("https://Bücher.example/a", "https://xn--bcher-kva.example/a"),
    ("https://my_bucket.example.com/a", "https://my_bucket.example.com/a"),
    ("http://[0:0:0:0:0:0:0:1]:8080/a", "http://[::1]:8080/a"),
    ("http://127.0.0.1:8080/a.png", "http://127.0.0.1:8080/a.png"),
    ("https://example.com/a;v=1,2/(b)", "https://example.com/a;v=1,2/(b)"),
]

REFUSED = [
    ("", "empty"),
    ("a.jpg", "no scheme"),
    ("www.example.com/a.jpg", "no scheme"),
    ("localhost:8080/a.jpg", "no scheme"),
    ("ftp://example.com/a.jpg", "ftp"),
    ("file:///etc/hosts", "file"),
    ("s3://bucket/a.jpg", "s3"),
    ("http://", "no host"),
    ("http:///a.jpg", "no host"),
    ("https:/example.com/a", "no host"),
    ("http://:80/a", "no host"),
    ("http://user:secret@example.com/a", "user name"),
    ("http://example.com/a b", "percent-encoded"),
    ("http://example.com/a\tb", "percent-encoded"),
    ("http://example.com/\x00", "percent-encoded"),
    ("http://example.com/\udc80", "percent-encoded"),
    ("http://example.com:99999/", "be parsed"),
    ("http://example.com:x/", "be parsed"),
    ("http://[::1/a", "be parsed"),
    ("http://exa mple.com/", "percent-encoded"),
    ("http://exa<mple.com/", "host name"),
    ("http://a..b/", "host name"),
    ("http://./", "host name"),
    ("http://-/", "host name"),
]


@pytest.mark.parametrize(("spelling", "canonical"), EQUIVALENT)
def test_equivalent_spellings_become_one(spelling, canonical):
    """Spellings that RFC 3986 calls equivalent get one form, and nothing else is changed."""
    assert canonical_url(spelling) == canonical


@pytest.mark.parametrize(("text", "reason"), REFUSED)
def test_what_cannot_be_fetched_is_refused_with_a_reason(text, reason):
    """A text that is no fetchable URL raises ValueError, and the message says what is wrong with it."""
    with pytest.raises(ValueError, match=reason):
        canonical_url(text)


URL_CHARS = st.text(
    alphabet=st.one_of(
        st.sampled_from("aZ09-._~!$&'()*+,;=:@/?#%[]|^\"<>{}\\ éß漢\u200d"),
        st.characters(),
    ),
    max_size=40,
)


@given(
    scheme=st.sampled_from(["http", "HTTPS", "ftp", ""]),
    separator=st.sampled_from(["://", ":", "//"]),
    rest=URL_CHARS,
)
def test_canonical_form_is_a_fixed_point(scheme, separator, rest):
    """The canonical form of a canonical form is itself, and anything else raises nothing but ValueError."""
    try:
        once = canonical_url(scheme + separator + rest)
    except ValueError:
        return
    assert canonical_url(once) == once
    assert once.isascii()


@given(path=URL_CHARS)
def test_canonical_form_is_a_fixed_point_for_any_path(path):
    """For any path, the canonical form is stable and keeps the host."""
    try:
        once = canonical_url("https://example.com/" + path)
    except ValueError:
        return
    assert canonical_url(once) == once
    assert once.startswith("https://example.com/")


def test_stable_id_is_sixteen_hex_digits_and_never_changes():
    """The id of a URL is the same in every run and every version: journals and tables are joined on it."""
    assert stable_id("https://example.com/") == "14ba2eb79c27555b"


WORDS = [
    "http://",
    "https://",
    "HTTP://",
    "a",
    "B",
    "example.com",
    "-",
    "_",
    ".",
    "..",
    "/",
    "/.",
    "/..",
    "//",
    ":80",
    "?",
    "#",
    "%41",
    "%2f",
    "%",
    "ü",
    "~",
    "@",
    ":",
    "+",
    "&x=1",
    "[::1]",
    "\\",
]
PIECES = st.lists(st.sampled_from([*WORDS, " ", "\n", "x" * 254]), min_size=1, max_size=9).map("".join)


@given(url=PIECES | PIECES.map("https://a.example/".__add__) | PIECES.map("http://".__add__))
def test_what_is_canonical_already_is_left_as_it_is(url):
    """The fast path accepts only URLs that are canonical."""
    try:
        respelled = _canonicalize(url)
    except ValueError as reason:
        with pytest.raises(ValueError, match=re.escape(str(reason))):
            canonical_url(url)
    else:
        assert canonical_url(url) == respelled
