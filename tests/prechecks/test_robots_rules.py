"""`X-Robots-Tag` and robots.txt are read as their authors mean them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.prechecks.robots_rules import RobotsRules, opt_out_directive


@pytest.mark.parametrize(
    ("values", "found"),
    [
        (["noai"], "noai"),
        (["NoImageAI"], "noimageai"),
        (["noindex, noai"], "noai"),
        (["noindex", "noimageai, nofollow"], "noimageai"),
        (["lightmeter: noai"], "noai"),
        (["*: noindex, noai"], "noai"),
        (["otherbot: noai"], None),
        (["otherbot: noindex, noai"], None),
        (["otherbot: noai, lightmeter: noai"], "noai"),
        (["otherbot: noai", "noimageai"], "noimageai"),
        (["unavailable_after: 25 Jun 2030 15:00:00 PST, noai"], "noai"),
        (["max-image-preview: large, noai"], "noai"),
        (["noindex", "", ",", ":", "noaibutmore"], None),
        ([], None),
    ],
)
def test_the_header_opts_out(values, found):
    """`noai` and `noimageai` count for all robots and for lightmeter, not for another robot."""
    assert opt_out_directive(values) == found


@pytest.mark.parametrize(
    ("rules", "path", "blocked"),
    [
        ("Disallow: /", "/a.jpg", True),
        ("Disallow:", "/a.jpg", False),
        ("Disallow: /\nAllow: /public/", "/public/a.jpg", False),
        ("Allow: /public/\nDisallow: /public/not", "/public/not.jpg", True),
        ("Disallow: /a.jpg\nAllow: /a.jpg", "/a.jpg", False),
        ("Disallow: /*.jpg$", "/x/a.jpg", True),
        ("Disallow: /*.jpg$", "/x/a.jpg?size=2", False),
        ("Disallow: /*/private/*/x", "/a/private/b/x.jpg", True),
        ("Disallow: /*a*a$", "/a", False),
        ("Disallow: /$", "/", True),
        ("Disallow: /*?", "/a.jpg?x=1", True),
        ("Disallow: /%7Euser/", "/~user/a.jpg", True),
        ("Disallow: /bücher/", "/b%c3%bccher/a.jpg", True),
        ("Disallow: /a%2fb", "/a/b", False),
        ("disallow : /a # comment", "/a.jpg", True),
        ("Crawl-delay: 5\nSitemap: https://x/y\nDisallow: /a", "/a.jpg", True),
        (f"Disallow: /{'*a' * 17}", f"/{'a' * 40}", False),
    ],
)
def test_the_longest_rule_counts(rules, path, blocked):
    """Rules match as RFC 9309 says: the longest one, wildcards, escapes; `allow` if two are equal."""
    found = RobotsRules(f"User-agent: *\n{rules}").blocking_rule(f"https://host{path}")
    assert (found is not None) == blocked


def test_the_named_group_counts():
    """The groups that name lightmeter count together, and then those of all robots do not."""
    text = "User-agent: *\nDisallow: /all\n\nUser-agent: other\nUser-agent: LightMeter/1.0\rDisallow: /one\r\n"
    rules = RobotsRules("\ufeff" + text + "User-agent: lightmeter\nDisallow: /two\n")
    assert [rules.blocking_rule(f"https://host/{name}") for name in ("all", "one", "two")] == [None, "/one", "/two"]
    assert RobotsRules(text.replace("LightMeter", "third")).blocking_rule("https://host/all") == "/all"


@given(st.text(max_size=300), st.text(max_size=80))
def test_any_text_is_read(text, path):
    """No content of a robots.txt, and no path, raises an exception."""
    RobotsRules(f"User-agent: *\nDisallow: {text}\n{text}").blocking_rule(f"https://host/{path}")


def test_hostile_patterns_end():
    """Patterns that a backtracking matcher would try for ever against a long URL are decided."""
    text = "User-agent: *\n" + "".join(f"Disallow: /{'*a' * 16}{number}\n" for number in range(20_000))
    assert RobotsRules(text).blocking_rule(f"https://host/{'a' * 4000}") is None
