"""Verdicts on HTTP responses."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightmeter.prechecks.finding import CheckName
from lightmeter.prechecks.url_verdict import ProbeResponse, judge_response
from lightmeter.testing import tiny_jpeg

JPEG = tiny_jpeg()[:64]
HTML = b"<!doctype html><title>Not found</title>"


def answer(status=200, content_type="image/jpeg", size_bytes=1000, head=b"", *, content_was_read=None):
    inside = bool(head) if content_was_read is None else content_was_read
    return ProbeResponse(status, content_type, size_bytes, "http://h.example/a", head, content_was_read=inside)


def worst(verdict):
    severities = [finding.severity for finding in verdict.findings]
    return max(severities, key=["info", "warning", "error"].index)


@pytest.mark.parametrize("status", [404, 410])
def test_gone_url_is_an_error(status):
    """A status that says the URL is gone is an error."""
    assert worst(judge_response(answer(status), "image")) == "error"


@pytest.mark.parametrize("status", [301, 400, 401, 403, 405, 416, 429, 451, 500, 502, 503])
def test_other_error_statuses_are_warnings(status):
    """Other error statuses are warnings, because the service may be allowed."""
    verdict = judge_response(answer(status), "image")
    assert worst(verdict) == "warning"
    assert verdict.kind == "image"
    assert verdict.findings[0].value == status


@pytest.mark.parametrize(
    ("response", "expected", "kind", "severity"),
    [
        (answer(), "image", "image", "info"),
        (answer(head=JPEG), None, "image", "info"),
        (answer(content_type="text/plain", head=JPEG), None, "image", "info"),
        (answer(content_type="video/mp4"), "image", "video", "warning"),
        (answer(content_type="video/mp4", head=JPEG), "video", "image", "warning"),
        (answer(content_type="image/tiff", head=b"II*\0"), "image", "image", "info"),
        (answer(content_type="image/svg+xml", head=b"<svg xmlns="), "image", "image", "warning"),
        (answer(content_type="application/octet-stream", head=b"\0\1\2\3"), "image", "image", "warning"),
        (answer(content_type="text/html"), "image", "image", "warning"),
        (answer(content_type="text/html", head=HTML), "image", "image", "error"),
        (answer(content_type="application/json", head=b"{}"), "video", "video", "error"),
        (answer(head=HTML), "image", "image", "error"),
        (answer(head=b"Rate limit exceeded"), "image", "image", "error"),
        (answer(head=b"%PDF-1.7"), "image", "image", "error"),
        (answer(head=bytes(64)), "image", "image", "error"),
        (answer(content_type="video/mp4", head=b"#EXTM3U\n"), "video", "video", "warning"),
        (answer(head=b"P3 2 2 255"), "image", "image", "warning"),
        (answer(content_type="image/svg+xml", head=b"<?xml version='1.0'?><svg/>"), "image", "image", "warning"),
        (answer(content_was_read=True, size_bytes=0), "image", "image", "error"),
    ],
)
def test_content_is_judged_by_its_bytes_then_by_its_type(response, expected, kind, severity):
    """First bytes count before the media type, and this before the name; only content of another kind is an error."""
    verdict = judge_response(response, expected)
    assert verdict.kind == kind
    assert worst(verdict) == severity


@pytest.mark.parametrize(
    ("page", "name"),
    [
        (b"<!doctype html><title>Log in</title>", "a login page"),
        (b"<!-- x --><html><body><form action='/user/sign-in'>", "a login page"),
        (b"<html><input name=p TYPE='password'>", "a login page"),
        (b"<html><h1 class=big>Sign in to see this picture</h1>", "a login page"),
        (b"<!doctype html><title>404 Not Found</title>", "an error page"),
        (b"<html><head><title>Access denied</title>", "an error page"),
        (b"<html><title>My cats</title><a href=/login>Log in</a>", "a web page"),
    ],
)
def test_login_and_error_pages_are_named(page, name):
    """A page with a form to log in, and a page whose title is an error, have sentences of their own."""
    (found,) = [found for found in judge_response(answer(head=page), "image").findings if found.severity == "error"]
    assert found.check == "type"
    assert found.message.startswith(f"Neither a picture nor a video: the content is {name}, sent as image/jpeg.")
    assert ("needs a login" in found.message) == (name == "a login page")


@given(
    st.integers(100, 599),
    st.text(max_size=20),
    st.one_of(st.none(), st.integers(0, 10**12)),
    st.binary(max_size=64),
    st.booleans(),
    st.sampled_from([None, "image", "video"]),
)
def test_every_response_gives_a_finding(status, content_type, size_bytes, head, inside, expected):
    """Every response gives at least one finding of a known check."""
    response = ProbeResponse(status, content_type, size_bytes, "http://h.example/", head, content_was_read=inside)
    verdict = judge_response(response, expected)
    assert verdict.findings
    assert all(finding.check in get_args(CheckName) and finding.message for finding in verdict.findings)
